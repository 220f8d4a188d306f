#include "workerd/workload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "proto/ipc/harness.h"
#include "workerd/control.h"
#include "workerd/launchchan.h"
#include "workerd/leases.h"
#include "workerd/life.h"
#include "workerd/output.h"
#include "workerd/result.h"
#include "workerd/spill.h"
#include "workerd/stage.h"
#include "workerd/vault.h"
#include "workerd/workerd.h"

static struct workload **
wid_chain(struct workerd *w, uint32_t wid)
{
	return &w->all.by_wid[wid % WORKLOAD_BUCKETS];
}

static struct workload **
handle_chain(struct workerd *w, const char *handle)
{
	return &w->all.by_handle[journal_key(handle) % WORKLOAD_BUCKETS];
}

struct workload *
workload_by_wid(const struct workerd *w, uint32_t wid)
{
	struct workload *wl = w->all.by_wid[wid % WORKLOAD_BUCKETS];

	while (wl != NULL && wl->info.wid != wid)
		wl = wl->next_wid;
	return wl;
}

struct workload *
workload_by_handle(const struct workerd *w, const char *handle)
{
	struct workload *wl = w->all.by_handle[journal_key(handle) % WORKLOAD_BUCKETS];

	while (wl != NULL && strcmp(wl->info.handle, handle) != 0)
		wl = wl->next_handle;
	return wl;
}

struct workload *
workload_add(struct workerd *w, const char *handle, enum state state)
{
	struct workload *wl = calloc(1, sizeof(*wl)), **chain;

	if (wl == NULL)
		return NULL;
	wl->w = w;
	wl->state = state;
	wl->rec.fd = wl->rec.report = -1;
	if (++w->all.last_wid == 0)
		w->all.last_wid = 1;
	wl->info.wid = w->all.last_wid;
	snprintf(wl->info.handle, sizeof(wl->info.handle), "%s", handle);
	life_init(wl);
	output_init(wl);
	stage_init(wl);
	wl->prev = w->all.last;
	if (w->all.last != NULL)
		w->all.last->next = wl;
	else
		w->all.first = wl;
	w->all.last = wl;
	chain = wid_chain(w, wl->info.wid);
	wl->next_wid = *chain;
	*chain = wl;
	chain = handle_chain(w, handle);
	wl->next_handle = *chain;
	*chain = wl;
	w->all.counts[state]++;
	return wl;
}

static void
take_out(struct workload *wl)
{
	struct workerd *w = wl->w;
	struct workload **p = wid_chain(w, wl->info.wid);

	while (*p != wl)
		p = &(*p)->next_wid;
	*p = wl->next_wid;
	p = handle_chain(w, wl->info.handle);
	while (*p != wl)
		p = &(*p)->next_handle;
	*p = wl->next_handle;
	*(wl->prev != NULL ? &wl->prev->next : &w->all.first) = wl->next;
	*(wl->next != NULL ? &wl->next->prev : &w->all.last) = wl->prev;
	if (w->pump_next == wl)
		w->pump_next = wl->next;
	w->all.counts[wl->state]--;
}

/* ended: else its record and vault are the next workerd's. */
static void
let_go(struct workload *wl, bool ended)
{
	struct workerd *w = wl->w;

	take_out(wl);
	control_gone(wl);
	loop_timer_del(w->loop, &wl->timer);
	loop_timer_del(w->loop, &wl->refuse_timer);
	free(wl->result);
	output_close(wl);
	spool_free(wl->spool);
	ipc_chan_done(&wl->init);
	attach_workload_ended(wl);
	leases_ended(wl);
	if (ended) {
		vault_free(wl);
		record_free(&w->spares, &wl->rec);
	} else {
		vault_close(wl);
		record_close(&wl->rec);
	}
	free(wl);
}

void
workload_free(struct workload *wl)
{
	let_go(wl, true);
}

void
workloads_done(struct workerd *w)
{
	while (w->all.first != NULL)
		let_go(w->all.first, false);
}

bool
workload_is_own(const struct workload *wl)
{
	return strncmp(wl->info.handle, HARNESS_HANDLE, sizeof(HARNESS_HANDLE) - 1) == 0;
}

uint64_t
workload_tail(const struct workload *wl)
{
	uint64_t tail = wl->rec.h != NULL ? wl->rec.h->tail : wl->info.produced;

	return wl->spool != NULL && wl->spool->n > 0 && spool_from(wl->spool) < tail ? spool_from(wl->spool) : tail;
}

uint64_t
workload_in_memory(const struct workload *wl)
{
	return wl->rec.h != NULL ? wl->rec.h->head - wl->rec.h->tail : 0;
}

uint64_t
workload_head(const struct workload *wl)
{
	return wl->rec.h != NULL ? wl->rec.h->head : wl->info.produced;
}

static void
count(struct workload *wl, uint64_t lost)
{
	if (!workload_is_own(wl))	/* no hub waits for its output */
		wl->w->gap_bytes += lost;
}

void
workload_lost(struct workload *wl, uint64_t from, uint64_t to)
{
	uint64_t before;
	int more;

	if (wl->rec.h == NULL) {
		count(wl, lostset_add(&wl->lost, from, to, &more));	/* its gaps are known from the start */
		return;
	}
	before = wl->rec.h->gap_bytes;
	record_count_gap(&wl->rec, from, to);
	count(wl, wl->rec.h->gap_bytes - before);
}

void
workload_drop(struct workload *wl, uint64_t offset)
{
	uint64_t before = wl->rec.h->gap_bytes;

	record_drop(&wl->rec, offset, wl->rec.h->sent);
	count(wl, wl->rec.h->gap_bytes - before);
}

void
workload_info(const struct workload *wl, struct work_workload *ret_info)
{
	*ret_info = wl->info;
	ret_info->state = wl->state == ST_ENDED ? WORK_ENDED : stage_is_before(wl) || (wl->state <= ST_HELD && !stage_is_after(wl)) ?
	    WORK_PENDING : WORK_RUNNING;
	if (wl->result != NULL && wl->state == ST_ENDED)
		ret_info->flags |= WORK_F_RESULT;
	ret_info->produced = workload_head(wl);
	ret_info->retained_from = workload_tail(wl);
	if (wl->rec.h == NULL)
		return;
	ret_info->gaps = wl->rec.h->gaps;
	if ((wl->rec.h->flags & RECORD_F_DISOWNED) != 0)
		ret_info->flags |= WORK_F_DISOWNED;
}

/* A damaged record, or none: what remains is that it ends, and that nobody knows how. */
static void
adopt_damaged(struct workload *wl)
{
	snprintf(wl->info.error, sizeof(wl->info.error), "its record was damaged");
	if (!wl->delivered)	/* else workerd was killed before the launcher forgot it: its record may be another one's by now */
		log_error("record of %s is damaged: the workload is ended", wl->info.handle);
	spill_adopt(wl);
	wl->info.produced = spool_produced(wl->spool);
	launchchan_kill(wl);
}

/* A stage has ended, the next is in the record and was not asked for, or the launcher has not heard of it. */
static int
adopt_between(struct workload *wl, const struct launch_held *held)
{
	if (held->ended == 0) {
		adopt_damaged(wl);
		return 0;
	}
	spill_adopt(wl);
	wl->w->all.counts[wl->state]--;
	wl->state = ST_ACCEPTED;
	wl->w->all.counts[wl->state]++;
	return stage_catch_up(wl);
}

int
workload_adopt(struct workerd *w, const struct launch_held *held, int fds[4])
{
	struct workload *wl = workload_add(w, held->handle, ST_HELD);
	struct launch_report rep;
	int r;

	if (wl == NULL)
		return -ENOMEM;
	wl->held = true;
	wl->delivered = workload_is_own(wl) || journal_seen(&w->journal, held->handle);
	r = record_adopt(fds[2], fds[3], held->handle, fds[0], &wl->rec);
	if (r == 0 && (r = vault_adopt(wl, fds[0])) < 0) {
		vault_free(wl);
		record_free(NULL, &wl->rec);	/* it owns the descriptors by now */
		fds[2] = fds[3] = -1;
		r = -EBADMSG;
	}
	if (r == -EBADMSG) {
		adopt_damaged(wl);
		return 0;
	}
	if (r < 0)
		return r;
	fds[2] = fds[3] = -1;
	if (held->stage != wl->rec.h->stage)
		return adopt_between(wl, held);
	r = launchchan_init(wl, take_fd(&fds[1]));
	if (r == 0)
		r = output_open(wl, take_fd(&fds[0]));
	if (r < 0)
		return r;
	spill_adopt(wl);
	wl->awaited = (wl->rec.h->flags & RECORD_F_FINAL) != 0;
	w->awaited += wl->awaited;
	record_report(&wl->rec, &rep);
	if ((rep.flags & LAUNCH_REPORT_STARTED) != 0 && stage_of(wl) == STAGE_PAYLOAD)
		workload_event(wl, EV_STARTED);
	life_resume(wl);
	output_resume(wl);
	return 0;
}

static enum work_outcome
outcome_of(const struct journal_record *rec)
{
	return rec->type == JOURNAL_ENDED ? (enum work_outcome)rec->outcome : WORK_OUTCOME_LOST;
}

void
workload_from_journal(struct workerd *w, const struct journal_record *rec)
{
	struct workload *wl = workload_add(w, rec->handle, ST_ENDED);

	if (wl == NULL)
		return;
	wl->journaled_end = rec->type == JOURNAL_ENDED;
	wl->info.outcome = (uint8_t)outcome_of(rec);
	wl->info.started_at = rec->started_at;
	wl->info.finished_at = rec->finished_at != 0 ? rec->finished_at : monotime_wall_ns();
	wl->info.exit_code = rec->exit_code;
	wl->info.term_signal = rec->term_signal;
	wl->info.flags = rec->flags & (WORK_F_DIGEST | WORK_F_DISOWNED);
	memcpy(wl->info.log_xxh3, rec->xxh3, sizeof(wl->info.log_xxh3));
	/* What was in memory is gone, what is in the spool is delivered; each block there knows how much there was by then. */
	spill_adopt(wl);
	wl->info.produced = rec->produced;
	if (wl->info.outcome == WORK_OUTCOME_LOST && spool_produced(wl->spool) > rec->produced)
		wl->info.produced = spool_produced(wl->spool);
	wl->info.gaps = spool_holes(wl->spool) + (wl->info.produced > spool_end(wl->spool));
	/* An end that was known reads the same as before; what is missing of its output is told by a gap. */
	if (wl->info.outcome == WORK_OUTCOME_LOST)
		snprintf(wl->info.error, sizeof(wl->info.error), "lost: the launcher or the device was restarted");
	if (wl->info.outcome != WORK_OUTCOME_LOST)
		result_load(wl);
	life_from_journal(wl);
}

int
workload_compact(struct workerd *w)
{
	size_t n = 0, size = 0;
	_cleanup_free_ struct journal_record *recs = NULL;

	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		size++;
	recs = calloc(size + 1, sizeof(*recs));
	if (recs == NULL)
		return -ENOMEM;
	for (struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		if (!workload_is_own(wl))
			life_record(wl, wl->state == ST_ENDED ? JOURNAL_ENDED : JOURNAL_STARTED, &recs[n++]);
	return journal_rewrite(&w->journal, recs, n);
}
