/* From a spec that connectd sent to a request to the launcher, or to a refusal with its reason. */
#ifndef EDGEWARD_WORKERD_START_H
#define EDGEWARD_WORKERD_START_H

#include "proto/ipc/work.h"
#include "workerd/workerd.h"

/*
 * Starts what connectd asked for by request id; the answer goes to the work channel, now or when it runs. A handle that is
 * known is not started again: its state is the answer.
 */
void workload_start(struct workerd *w, struct work_spec *spec, uint32_t id);

#endif
