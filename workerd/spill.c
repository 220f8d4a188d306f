#include "workerd/spill.h"

#include <errno.h>
#include <string.h>

#include "common/log.h"
#include "workerd/output.h"
#include "workerd/workchan.h"
#include "workerd/workerd.h"

#define TICK_MS		1000
#define BUSY_MS		1	/* between two rounds while there is more: pipes and channels get their turn */
#define STALL_MS	1000	/* no acknowledgement for so long: the hub is not taking what we have */
#define SWEEP_A_TICK	256u
#define REVIVE_MAX	64u

/* May its output go to the disk? */
static bool
wanted(const struct workload *wl)
{
	const struct workerd *w = wl->w;

	return !w->spool.off && wl->rec.h != NULL && !workload_is_own(wl) &&
	    (!w->session || wl->stalled || output_overflow(wl) == CONF_OVERFLOW_DROP);
}

/* Everything held below this is in the spool. */
static uint64_t
spooled_to(const struct workload *wl)
{
	uint64_t end = spool_end(wl->spool);

	return end > wl->rec.h->tail ? end : wl->rec.h->tail;
}

static ssize_t
write_some(struct workload *wl, size_t most)
{
	const struct record_head *h = wl->rec.h;
	uint64_t from = spooled_to(wl), len = h->head - from;
	ssize_t n;

	if (wl->spool == NULL)
		wl->spool = spool_new(&wl->w->spool, wl->info.handle);
	if (wl->spool == NULL)
		fatal("out of memory");
	n = spool_write(wl->spool, from, record_at(&wl->rec, from), len < most ? (size_t)len : most,
	    h->hole != 0 ? h->hole : WORK_GAP_LOST, h->head);
	wl->spill_failed = n < 0;
	return n;
}

/* Frees what is in the spool as well. */
static void
release(struct workload *wl, uint64_t to)
{
	uint64_t end = spool_end(wl->spool);

	record_release(&wl->rec, to < end ? to : end);
	if (end >= wl->rec.h->tail)
		wl->rec.h->hole = 0;	/* nothing is missing below the tail any more */
}

static void
count_lost(struct workload *wl, uint64_t from, uint64_t to)
{
	if (wl->rec.h == NULL)
		wl->info.gaps++;
	workload_lost(wl, from, to);
	workchan_tell(wl);
}

/* The spool's oldest segment goes. What the ring still has of it is not lost. */
static bool
drop_oldest(struct workload *wl)
{
	uint64_t from, to, sent = wl->rec.h->sent;

	if (!spool_drop(wl->spool, WORK_GAP_SPOOL, &from, &to))
		return false;
	if (wl->spool->n == 0 && to >= wl->rec.h->tail)
		wl->rec.h->hole = WORK_GAP_SPOOL;
	to = to < wl->rec.h->tail ? to : wl->rec.h->tail;
	if (to > (from > sent ? from : sent))
		count_lost(wl, from > sent ? from : sent, to);
	return true;
}

uint32_t
spill_room(struct workload *wl, size_t need, bool drop)
{
	uint64_t to = wl->rec.h->tail + need;
	size_t most = need > SEGMENT_BLOCK ? need : SEGMENT_BLOCK;

	if (!wanted(wl))
		return WORK_GAP_MEMORY;
	for (;;) {
		ssize_t n = spooled_to(wl) < to ? write_some(wl, most) : 0;

		release(wl, to);
		if (wl->rec.h->tail >= to)
			return 0;
		if (n > 0 || (n == -ENOBUFS && drop && drop_oldest(wl)))
			continue;
		return n == -ENOBUFS ? WORK_GAP_SPOOL : WORK_GAP_DISK;
	}
}

bool
spill_helps(const struct workload *wl)
{
	return wanted(wl) && !wl->spill_failed;
}

/* ---- the second's work ---- */

static void
note_acks(struct workload *wl)
{
	monotime_t now = monotime_now();

	if (wl->rec.h->acked != wl->acked_seen || wl->acked_seen_at.ns == 0) {
		wl->acked_seen = wl->rec.h->acked;
		wl->acked_seen_at = now;
	} else if (wl->full && monotime_diff_ms(now, wl->acked_seen_at) >= STALL_MS) {
		wl->stalled = true;
	}
}

/* Ended, and all of it on the disk: the memory is free for others. */
static void
leave_memory(struct workload *wl)
{
	if (wl->state != ST_ENDED)
		return;
	if (wl->rec.h->tail < wl->rec.h->head) {
		release(wl, wl->rec.h->head);
		record_give_pages(&wl->rec);
	}
	if (wl->spool != NULL)
		spool_finish(wl->spool);
}

/* ms until this one needs to be looked at again, -1 = never. */
static int
work_on(struct workload *wl)
{
	if (wl->rec.h == NULL || workload_is_own(wl) || (wl->w->session && !wl->full))
		return -1;
	note_acks(wl);
	if (spooled_to(wl) < wl->rec.h->head) {
		if (!wanted(wl))
			return TICK_MS;
		if (write_some(wl, SEGMENT_WRITE) < 0) {
			spool_note(wl->spool, wl->rec.h->head);
			return TICK_MS;
		}
		if (spooled_to(wl) < wl->rec.h->head)
			return BUSY_MS;
	}
	leave_memory(wl);
	return -1;
}

static void
tick(struct loop_timer *timer)
{
	struct workerd *w = timer->ctx;
	int wait = w->up && spooldir_sweep(&w->spool, SWEEP_A_TICK) ? BUSY_MS : -1;

	/* Without a spool only what an earlier configuration left is swept: nothing wakes the process for more. */
	for (struct workload *wl = w->spool.off ? NULL : w->all.first, *next; wl != NULL; wl = next) {
		int ms = work_on(wl);

		next = wl->next;
		if (wl->full && output_again(wl) && ms < 0)
			ms = TICK_MS;
		if (ms >= 0 && (wait < 0 || ms < wait))
			wait = ms;
	}
	if (wait >= 0)
		loop_timer_set_ms(w->loop, timer, wait);
}

void
spill_note(const struct workload *wl)
{
	struct workerd *w = wl->w;

	if (!w->spool.off && (!w->session || wl->full) && !loop_timer_armed(&w->spill))
		loop_timer_set_ms(w->loop, &w->spill, TICK_MS);
}

void
spill_all(struct workerd *w)
{
	for (struct workload *wl = w->spool.off ? NULL : w->all.first; wl != NULL; wl = wl->next) {
		if (wl->rec.h == NULL || workload_is_own(wl))
			continue;
		while (spooled_to(wl) < wl->rec.h->head)
			if (write_some(wl, SEGMENT_WRITE) < 0)
				break;
		if (spooled_to(wl) < wl->rec.h->head)
			spool_note(wl->spool, wl->rec.h->head);
	}
}

/* ---- from an earlier life, and the end ---- */

void
spill_open(struct workerd *w, int statefd)
{
	loop_timer_init(&w->spill, tick, w);
	spooldir_open(&w->spool, statefd, &w->conf);
}

void
spill_close(struct workerd *w)
{
	spooldir_close(&w->spool);
}

void
spill_adopt(struct workload *wl)
{
	if (wl->w->spool.fd < 0)
		return;
	wl->spool = spool_adopt(&wl->w->spool, wl->info.handle, wl->rec.h != NULL ? wl->rec.h->tail : UINT64_MAX);
	if (wl->spool != NULL && wl->rec.h != NULL)
		spool_ack(wl->spool, wl->rec.h->acked);
	spill_note(wl);
}

void
spill_settle(struct workerd *w)
{
	const struct spool_file *f;
	unsigned n = 0;

	for (size_t i = 0; i < w->spool.nfound && n < REVIVE_MAX; i++) {
		struct journal_record rec = { .type = JOURNAL_STARTED };

		f = &w->spool.found[i];
		if (f->taken || journal_seen(&w->journal, f->handle) || workload_by_handle(w, f->handle) != NULL)
			continue;
		log_warn("spool of %s: nothing else is known of it: it is reported as lost", f->handle);
		memcpy(rec.handle, f->handle, sizeof(f->handle));
		workload_from_journal(w, &rec);
		n++;
	}
	if (!w->spool.off || w->spool.nfound > 0)
		loop_timer_set_ms(w->loop, &w->spill, TICK_MS);
}

void
spill_ack(struct workload *wl, uint64_t offset)
{
	wl->stalled = wl->spill_failed = false;
	if (wl->spool != NULL)
		spool_ack(wl->spool, offset);
}

void
spill_forget(struct workload *wl)
{
	spool_delete(wl->spool);
	wl->spool = NULL;
}

/* ---- reading ---- */

static uint32_t
hole_reason(const struct workload *wl, uint64_t offset)
{
	const struct record_head *h = wl->rec.h;

	if (h == NULL)
		return WORK_GAP_LOST;
	if (h->hole != 0)
		return h->hole;
	return wl->w->spool.fd >= 0 && offset >= h->acked ? WORK_GAP_LOST : WORK_GAP_MEMORY;
}

void
spill_at(struct workload *wl, uint64_t offset, struct retained *ret)
{
	const struct record_head *h = wl->rec.h;
	uint64_t head = workload_head(wl), tail = h != NULL ? h->tail : head;
	bool lost = false;

	if (offset >= tail) {
		*ret = (struct retained){ .data = record_at(&wl->rec, offset), .len = head - offset };
		return;
	}
	if (wl->spool == NULL || !spool_at(wl->spool, offset, ret, &lost) || ret->gap_to > tail)
		*ret = (struct retained){ .gap_to = tail, .reason = hole_reason(wl, offset) };
	if (lost)
		count_lost(wl, offset, ret->gap_to);
}
