/* What workerd counts and remembers of its workloads for operators: `edgectl events` and `edgectl metrics`. */
#ifndef EDGEWARD_WORKERD_TALLY_H
#define EDGEWARD_WORKERD_TALLY_H

#include "workerd/workerd.h"

void tally_started(const struct workload *wl);
void tally_ended(const struct workload *wl);
void tally_refused(struct workerd *w, enum work_refusal refusal, const char *error);

/* CTL_REQ_METRICS */
int tally_metrics(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

#endif
