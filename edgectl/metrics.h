/* The figures of this device as OpenMetrics text. */
#ifndef EDGEWARD_EDGECTL_METRICS_H
#define EDGEWARD_EDGECTL_METRICS_H

#include <stdio.h>

#include "edgectl/edgectl.h"
#include "edgectl/status.h"

/* Asks the daemons and writes everything to out; v gets what they said. */
void metrics_write(struct edgectl *ctl, struct view *v, FILE *out);

/* listen.c: serves /metrics, /healthz and /readyz at ADDRESS:PORT (loopback only) or unix:PATH until it is ended; an exit code. */
int metrics_listen(struct edgectl *ctl, const char *where);

#endif
