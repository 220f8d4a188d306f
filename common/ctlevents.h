/* The answer to CTL_REQ_EVENTS, the same in each daemon. */
#ifndef EDGEWARD_CTLEVENTS_H
#define EDGEWARD_CTLEVENTS_H

#include "common/eventlog.h"
#include "common/ipc.h"

int ctlevents_answer(struct ipc_chan *chan, struct ipc_msg *msg, struct eventlog *log);

#endif
