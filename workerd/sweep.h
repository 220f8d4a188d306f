/*
 * Containers of ours that nobody holds any more: after a crash, a reboot, or when a removal failed. One process at a time, started like the
 * client of a container and under a handle of its own, looks for them by our label and removes them until there are none; while that
 * fails it is tried again. Containers without our label are not even looked at.
 */
#ifndef EDGEWARD_WORKERD_SWEEP_H
#define EDGEWARD_WORKERD_SWEEP_H

#include "workerd/workload.h"

#define SWEEP_HANDLE	"edgeward-sweep"	/* no hub may start work under it */

int sweep_init(struct workerd *w);
void sweep_done(struct workerd *w);

/* What the launcher holds is known: everything of earlier workerds that is not of a held workload goes. */
void sweep_begin(struct workerd *w);
/* The container of this handle may be there although nothing holds it. */
void sweep_leftover(struct workerd *w, const char *handle);

/* The engine did not answer the last time it was asked: why, or NULL. */
const char *sweep_problem(const struct workerd *w);

/* launchchan.c: true when it was about the sweep. */
bool sweep_held(struct workerd *w, const struct launch_held *held);
bool sweep_answer(struct workerd *w, struct ipc_msg *msg);
bool sweep_ended(struct workerd *w, const struct launch_ended *end);

#endif
