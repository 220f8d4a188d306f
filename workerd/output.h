/*
 * Output of the workloads: pipe to ring, independent of the link; ring to connectd, as far as it has given credit.
 *
 * The first bytes are read at once; after a short read the pipe is left alone for a millisecond, so that a chatty program
 * costs one round a millisecond and not one a line. Of a full ring the oldest bytes go to the spool, if there is one
 * (spill.h); else the pipe is left unread or the oldest bytes are dropped, as the start or [work] overflow says.
 */
#ifndef EDGEWARD_WORKERD_OUTPUT_H
#define EDGEWARD_WORKERD_OUTPUT_H

#include "common/conf.h"
#include "workerd/workload.h"

/* Once, before anything else: the time without a session begins now. */
void output_start(struct workerd *w);

/* Of a new workload. */
void output_init(struct workload *wl);

/* Takes over the reading end. 0 or -errno (closed then). */
int output_open(struct workload *wl, int fd);

/* Of one that was taken back: sees to what an earlier workerd has read, and was killed before it drew the conclusions. No more may ever come. */
void output_resume(struct workload *wl);
void output_close(struct workload *wl);

/* Nothing lives any more: reads what is in the pipe now and no more, then EV_DRAINED. wl may be gone afterwards. */
void output_drain(struct workload *wl);

void output_sub(struct workload *wl, const struct work_sub *sub);
void output_credit(struct workload *wl, const struct work_sub *sub);
/* wl may be gone afterwards. */
void output_ack(struct workload *wl, uint64_t offset);

/* Something may have changed for one whose ring was full: looks again. True if it is there and still full. */
bool output_again(struct workload *wl);

/* Sends a turn's worth of what one workload has, and the rest after the others' turn; or all in turn. */
void output_send(struct workload *wl);
void output_send_all(struct workerd *w);
void output_send_later(struct loop_timer *timer);	/* of w->pump */

/* What [work] overflow is for this one. */
enum conf_overflow output_overflow(const struct workload *wl);

/* The session with the hub came or went. */
void output_session(struct workerd *w, bool up);

/* The work channel is new: nobody is subscribed. */
void output_reset(struct workerd *w);

#endif
