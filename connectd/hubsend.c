/*
 * Sending. Messages go into one queue and leave at the end of the loop's turn, 64 KiB and more of bulk at once.
 *
 * Write deadline: while something waits to leave, the peer has to acknowledge HUBCONN_PROGRESS_MIN bytes within
 * write_timeout. It is counted in what the peer's kernel has acknowledged, not in what ours takes: a slow link shows
 * progress although our socket buffer stays full, and a peer that takes a byte every few seconds shows none.
 */
#include <errno.h>
#include <string.h>

#include "connectd/hubconn_impl.h"

void
hubconn_schedule(struct hubconn *conn)
{
	if (!loop_timer_armed(&conn->soon))
		loop_timer_set(conn->loop, &conn->soon, monotime_now());
}

/* Starts or stops the clock of the write deadline. */
static void
mind_backlog(struct hubconn *conn, bool backlog)
{
	if (conn->closing || conn->stage != HUBCONN_OPEN)
		return;
	if (!backlog) {
		if (loop_timer_armed(&conn->stall) && !conn->probed)
			conn->slow = false;
		loop_timer_del(conn->loop, &conn->stall);
	} else if (!loop_timer_armed(&conn->stall)) {
		conn->probed = false;
		conn->progress_at = monotime_now();
		loop_timer_set(conn->loop, &conn->stall, monotime_add_ms(conn->progress_at, HUBCONN_PROBE_MS));
	}
}

/* Every HUBCONN_PROBE_MS while something waits. The first time tells what to compare with; it makes no progress itself. */
void
hubconn_stalled(struct loop_timer *timer)
{
	struct hubconn *conn = timer->ctx;
	uint64_t acked = transport_acked(&conn->t);
	monotime_t now = monotime_now();
	struct hubconn_end end;

	if (!conn->probed) {
		conn->probed = conn->slow = true;
		conn->acked = acked;
	} else if (acked - conn->acked >= HUBCONN_PROGRESS_MIN) {
		conn->acked = acked;
		conn->progress_at = now;
	}
	if (monotime_diff_ms(now, conn->progress_at) < conn->write_timeout_ms) {
		loop_timer_set(conn->loop, &conn->stall, monotime_add_ms(now, HUBCONN_PROBE_MS));
		return;
	}
	hubend_set(&end, HUBCONN_STALLED, HUBCONN_OPEN, "stalled", "the hub took no data for %lld s",
	    (long long)(conn->write_timeout_ms / 1000));
	hubconn_finish(conn, &end);
}

int
hubconn_push(struct hubconn *conn)
{
	int r;

	if (conn->ended || conn->t.fd < 0 || conn->dial != NULL)
		return 0;
	r = transport_push(&conn->t, &conn->out);
	if (r < 0 && r != -EAGAIN) {
		/* The peer may have said why before it went: hubconn_read_more() looks, and ends it in any case. */
		loop_timer_set(conn->loop, &conn->more, monotime_now());
		return r;
	}
	mind_backlog(conn, r == -EAGAIN);
	if (conn->read_paused && outq_len(&conn->out) <= HUBCONN_READ_PAUSE && !loop_timer_armed(&conn->more))
		loop_timer_set(conn->loop, &conn->more, monotime_now());
	return 0;
}

static bool
bulk_has_room(const struct hubconn *conn)
{
	return outq_len(&conn->out) < (conn->slow ? HUBCONN_BULK_SLOW : HUBCONN_BULK);
}

void
hubconn_tell_writable(struct hubconn *conn)
{
	if (!conn->refused || conn->ended || conn->doomed || conn->closing || !bulk_has_room(conn))
		return;
	conn->refused = false;
	conn->cb.writable(conn->ctx);
}

static bool
is_open(const struct hubconn *conn)
{
	return conn->stage == HUBCONN_OPEN && !conn->closing && !conn->ended && !conn->doomed;
}

static int
send_message(struct hubconn *conn, enum ws_opcode opcode, const void *data, size_t len)
{
	int r;

	if (!is_open(conn))
		return -EPIPE;
	if (len > WS_MESSAGE_MAX)
		return -EMSGSIZE;
	if (outq_len(&conn->out) + len > HUBCONN_QUEUE_MAX)
		return -ENOBUFS;
	r = ws_put(conn->ws, opcode, data, len);
	if (r == 0)
		hubconn_schedule(conn);
	return r;
}

int
hubconn_send_text(struct hubconn *conn, const void *data, size_t len)
{
	return send_message(conn, WS_TEXT, data, len);
}

int
hubconn_send_binary(struct hubconn *conn, const void *data, size_t len)
{
	return send_message(conn, WS_BINARY, data, len);
}

static uint8_t *
begin(struct hubconn *conn, enum ws_opcode opcode, size_t len)
{
	if (!is_open(conn) || len > WS_MESSAGE_MAX)
		return NULL;
	if (!bulk_has_room(conn)) {
		conn->refused = true;
		return NULL;
	}
	conn->begun = opcode;
	return ws_begin(conn->ws, len);
}

static void
commit(struct hubconn *conn, size_t len)
{
	int r;

	/* The connection may have ended between the two calls only if the owner sent something: then the bytes are lost. */
	if (len == 0 || !is_open(conn))
		return;
	r = ws_commit(conn->ws, conn->begun, len);
	if (r < 0)
		hubconn_finish_errno(conn, r);
	else if (outq_len(&conn->out) >= HUBCONN_BULK)
		(void)hubconn_push(conn);
	else
		hubconn_schedule(conn);
}

uint8_t *
hubconn_bulk_begin(struct hubconn *conn, size_t len)
{
	return begin(conn, WS_BINARY, len);
}

void
hubconn_bulk_commit(struct hubconn *conn, size_t len)
{
	commit(conn, len);
}

uint8_t *
hubconn_text_begin(struct hubconn *conn, size_t len)
{
	return begin(conn, WS_TEXT, len);
}

void
hubconn_text_commit(struct hubconn *conn, size_t len)
{
	commit(conn, len);
}

void
hubconn_flush(struct hubconn *conn)
{
	(void)hubconn_push(conn);
	if (conn->refused && bulk_has_room(conn))
		hubconn_schedule(conn);
	else if (!conn->ended)
		loop_timer_del(conn->loop, &conn->soon);	/* it has nothing left to do */
}

void
hubconn_close(struct hubconn *conn, uint16_t code, const char *reason)
{
	struct hubconn_end end;

	if (!is_open(conn))
		return;
	hubend_set(&end, HUBCONN_CLOSED, HUBCONN_OPEN, "closed", "this device closed the connection with code %u", code);
	if (ws_close(conn->ws, code, reason) < 0)
		hubconn_finish_errno(conn, -ENOMEM);
	else
		hubconn_linger(conn, &end);
}
