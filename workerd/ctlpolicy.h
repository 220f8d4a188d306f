/* The operator's questions about the policy: what holds, and what would become of a start. */
#ifndef EDGEWARD_WORKERD_CTLPOLICY_H
#define EDGEWARD_WORKERD_CTLPOLICY_H

#include "common/ipc.h"

/* Handlers for rows of control.c; ctx is the struct workerd. */
int ctlpolicy_show(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int ctlpolicy_test(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

#endif
