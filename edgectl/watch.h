/* --watch: a command that only looks, again and again. */
#ifndef EDGEWARD_EDGECTL_WATCH_H
#define EDGEWARD_EDGECTL_WATCH_H

#include "edgectl/edgectl.h"

/* text: NULL for the default. Complains and returns -1 when it is no number of seconds. */
int watch_seconds(const char *text, uint32_t *ret_seconds);

/* Once (seconds 0), or until nobody reads any more; a terminal is cleared before each. The last exit code. */
int watch_run(struct edgectl *ctl, int (*run)(struct edgectl *ctl, int argc, char **argv), int argc, char **argv, uint32_t seconds);

#endif
