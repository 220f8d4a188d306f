/* Forwarded Ethernet segments: device_open of kind l2, the interface of a workload behind it, frames both ways. */
#ifndef EDGEWARD_CONNECTD_L2DEV_H
#define EDGEWARD_CONNECTD_L2DEV_H

#include "connectd/forward.h"
#include "proto/ipc/l2.h"

extern const struct forward_kind l2dev_kind;

/* workerd's answer; takes *fd (sets it to -1) or leaves it to be closed. */
void l2dev_answer(struct session *s, uint32_t ipc_id, const struct l2_answer *a, int *fd);

#endif
