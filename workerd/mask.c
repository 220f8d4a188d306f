/*
 * The way of the output of a workload that has secrets: pipe, inner record, automaton, ring. The inner record is read as any
 * other (record.h); what of it is done with and what that made of the ring change at one stroke (record_commit), so that a
 * workerd killed at any instruction shows nothing twice and nothing that should be masked. No output is counted, sent, kept or
 * hashed before it has been here.
 *
 * Who calls: output.c, within the loop. Out of memory is fatal: what cannot be judged must not be shown.
 */
#include <string.h>

#include "common/log.h"
#include "workerd/control.h"
#include "workerd/output.h"
#include "workerd/vault.h"
#include "workerd/workerd.h"

#define QUIET_MS	2000

static void
note(struct workload *wl, ssize_t n)
{
	struct vault *v = wl->vault;
	const struct record_seam seam = { .from = v->scan.from, .out = v->scan.out, .masked = v->scan.masked };

	if (n < 0)
		fatal("out of memory");
	record_commit(&wl->rec, (size_t)n, &seam);
	record_release(&v->raw, v->scan.from);
}

bool
mask_move(struct workload *wl)
{
	struct vault *v = wl->vault;
	struct redact_scan *s = &v->scan;
	uint64_t at = s->at, before;
	bool moved = false;
	ssize_t n;

	do {
		size_t room = record_room(&wl->rec);

		before = s->out;
		if (room == 0 || s->from == v->raw.h->head)
			break;
		n = redact_run(v->redact, s, record_at(&v->raw, s->from), (size_t)(v->raw.h->head - s->from), record_end(&wl->rec), room);
		note(wl, n);
		moved = moved || n > 0;
	} while (s->out != before);
	if (redact_is_idle(s))
		loop_timer_del(wl->w->loop, &v->quiet);
	else if (s->at != at)
		loop_timer_set_ms(wl->w->loop, &v->quiet, QUIET_MS);
	return moved;
}

static bool
flush(struct workload *wl, bool final)
{
	struct vault *v = wl->vault;
	ssize_t n = 0;

	if (record_room(&wl->rec) > 0 && !redact_is_idle(&v->scan)) {
		n = redact_flush(v->redact, &v->scan, record_at(&v->raw, v->scan.from), final, record_end(&wl->rec), record_room(&wl->rec));
		note(wl, n);
	}
	return n > 0;
}

bool
mask_end(struct workload *wl)
{
	const struct vault *v = wl->vault;

	do
		mask_move(wl);
	while (flush(wl, true));
	return v->scan.at == v->raw.h->head && redact_is_idle(&v->scan);
}

bool
mask_waits(const struct workload *wl)
{
	const struct vault *v = wl->vault;

	return v->scan.at < v->raw.h->head || redact_is_due(v->redact, &v->scan);
}

static void
quiet_over(struct loop_timer *timer)
{
	struct workload *wl = timer->ctx;

	if (!flush(wl, false))
		return;
	output_send(wl);
	control_output(wl);
}

void
mask_init(struct workload *wl)
{
	loop_timer_init(&wl->vault->quiet, quiet_over, wl);
}

void
mask_done(struct workload *wl)
{
	loop_timer_del(wl->w->loop, &wl->vault->quiet);
}
