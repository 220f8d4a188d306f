/* The other half of output.h: from the ring and the spool to connectd, as far as it has given credit. */
#include <errno.h>
#include <string.h>

#include "workerd/output.h"
#include "workerd/spill.h"
#include "workerd/stage.h"
#include "workerd/workchan.h"
#include "workerd/workerd.h"

#define SEND_A_TURN	4u		/* records of one workload */

/* ---- ring to connectd ---- */

static void
sent_to(struct workload *wl, uint64_t offset)
{
	wl->cursor = offset;
	if (wl->rec.h != NULL && wl->rec.h->sent < offset)
		wl->rec.h->sent = offset;
}

/* Where the hub has less than connectd was given, what is gone of the rest is lost, too: only now that is known. */
static void
gap_told(struct workload *wl, uint64_t to)
{
	uint64_t from = wl->cursor;
	uint32_t gaps = wl->rec.h != NULL ? wl->rec.h->gaps : 0;

	sent_to(wl, to);
	workload_lost(wl, from, to);
	if (wl->rec.h != NULL && wl->rec.h->gaps != gaps)
		workchan_tell(wl);
}

static int
send_gap(struct workload *wl, uint64_t to, uint32_t reason)
{
	struct work_gap gap = { .wid = wl->info.wid, .epoch = wl->epoch, .from = wl->cursor, .to = to, .reason = reason };
	struct iovec iov = { &gap, sizeof(gap) };
	int r = ipc_try_sendv(&wl->w->work, WORK_EV_GAP, &iov, 1);

	if (r == 0)
		gap_told(wl, to);
	return r;
}

static int
send_data(struct workload *wl, const uint8_t *data, uint64_t len)
{
	uint64_t n = len < wl->w->max_data ? len : wl->w->max_data;
	struct work_output head = { .wid = wl->info.wid, .epoch = wl->epoch, .offset = wl->cursor };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)data, (size_t)n } };
	int r = ipc_try_sendv(&wl->w->work, WORK_EV_OUTPUT, iov, 2);

	if (r == 0)
		sent_to(wl, wl->cursor + n);
	return r;
}

static int
send_end(struct workload *wl)
{
	struct work_output_end end = { .wid = wl->info.wid, .epoch = wl->epoch, .total = workload_head(wl),
		.has_digest = (wl->info.flags & WORK_F_DIGEST) != 0 };
	struct iovec iov = { &end, sizeof(end) };
	int r;

	memcpy(end.xxh3, wl->info.log_xxh3, sizeof(end.xxh3));
	r = ipc_try_sendv(&wl->w->work, WORK_EV_OUTPUT_END, &iov, 1);
	wl->end_sent = r == 0;
	return r;
}

/* One record. 1 = sent, 0 = there is nothing to send, -EAGAIN and other errors: not now. */
static int
send_one(struct workload *wl)
{
	uint64_t head = workload_head(wl);
	struct retained at;
	int r;

	if (!wl->subscribed || wl->end_sent)
		return 0;
	if (wl->cursor >= head) {
		if (wl->state != ST_ENDED)
			return 0;
		r = send_end(wl);
		return r == 0 ? 1 : r;
	}
	if (wl->cursor >= wl->limit && wl->rec.h != NULL && wl->cursor >= wl->rec.h->tail)
		return 0;
	spill_at(wl, wl->cursor, &at);
	if (at.len == 0)
		r = send_gap(wl, at.gap_to, at.reason);	/* whatever the limit is */
	else if (wl->cursor < wl->limit)
		r = send_data(wl, at.data, at.len < wl->limit - wl->cursor ? at.len : wl->limit - wl->cursor);
	else
		return 0;
	return r == 0 ? 1 : r;
}

void
output_send(struct workload *wl)
{
	unsigned n = 0;
	int r = 1;

	while (!wl->w->blocked && r > 0 && n++ < 2 * SEND_A_TURN) {
		r = send_one(wl);
		wl->w->blocked = r == -EAGAIN;
	}
	/* There may be more, and nothing else that would come back here: what it wrote is all in the ring or the spool. */
	if (r > 0 && !wl->w->blocked)
		loop_timer_set_ms(wl->w->loop, &wl->w->pump, 0);
	stage_sent(wl);
}

void
output_send_all(struct workerd *w)
{
	struct workload *wl = w->pump_next != NULL ? w->pump_next : w->all.first;
	uint32_t idle = 0, n = 0;

	for (struct workload *p = w->all.first; p != NULL; p = p->next)
		n++;
	while (wl != NULL && !w->blocked && idle < n) {
		int r = 1;

		for (unsigned i = 0; i < SEND_A_TURN && r > 0; i++)
			r = send_one(wl);
		w->blocked = r == -EAGAIN;
		stage_sent(wl);
		idle = r > 0 ? 0 : idle + 1;
		wl = wl->next != NULL ? wl->next : w->all.first;
	}
	w->pump_next = wl;
}

void
output_send_later(struct loop_timer *timer)
{
	output_send_all(timer->ctx);
}

void
output_sub(struct workload *wl, const struct work_sub *sub)
{
	/* What the hub has was produced, even where the count of it died with the launcher. */
	if (wl->rec.h == NULL && wl->info.outcome == WORK_OUTCOME_LOST && sub->from > wl->info.produced) {
		wl->info.produced = sub->from;
		workchan_tell(wl);
	}
	wl->subscribed = true;
	wl->end_sent = false;
	wl->epoch = sub->epoch;
	sent_to(wl, sub->from < workload_head(wl) ? sub->from : workload_head(wl));
	wl->limit = sub->limit;
	output_send(wl);
}

void
output_credit(struct workload *wl, const struct work_sub *sub)
{
	if (!wl->subscribed || sub->epoch != wl->epoch || sub->limit <= wl->limit)
		return;
	wl->limit = sub->limit;
	output_send(wl);
}
