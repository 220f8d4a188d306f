/* From a ready transport to messages: the upgrade, then frames, then the closing handshake. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/hubconn_impl.h"

#define HEAD_READ	2048u

static void
progress(struct hubconn *conn)
{
	monotime_t when = monotime_add_ms(monotime_now(), conn->params.timeout_ms);

	loop_timer_set(conn->loop, &conn->deadline, monotime_before(when, conn->total) ? when : conn->total);
}

/* For ws: first what came behind the upgrade's head, then the transport. */
static ssize_t
read_bytes(void *buf, size_t len, void *ctx)
{
	struct hubconn *conn = ctx;
	size_t n = conn->early_len - conn->early_off;

	if (conn->early == NULL)
		return transport_read(&conn->t, buf, len);
	n = n < len ? n : len;
	memcpy(buf, conn->early + conn->early_off, n);
	conn->early_off += n;
	if (conn->early_off == conn->early_len) {
		free(conn->early);
		conn->early = NULL;
	}
	return (ssize_t)n;
}

static void
on_text(const uint8_t *data, size_t len, void *ctx)
{
	struct hubconn *conn = ctx;

	if (!conn->closing)
		conn->cb.text(data, len, conn->ctx);
}

static void
on_binary(const uint8_t *data, size_t len, void *ctx)
{
	struct hubconn *conn = ctx;

	if (!conn->closing)
		conn->cb.binary(data, len, conn->ctx);
}

/* "... retry after 30 s" or "retry-after=30" in a close reason; -1 when it names no time. */
static int64_t
reason_retry(const char *reason)
{
	const char *p = strcasestr(reason, "retry");
	int64_t s = 0;
	unsigned digits = 0;

	if (p == NULL)
		return -1;
	p += strcspn(p, "0123456789");
	for (; *p >= '0' && *p <= '9' && digits < 5; p++, digits++)
		s = s * 10 + (*p - '0');
	return digits == 0 || (*p >= '0' && *p <= '9') ? -1 : s * 1000;
}

static void
closed_by_peer(struct hubconn *conn)
{
	struct hubconn_end end;
	uint16_t code = ws_close_code(conn->ws);
	const char *reason = ws_close_reason(conn->ws);

	hubend_set(&end, HUBCONN_CLOSED, HUBCONN_OPEN, "closed", "the hub closed the connection with code %u%s%s", code,
	    reason[0] != '\0' ? ": " : "", reason);
	end.close_code = code;
	end.superseded = code == 1000 && strcmp(reason, "superseded") == 0;
	end.retry_after_ms = reason_retry(reason);
	if (conn->closing) {
		conn->end = end;
		/* Both sides have said it. TLS and TCP are the server's to end first, but we asked: no need to wait. */
		(void)hubconn_push(conn);
		hubconn_finish(conn, &end);
		return;
	}
	hubconn_linger(conn, &end);
}

static void
broken(struct hubconn *conn)
{
	struct hubconn_end end;

	hubend_set(&end, HUBCONN_WS_PROTOCOL, HUBCONN_OPEN, "ws-protocol",
	    "the hub broke the WebSocket protocol or a limit of it; closed with code %u", ws_close_code(conn->ws));
	hubconn_linger(conn, &end);
}

/* After the last frame: wait for the other side to close, reading over what may still come. */
static void
drain(struct hubconn *conn)
{
	uint8_t buf[4096];
	ssize_t n;
	size_t total = 0;

	if (conn->ended || conn->doomed)
		return;
	do {
		n = read_bytes(buf, sizeof(buf), conn);
		total += n > 0 ? (size_t)n : 0;
	} while (n > 0 && total < HUBCONN_TURN_READ);
	if (n > 0)
		loop_timer_set(conn->loop, &conn->more, monotime_now());
	else if (n != -EAGAIN)
		hubconn_finish(conn, &conn->end);
}

static void
run_frames(struct hubconn *conn)
{
	if (outq_len(&conn->out) > HUBCONN_READ_PAUSE && !conn->closing) {
		conn->read_paused = true;
		return;
	}
	conn->read_paused = false;
	switch (ws_receive(conn->ws, HUBCONN_TURN_READ)) {
	case WS_DRAINED:
		break;
	case WS_BUDGET:
		loop_timer_set(conn->loop, &conn->more, monotime_now());
		break;
	case WS_EOF:
		hubconn_finish_errno(conn, 0);
		break;
	case WS_ERROR:
		hubconn_finish_errno(conn, ws_errno(conn->ws));
		break;
	case WS_CLOSED:
		closed_by_peer(conn);
		drain(conn);
		break;
	case WS_BROKEN:
		broken(conn);
		drain(conn);
		break;
	case WS_STOPPED:
	case WS_READING:
		break;
	}
	if (!conn->ended && !conn->doomed && hubconn_queued(conn) > 0)
		hubconn_schedule(conn);
}

static void
open_ws(struct hubconn *conn, const uint8_t *rest, size_t len, bool edgeward1)
{
	static const struct ws_cb cb = { .read = read_bytes, .text = on_text, .binary = on_binary };
	/* An answer to half a request would leave the other half between us and the first frame. */
	int r = outq_len(&conn->out) > 0 ? -EPROTO : ws_new(&cb, conn, &conn->out, &conn->ws);

	if (r == 0 && len > 0) {
		conn->early = malloc(len);
		r = conn->early == NULL ? -ENOMEM : 0;
	}
	if (r < 0) {
		hubconn_finish_errno(conn, r);
		return;
	}
	if (len > 0)
		memcpy(conn->early, rest, len);
	conn->early_len = len;
	loop_timer_del(conn->loop, &conn->deadline);
	free(conn->upgrade);
	conn->upgrade = NULL;
	/* The request with the credential in it is gone. */
	outq_wipe(&conn->out);
	explicit_bzero(conn->bearer, strlen(conn->bearer));
	free(conn->bearer);
	conn->bearer = NULL;
	hubconn_set_stage(conn, HUBCONN_OPEN);
	if (!conn->doomed)
		conn->cb.opened(edgeward1, conn->peer, conn->ctx);
	if (!conn->doomed && !conn->ended)
		run_frames(conn);
}

static void
run_upgrade(struct hubconn *conn)
{
	uint8_t buf[HEAD_READ];
	struct hubconn_end end;
	bool edgeward1 = false;
	ssize_t n;
	size_t used;
	int r = 0;

	while ((n = transport_read(&conn->t, buf, sizeof(buf))) > 0) {
		progress(conn);
		conn->answered = true;
		conn->last_rx = monotime_now();
		r = upgrade_feed(conn->upgrade, buf, (size_t)n, &used, &edgeward1, &end);
		if (r != 0)
			break;
	}
	if (r == 1) {
		open_ws(conn, buf + used, (size_t)n - used, edgeward1);
	} else if (r < 0) {
		hubconn_finish(conn, &end);
	} else if (n == 0) {
		upgrade_eof(conn->upgrade, &end);
		hubconn_finish(conn, &end);
	} else if (n != -EAGAIN) {
		hubconn_finish_errno(conn, (int)n);
	}
}

/* Edge-triggered: whatever is said here is said once, so both directions are worked until they block. */
static void
run(struct hubconn *conn)
{
	int err = hubconn_push(conn);

	if (conn->ended || conn->doomed)
		return;
	if (conn->stage == HUBCONN_UPGRADING)
		run_upgrade(conn);
	else if (conn->closing && conn->ws != NULL && ws_close_sent(conn->ws) && ws_close_code(conn->ws) != 0)
		drain(conn);
	else
		run_frames(conn);
	if (err < 0 && !conn->ended && !conn->doomed)
		hubconn_finish_errno(conn, err);
	else if (!conn->ended && !conn->doomed)
		hubconn_tell_writable(conn);
}

void
hubconn_ready(struct loop_io *io, uint32_t events)
{
	struct hubconn *conn = io->ctx;

	if ((events & EPOLLIN) != 0)
		conn->last_rx = monotime_now();
	conn->t.drained = false;
	/* Behind what came with the end there is no further event: read to the last. */
	conn->t.edges = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) == 0;
	hubconn_enter(conn);
	run(conn);
	hubconn_leave(conn);
}

void
hubconn_read_more(struct loop_timer *timer)
{
	struct hubconn *conn = timer->ctx;

	hubconn_enter(conn);
	run(conn);
	hubconn_leave(conn);
}

void
hubconn_dialled(const char *peer, void *ctx)
{
	struct hubconn *conn = ctx;
	int r;

	hubconn_enter(conn);
	snprintf(conn->peer, sizeof(conn->peer), "%s", peer);
	dial_free(conn->dial);
	conn->dial = NULL;
	conn->answered = conn->params.url.tls;
	conn->last_rx = monotime_now();
	hubconn_set_stage(conn, HUBCONN_UPGRADING);
	if (!conn->doomed) {
		progress(conn);
		conn->upgrade = malloc(sizeof(*conn->upgrade));
		r = conn->upgrade == NULL ? -ENOMEM :
		    upgrade_start(conn->upgrade, &conn->params.url, conn->bearer, conn->offer, &conn->out);
		if (r == 0)
			r = loop_io_add(conn->loop, &conn->io, conn->t.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, hubconn_ready,
			    conn);
		if (r < 0)
			hubconn_finish_errno(conn, r);
		else
			run(conn);
	}
	hubconn_leave(conn);
}
