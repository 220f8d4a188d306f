#include "connectd/logsend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/edgeward1.h"
#include "connectd/logcloop.h"

#define HEAD		sizeof(struct work_output)
#define WAIT_SIZE	(HEAD + LOGCLOOP_ROOM + WORK_DATA_MAX)
#define CREDIT_STEP	(384u * 1024)	/* smaller news are not worth a record, unless workerd is about to run dry */
#define ACK_STEP	(384u * 1024)	/* most ride on a credit; less where workerd holds little: it waits for these */
#define LATE_ACK_MS	50		/* smaller news wait so long for company */
#define DISCARD_STEP	(256u * 1024)

static_assert(sizeof(struct work_output) == STREAM_HEADER, "the stream header is written over the record's head");

void
logsend_init(struct logsend *ls, struct hubconn *conn, struct workchan *work, struct mirror *mirror, bool edgeward1,
    uint64_t retain, const struct logsend_ops *ops, void *ctx)
{
	*ls = (struct logsend){ .conn = conn, .work = work, .mirror = mirror, .edgeward1 = edgeward1, .ops = ops,
		.ctx = ctx, .version = 1, .acks_due = MONOTIME_NEVER, .next_channel = 2, .ack_step = retain / 8 * 3 < ACK_STEP ? retain / 8 * 3 : ACK_STEP };
}

static void
pause_reading(struct logsend *ls, bool paused)
{
	ls->paused = paused;
	workchan_pause(ls->work, paused);
}

void
logsend_done(struct logsend *ls)
{
	logsend_rx_unused(ls);
	if (ls->paused)
		pause_reading(ls, false);
	free(ls->wait_buf);
	ls->wait_buf = NULL;
	ls->wait_for = NULL;
}

/* A small frame; the link refusing it is the end of the session. */
static void
send_small(struct logsend *ls, const uint8_t *frame, size_t len)
{
	int r = hubconn_send_binary(ls->conn, frame, len);

	if (r < 0)
		ls->ops->failed(r, ls->ctx);
}

/* ---- credit ---- */

/* workerd is told when the step is worth a record, or when it is about to run dry. */
static void
give_credit(struct logsend *ls, struct mirror_entry *e)
{
	struct mirror_log *log = &e->log;

	if (!log->open || log->limit <= log->told ||
	    (log->limit - log->told < CREDIT_STEP && log->told - log->cursor >= WORK_DATA_MAX))
		return;
	if (workchan_credit(ls->work, e, log->limit) < 0)
		return;
	log->told = log->limit;
	log->ack_told = e->acked;
}

/* The cloop window begins at what the hub has, or where this session began, or behind a gap it has not seen yet. */
static void
cloop_limit(struct mirror_entry *e)
{
	uint64_t base = e->acked > e->log.floor ? e->acked : e->log.floor;

	if (base + LOGSEND_CLOOP_WINDOW > e->log.limit)
		e->log.limit = base + LOGSEND_CLOOP_WINDOW;
}

/* workerd frees what it retains up to here. */
static void
pass_ack(struct logsend *ls, struct mirror_entry *e)
{
	uint64_t offset = e->log.discard ? e->log.cursor : e->acked;

	if (offset > 0 && workchan_ack(ls->work, e, offset) == 0)
		e->log.ack_told = offset;
}

/*
 * Says what is acknowledged as well: the last word of it may have gone to a workerd that died before it read it, or have come while
 * nothing was open. A workload that waits for just this room writes nothing that would bring the next one.
 */
static void
subscribe(struct logsend *ls, struct mirror_entry *e)
{
	struct mirror_log *log = &e->log;

	e->epoch++;
	log->nheld = 0;
	log->ended = false;
	if (workchan_sub(ls->work, e, log->cursor, log->limit) == 0)
		log->told = log->limit;
	pass_ack(ls, e);
}

uint32_t
logsend_new_channel(struct logsend *ls)
{
	uint32_t channel = ls->next_channel;

	if (channel != 0)
		ls->next_channel += 2;	/* to 0 behind the last */
	return channel;
}

void
logsend_assign(struct logsend *ls, struct mirror_entry *e)
{
	if (ls->edgeward1 && ls->next_channel != 0)
		mirror_set_channel(ls->mirror, e, logsend_new_channel(ls));
}

void
logsend_open(struct logsend *ls, struct mirror_entry *e, uint64_t from, bool announce)
{
	struct mirror_log *log = &e->log;

	if (log->open)
		return;
	if (ls->edgeward1 && log->channel == 0)
		logsend_assign(ls, e);
	if (ls->edgeward1 && announce)
		ls->ops->announce(e, ls->ctx);
	log->open = true;
	log->cursor = log->floor = from;
	log->limit = from + STREAM_WINDOW;
	if (!ls->edgeward1)
		cloop_limit(e);
	log->retry_at = MONOTIME_NEVER;
	ls->nopen++;
	subscribe(ls, e);
}

void
logsend_close(struct logsend *ls, struct mirror_entry *e)
{
	if (ls->wait_for == e) {
		ls->wait_for = NULL;
		pause_reading(ls, false);
	}
	if (e->log.open)
		ls->nopen--;
	e->log.open = false;
}

void
logsend_discard(struct logsend *ls, struct mirror_entry *e)
{
	struct mirror_log *log = &e->log;

	if (log->discard)
		return;
	logsend_close(ls, e);
	mirror_set_channel(ls->mirror, e, 0);
	log->discard = log->open = true;
	log->limit = UINT64_MAX;
	log->retry_at = MONOTIME_NEVER;
	ls->nopen++;
	subscribe(ls, e);
}

void
logsend_resubscribe(struct logsend *ls)
{
	for (struct mirror_entry *e = ls->mirror->head; e != NULL; e = e->next)
		if (e->log.open && !e->log.ended) {
			/* A held beginning of a character was counted as taken; it comes again. */
			e->log.cursor -= e->log.nheld;
			subscribe(ls, e);
		}
}

/* ---- from the hub ---- */

void
logsend_window(struct logsend *ls, uint32_t channel, uint64_t offset)
{
	struct mirror_entry *e = mirror_by_channel(ls->mirror, channel);

	if (e == NULL || !e->log.open || e->log.discard || offset <= e->log.limit)
		return;
	e->log.limit = offset;
	ls->ops->later(0, ls->ctx);	/* the acknowledgement is often right behind it and rides along */
}

void
logsend_acked(struct logsend *ls, struct mirror_entry *e, uint64_t offset)
{
	if (!e->log.open || e->log.discard)
		return;
	/* Nothing beyond what was sent can have been received. */
	if (offset > e->log.cursor)
		offset = e->log.cursor;
	if (offset <= e->acked)
		return;
	e->acked = offset;
	e->log.retries = 0;
	if (!ls->edgeward1)
		cloop_limit(e);
	if (ls->acks_due.ns == INT64_MAX)
		ls->acks_due = monotime_add_ms(monotime_now(), LATE_ACK_MS);
	ls->ops->later(!ls->edgeward1 || offset - e->log.ack_told >= ls->ack_step ? 0 : LATE_ACK_MS, ls->ctx);
}

/* "Gone" is an answer for good: what is left is thrown away. Everything else may pass; a fresh channel is tried later. */
void
logsend_reset(struct logsend *ls, uint32_t channel, enum stream_reset code)
{
	struct mirror_entry *e = mirror_by_channel(ls->mirror, channel);
	int64_t wait = 1000;

	if (e == NULL)
		return;
	if (code == STREAM_RESET_GONE) {
		logsend_discard(ls, e);
		return;
	}
	for (unsigned i = 0; i < e->log.retries && wait < 60000; i++)
		wait *= 2;
	logsend_close(ls, e);
	mirror_set_channel(ls->mirror, e, 0);
	if (e->log.retries < UINT8_MAX)
		e->log.retries++;
	e->log.retry_at = monotime_add_ms(monotime_now(), wait);
}

int64_t
logsend_due(struct logsend *ls)
{
	monotime_t now = monotime_now(), next;
	uint64_t step = monotime_before(now, ls->acks_due) ? ls->ack_step : 1;

	if (step == 1)
		ls->acks_due = MONOTIME_NEVER;
	next = ls->acks_due;
	for (struct mirror_entry *e = ls->mirror->head; e != NULL; e = e->next) {
		give_credit(ls, e);
		if (e->log.open && !e->log.discard && e->acked >= e->log.ack_told + step)
			pass_ack(ls, e);
		if (e->log.retry_at.ns == INT64_MAX)
			continue;
		if (!monotime_before(now, e->log.retry_at))
			logsend_open(ls, e, e->acked, true);
		else if (monotime_before(e->log.retry_at, next))
			next = e->log.retry_at;
	}
	return next.ns == INT64_MAX ? -1 : monotime_diff_ms(next, now) + 1;
}

/* ---- from workerd ---- */

uint8_t *
logsend_rx_buffer(struct logsend *ls)
{
	if (!ls->edgeward1 || ls->nopen == 0)
		return NULL;
	if (ls->bulk == NULL)
		ls->bulk = hubconn_bulk_begin(ls->conn, IPC_MAX_WORK);
	return ls->bulk;
}

void
logsend_rx_unused(struct logsend *ls)
{
	if (ls->bulk == NULL)
		return;
	ls->bulk = NULL;
	hubconn_bulk_commit(ls->conn, 0);
}

/* Keeps bytes that end at offset end until the link has room; until then nothing more is read. */
static int
keep(struct logsend *ls, struct mirror_entry *e, const uint8_t *data, size_t len, uint64_t end)
{
	if (ls->wait_buf == NULL)
		ls->wait_buf = malloc(WAIT_SIZE);
	if (ls->wait_buf == NULL)
		return -ENOMEM;
	memmove(ls->wait_buf + HEAD, data, len);
	ls->wait_for = e;
	ls->wait_len = len;
	ls->wait_end = end;
	pause_reading(ls, true);
	return 0;
}

/* One DATA frame of the bytes at rec + HEAD. 1 = sent, 0 = no room. */
static int
send_data(struct logsend *ls, struct mirror_entry *e, uint8_t *rec, size_t len, uint64_t end)
{
	uint8_t *p = rec;

	if (rec != ls->bulk) {
		logsend_rx_unused(ls);
		p = hubconn_bulk_begin(ls->conn, HEAD + len);
		if (p == NULL)
			return 0;
		memcpy(p + HEAD, rec + HEAD, len);
	}
	ls->bulk = NULL;
	stream_put_header(p, STREAM_DATA, e->log.channel, end - len);
	hubconn_bulk_commit(ls->conn, HEAD + len);
	return 1;
}

/* 0, or -ENOMEM when it can neither be sent nor kept. */
static int
forward(struct logsend *ls, struct mirror_entry *e, uint8_t *rec, size_t len, uint64_t end)
{
	size_t left;

	if (ls->edgeward1)
		return send_data(ls, e, rec, len, end) ? 0 : keep(ls, e, rec + HEAD, len, end);
	left = logcloop_send(ls->conn, ls->version, e, rec + HEAD, len, end, false);
	return left == 0 ? 0 : keep(ls, e, rec + HEAD + len - left, left, end);
}

/* The held beginning of a character gets no rest any more. */
static int
release_held(struct logsend *ls, struct mirror_entry *e)
{
	uint8_t none[LOGCLOOP_ROOM + 1], *p = none + LOGCLOOP_ROOM;
	size_t left = logcloop_send(ls->conn, ls->version, e, p, 0, e->log.cursor, true);

	return left == 0 ? 0 : keep(ls, e, p - left, left, e->log.cursor);
}

/* Much is queued: write it now rather than at the end of the turn. */
static void
relieve(struct logsend *ls)
{
	if (ls->wait_for == NULL && hubconn_queued(ls->conn) >= LOGSEND_HIGH)
		hubconn_flush(ls->conn);
}

static void
throw_away(struct logsend *ls, struct mirror_entry *e)
{
	if (e->log.cursor - e->log.ack_told < DISCARD_STEP && !e->log.ended && e->w.produced > e->log.cursor)
		return;
	pass_ack(ls, e);
}

int
logsend_output(struct logsend *ls, struct mirror_entry *e, uint8_t *rec, size_t len)
{
	struct mirror_log *log = &e->log;
	struct work_output o;
	int r;

	memcpy(&o, rec, sizeof(o));
	if (!log->open)
		return 0;
	if (log->ended || o.offset != log->cursor || len > log->told - log->cursor)
		return -EPROTO;
	log->cursor += len;
	if (log->discard) {
		throw_away(ls, e);
		return 0;
	}
	r = forward(ls, e, rec, len, log->cursor);
	if (r < 0)
		return r;
	give_credit(ls, e);
	relieve(ls);
	return 0;
}

int
logsend_gap(struct logsend *ls, struct mirror_entry *e, const struct work_gap *gap)
{
	struct mirror_log *log = &e->log;
	uint8_t frame[EDGEWARD1_SMALL];
	int r = 0;

	if (!log->open)
		return 0;
	if (log->ended || gap->from != log->cursor)
		return -EPROTO;
	if (ls->edgeward1 && !log->discard)
		send_small(ls, frame, edgeward1_gap(frame, log->channel, gap->from, gap->to, (uint8_t)gap->reason));
	else if (log->nheld > 0)
		r = release_held(ls, e);
	log->cursor = log->floor = gap->to;
	if (log->told < gap->to)
		log->told = gap->to;
	if (!ls->edgeward1)
		cloop_limit(e);
	give_credit(ls, e);
	return r;
}

int
logsend_output_end(struct logsend *ls, struct mirror_entry *e, const struct work_output_end *end)
{
	struct mirror_log *log = &e->log;
	int r = 0;

	if (!log->open)
		return 0;
	/* The count of a lost workload may have died with the launcher: what was sent is then all there is, without a proof. */
	if (log->ended || end->total > log->cursor || (end->total < log->cursor && e->w.outcome != WORK_OUTCOME_LOST))
		return -EPROTO;
	if (log->nheld > 0)
		r = release_held(ls, e);
	log->ended = true;
	log->total = log->cursor;
	log->has_digest = end->has_digest == 1 && end->total == log->cursor;
	memcpy(log->xxh3, end->xxh3, sizeof(log->xxh3));
	if (log->discard)
		throw_away(ls, e);
	return r;
}

/* ---- to the link ---- */

void
logsend_writable(struct logsend *ls)
{
	struct mirror_entry *e = ls->wait_for;

	if (e == NULL)
		return;
	ls->wait_for = NULL;
	/* What still finds no room is kept again; that cannot fail, the buffer exists. */
	forward(ls, e, ls->wait_buf, ls->wait_len, ls->wait_end);
	if (ls->wait_for == NULL)
		pause_reading(ls, false);
}

bool
logsend_complete(const struct logsend *ls, const struct mirror_entry *e)
{
	return e->log.open && e->log.ended && ls->wait_for != e;
}

void
logsend_end(struct logsend *ls, struct mirror_entry *e)
{
	uint8_t frame[EDGEWARD1_SMALL];

	if (ls->edgeward1 && !e->log.discard && e->log.channel != 0)
		send_small(ls, frame, edgeward1_end(frame, e->log.channel, e->log.total,
		    e->log.has_digest ? e->log.xxh3 : NULL));
}
