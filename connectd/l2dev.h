/* Forwarded Ethernet segments: device_open of kind l2, the interface of a workload behind it, frames both ways. */
#ifndef EDGEWARD_CONNECTD_L2DEV_H
#define EDGEWARD_CONNECTD_L2DEV_H

#include "connectd/session.h"
#include "proto/ipc/l2.h"

/* For devframes.c: the frame; and device_close: false = there is none of this id. */
void l2dev_open(struct session *s, const struct cloop_frame *f, uint32_t channel);
bool l2dev_close(struct session *s, const char *id, const char *reason);

/* workerd's answer; takes *fd (sets it to -1) or leaves it to be closed. */
void l2dev_answer(struct session *s, uint32_t ipc_id, const struct l2_answer *a, int *fd);

/* The session ends; before its mux does. workerd is gone: what it has not answered it will not. */
void l2dev_done(struct session *s);
void l2dev_work_down(struct session *s);

#endif
