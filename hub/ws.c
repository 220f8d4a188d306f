/*
 * The WebSocket side of a connection: wslay takes frames apart and answers pings and closes. Messages are put together
 * here, not in wslay, which would copy once more; its limits on size hold for one frame, ours for the message.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/conn.h"
#include "hub/session.h"
#include "proto/hub/limits.h"

#define MSG_START	(96u * 1024)	/* holds a DATA frame or a log_chunk without growing */
#define PONGS_MAX	64u		/* queued answers: then the peer must read first */
#define FRAGMENTS_MAX	4096u

struct ws_msg {		/* of the message in hand, kept behind struct conn in user_data */
	struct conn *conn;
	uint8_t opcode;
	bool data;		/* the frame in hand belongs to it */
	unsigned fragments;
};

static ssize_t
recv_cb(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *user_data)
{
	struct conn *conn = ((struct ws_msg *)user_data)->conn;
	ssize_t n;

	(void)flags;
	if (conn->state == CONN_DEAD) {
		wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
		return -1;
	}
	if (conn->turn_bytes >= CONN_READ_TURN || wslay_event_get_queued_msg_count(ctx) > PONGS_MAX) {
		conn->more = true;
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	if (conn->out_len - conn->out_pos > CONN_OUT_PAUSE) {
		conn->paused = true;
		wslay_event_set_error(ctx, WSLAY_ERR_WOULDBLOCK);
		return -1;
	}
	n = conn_read(conn, buf, len);
	if (n > 0)
		return n;
	wslay_event_set_error(ctx, n == 0 ? WSLAY_ERR_WOULDBLOCK : WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static ssize_t
send_cb(wslay_event_context_ptr ctx, const uint8_t *data, size_t len, int flags, void *user_data)
{
	struct conn *conn = ((struct ws_msg *)user_data)->conn;

	(void)flags;
	conn_send_raw(conn, data, len);
	if (conn->state == CONN_DEAD) {
		wslay_event_set_error(ctx, WSLAY_ERR_CALLBACK_FAILURE);
		return -1;
	}
	return (ssize_t)len;
}

static void
refuse(struct conn *conn, uint16_t code, const char *reason)
{
	log_info("%s: %s", conn->peer, reason);
	conn_close(conn, code, reason);
}

static void
frame_start_cb(wslay_event_context_ptr ctx, const struct wslay_event_on_frame_recv_start_arg *arg, void *user_data)
{
	struct ws_msg *m = user_data;
	struct conn *conn = m->conn;

	(void)ctx;
	m->data = !wslay_is_ctrl_frame(arg->opcode);
	if (!m->data || conn->state != CONN_OPEN)
		return;
	if (arg->opcode != WSLAY_CONTINUATION_FRAME) {
		m->opcode = arg->opcode;
		m->fragments = 0;
		conn->msg_len = 0;
	}
	if (++m->fragments > FRAGMENTS_MAX || arg->payload_length > HUB_MESSAGE_MAX - conn->msg_len)
		refuse(conn, WSLAY_CODE_MESSAGE_TOO_BIG, "message too big");
}

static int
grow_msg(struct conn *conn, size_t need)
{
	size_t size = conn->msg_size > 0 ? conn->msg_size : MSG_START;
	uint8_t *p;

	while (size < need)
		size *= 2;
	p = realloc(conn->msg, size);
	if (p == NULL)
		return -ENOMEM;
	conn->msg = p;
	conn->msg_size = size;
	return 0;
}

static void
chunk_cb(wslay_event_context_ptr ctx, const struct wslay_event_on_frame_recv_chunk_arg *arg, void *user_data)
{
	struct ws_msg *m = user_data;
	struct conn *conn = m->conn;

	(void)ctx;
	if (!m->data || conn->state != CONN_OPEN)
		return;
	if (conn->msg_len + arg->data_length > conn->msg_size && grow_msg(conn, conn->msg_len + arg->data_length) < 0) {
		conn_kill(conn);
		return;
	}
	memcpy(conn->msg + conn->msg_len, arg->data, arg->data_length);
	conn->msg_len += arg->data_length;
}

static void
msg_cb(wslay_event_context_ptr ctx, const struct wslay_event_on_msg_recv_arg *arg, void *user_data)
{
	struct ws_msg *m = user_data;
	struct conn *conn = m->conn;

	(void)ctx;
	if (wslay_is_ctrl_frame(arg->opcode) || conn->state != CONN_OPEN)
		return;
	if (m->opcode == WSLAY_TEXT_FRAME)
		session_text(conn->session, conn->msg, conn->msg_len);
	else
		session_binary(conn->session, conn->msg, conn->msg_len);
	conn->msg_len = 0;
	if (conn->msg_size > 4 * MSG_START && conn->state != CONN_DEAD) {	/* a rare big one: give it back */
		free(conn->msg);
		conn->msg = NULL;
		conn->msg_size = 0;
	}
}

int
ws_open(struct conn *conn)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = recv_cb, .send_callback = send_cb, .on_frame_recv_start_callback = frame_start_cb,
		.on_frame_recv_chunk_callback = chunk_cb, .on_msg_recv_callback = msg_cb,
	};
	struct ws_msg *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return -ENOMEM;
	m->conn = conn;
	if (wslay_event_context_server_init(&conn->ws, &callbacks, m) != 0) {
		free(m);
		return -ENOMEM;
	}
	conn->ws_msg = m;
	wslay_event_config_set_no_buffering(conn->ws, 1);
	wslay_event_config_set_max_recv_msg_length(conn->ws, HUB_MESSAGE_MAX);
	return 0;
}

void
ws_done(struct conn *conn)
{
	if (conn->ws != NULL)
		wslay_event_context_free(conn->ws);
	conn->ws = NULL;
	free(conn->ws_msg);
	conn->ws_msg = NULL;
}

void
ws_pump(struct conn *conn)
{
	while (conn->state != CONN_DEAD && wslay_event_want_write(conn->ws))
		if (wslay_event_send(conn->ws) != 0)
			return;
}

void
ws_receive(struct conn *conn)
{
	int r = wslay_event_recv(conn->ws);

	if (conn->state == CONN_DEAD)
		return;
	if (r != 0) {
		conn_kill(conn);
		return;
	}
	ws_pump(conn);
	/* The peer closed, or wslay refused what it sent and has queued the reason. */
	if (conn->state == CONN_OPEN && !wslay_event_get_read_enabled(conn->ws))
		conn_close(conn, WSLAY_CODE_NORMAL_CLOSURE, NULL);
	if (conn->state == CONN_CLOSING && wslay_event_get_close_received(conn->ws) &&
	    wslay_event_get_close_sent(conn->ws))
		conn->drop_after_flush = true;
}
