/*
 * Installing a harness: one workload of the device's own, in the sandbox, with the network that policy.conf gives, in a work directory and
 * under a runner of its own (proto/ipc/harness.h). What it leaves there every other workload sees read-only, first in its PATH.
 */
#ifndef EDGEWARD_WORKERD_HARNESS_H
#define EDGEWARD_WORKERD_HARNESS_H

#include "proto/ipc/harness.h"
#include "workerd/workerd.h"

#define HARNESS_DIRS_SIZE (2 * (PATH_MAX + 64))

/* connectd asks, by request id. The answer comes at once, or when the installation has ended. -EPROTO. */
int harness_request(struct workerd *w, const struct harness_ask *ask, uint32_t id);

/* An installation has ended; the launcher would not start it. Whoever asked is answered. */
void harness_ended(struct workload *wl);
void harness_refused(const struct workload *wl, const char *error);

/* Who asked is gone. */
void harness_unasked(struct workerd *w);

/* The directories with their executables, "" when there are none that can be trusted; ":" between two. */
void harness_dirs(const struct workerd *w, char dirs[HARNESS_DIRS_SIZE]);

/* Adds where they lie to what a workload sees, if there is room. */
void harness_show(const struct workerd *w, char *show, size_t size);

/* The directories in front of the PATH of a workload's environment; a view that is valid until the next call. */
void harness_path(const struct workerd *w, struct work_spec *spec);

#endif
