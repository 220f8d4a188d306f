/* workerd's end of the work channel: what connectd asks, what it is told. Without a channel telling is a no-op. */
#ifndef EDGEWARD_WORKERD_WORKCHAN_H
#define EDGEWARD_WORKERD_WORKCHAN_H

#include "proto/ipc/priv.h"
#include "proto/ipc/work.h"
#include "workerd/workerd.h"

/* Takes a fresh end over; the old one is dropped. */
void workchan_open(struct workerd *w, int fd, const struct priv_peer *peer);

/* The whole state of one workload; that it is forgotten. */
void workchan_tell(struct workload *wl);
void workchan_gone(const struct workload *wl);

/* The answer to a START. */
void workchan_answer(struct workerd *w, uint32_t id, enum work_refusal refusal, uint32_t wid, uint32_t flags,
    const char *error);

/* The same answer to everybody who waits for this one. */
void workchan_answer_askers(struct workload *wl, enum work_refusal refusal, const char *error);

void workchan_done(struct workerd *w);

#endif
