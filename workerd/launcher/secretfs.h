/* The secret files of a workload, from inside: what workinit does with its private directory. */
#ifndef EDGEWARD_LAUNCHER_SECRETFS_H
#define EDGEWARD_LAUNCHER_SECRETFS_H

#include <stddef.h>

#include "proto/ipc/launch.h"
#include "proto/ipc/work.h"

/* Makes directories (0700) and files of the items of a spec beneath base. 0 or -errno. */
int secretfs_place(int base, const struct work_str *items);

/* What workerd asks; content is the descriptor of a REPLACE. */
struct init_done secretfs_do(int base, const struct init_secret *s, int content);

/* Zeroes and removes everything; what it cannot it leaves. 0 or the first -errno. */
int secretfs_wipe(int base);

#endif
