/*
 * From the ring to the spool, and the two seen as one.
 *
 * When: without a session everything that has waited for a second is copied to the disk, so that a power cut
 * costs a second of output (an orderly stop, or a launcher that died, none); and the oldest bytes leave the ring when it is full. While a session is up a full ring
 * slows the workload, as without a spool, and the disk is spared; only when no acknowledgement has come for a second, or
 * [work] overflow = drop would let bytes go, the disk is used. What has ended is moved out of memory.
 *
 * Bytes below the ring's tail are in the spool or are gone; bytes above may be in both, and then the ring is read.
 */
#ifndef EDGEWARD_WORKERD_SPILL_H
#define EDGEWARD_WORKERD_SPILL_H

#include "workerd/spool.h"
#include "workerd/workload.h"

/* Once; statefd is the state directory. Before the sandbox closes. */
void spill_open(struct workerd *w, int statefd);
void spill_close(struct workerd *w);

/* Takes over what an earlier workerd left for this workload. */
void spill_adopt(struct workload *wl);

/*
 * Everybody is known now. Files of handles that nobody knows and that were never delivered: a journal was lost, they become lost
 * workloads, at most 64. What remains is removed bit by bit.
 */
void spill_settle(struct workerd *w);

/*
 * Makes room for need bytes in the ring by writing the oldest to the disk; with drop, the spool's own oldest may go for it.
 * 0 = it is there, else why not: enum work_gap_reason. Writes at most a little more than need.
 */
uint32_t spill_room(struct workload *wl, size_t need, bool drop);

/* True if spill_room() may help when the ring is full: then nobody has to wait for an ack. */
bool spill_helps(const struct workload *wl);

/* Output came, the ring is full, the session went, it ended: looks again in a second if that is of any use. */
void spill_note(const struct workload *wl);

/* The unit, or the machine, is about to stop in good order, or the launcher is gone: what is only in memory and not acknowledged is written, as far as there is room. */
void spill_all(struct workerd *w);

/* The hub has everything below offset. */
void spill_ack(struct workload *wl, uint64_t offset);

/* It is delivered and forgotten: its files go. */
void spill_forget(struct workload *wl);

/* What is held at offset, which is below the head: bytes, or a gap with its reason. May read a block from the disk. */
void spill_at(struct workload *wl, uint64_t offset, struct retained *ret);

#endif
