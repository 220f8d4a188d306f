/*
 * The WebSocket side of a connection: wslay takes frames apart and answers pings and closes. Messages are put together
 * here, not in wslay, which would copy once more; its limits on size hold for one frame, ours for the message.
 *
 * One kind of frame does not go through wslay: a whole binary message of some size, which is what logs are made of.
 * wslay moves such a frame in pieces of 4 KiB and unmasks byte by byte, which was half of all the CPU of the hub. So the
 * head of every frame is looked at first: the plain bulk frame is read to its place and unmasked a word at a time;
 * everything else, whatever is odd included, is handed to wslay byte by byte to its end.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/conn.h"
#include "hub/session.h"
#include "proto/hub/limits.h"
#include "proto/hub/wshead.h"

#define MSG_START	(96u * 1024)	/* holds a DATA frame or a log_chunk without growing */
#define PONGS_MAX	64u		/* queued answers: then the peer must read first */
#define FRAGMENTS_MAX	4096u

#define BULK_MIN	1024u		/* below it wslay does as well */

struct ws_msg {
	struct conn *conn;
	uint8_t opcode;		/* of the message in hand */
	bool data;		/* the frame in hand belongs to it */
	bool fragmented;	/* more frames of it are to come */
	unsigned fragments;
	uint8_t head[WSHEAD_MAX];	/* of the frame in hand */
	size_t head_len, head_given;	/* bytes read; bytes wslay has had of them */
	uint64_t left;		/* payload of it that wslay has not had */
	bool bulk;
	size_t bulk_len;
	bool dry;		/* wslay stopped because there was nothing, not at the end of a frame */
};

/* Bytes from the peer, within what this turn may take. 0 = not now, -errno. */
static ssize_t
take(struct conn *conn, void *buf, size_t len)
{
	if (conn->turn_bytes >= CONN_READ_TURN || wslay_event_get_queued_msg_count(conn->ws) > PONGS_MAX) {
		conn->more = true;
		return 0;
	}
	if (conn->out_len - conn->out_pos > CONN_OUT_PAUSE) {
		conn->paused = true;
		return 0;
	}
	return conn_read(conn, buf, len);
}

static ssize_t
recv_cb(wslay_event_context_ptr ctx, uint8_t *buf, size_t len, int flags, void *user_data)
{
	struct ws_msg *m = user_data;
	size_t head = m->head_len - m->head_given;
	ssize_t n = -EPIPE;

	(void)flags;
	if (m->conn->state != CONN_DEAD && head > 0) {
		if (len > head)
			len = head;
		memcpy(buf, m->head + m->head_given, len);
		m->head_given += len;
		return (ssize_t)len;
	}
	if (m->conn->state != CONN_DEAD && m->left > 0)
		n = take(m->conn, buf, len < m->left ? len : (size_t)m->left);
	else if (m->conn->state != CONN_DEAD)
		n = 0;
	if (n > 0) {
		m->left -= (size_t)n;
		return n;
	}
	m->dry = n == 0 && m->left > 0;
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

/* A rare big one is given back. */
static void
shrink_msg(struct conn *conn)
{
	if (conn->msg_size <= 4 * MSG_START)
		return;
	free(conn->msg);
	conn->msg = NULL;
	conn->msg_size = 0;
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
	shrink_msg(conn);
}

/* Of the head in hand. */
static size_t
head_size(const struct ws_msg *m)
{
	return wshead_size(m->head, m->head_len);
}

/* Reads the head of the next frame and decides who takes it. 1 = known, 0 = not now, -errno. */
static int
read_head(struct ws_msg *m)
{
	unsigned opcode;

	while (m->head_len < head_size(m)) {
		ssize_t n = take(m->conn, m->head + m->head_len, head_size(m) - m->head_len);

		if (n <= 0)
			return (int)n;
		m->head_len += (size_t)n;
	}
	m->left = wshead_payload(m->head);
	opcode = m->head[0] & 0x0f;
	m->bulk = m->head[0] == (WSHEAD_FIN | WSLAY_BINARY_FRAME) && (m->head[1] & WSHEAD_MASKED) != 0 && !m->fragmented &&
	    m->left >= BULK_MIN && m->left <= HUB_MESSAGE_MAX && m->conn->state == CONN_OPEN;
	if (opcode <= WSLAY_BINARY_FRAME)
		m->fragmented = (m->head[0] & WSHEAD_FIN) == 0;
	m->bulk_len = m->bulk ? (size_t)m->left : 0;
	m->head_given = 0;
	m->conn->msg_len = m->bulk ? 0 : m->conn->msg_len;
	return 1;
}

/* 1 = delivered, 0 = not now, -errno. */
static int
read_bulk(struct ws_msg *m)
{
	struct conn *conn = m->conn;

	if (m->bulk_len > conn->msg_size && grow_msg(conn, m->bulk_len) < 0)
		return -ENOMEM;
	while (conn->msg_len < m->bulk_len) {
		ssize_t n = take(conn, conn->msg + conn->msg_len, m->bulk_len - conn->msg_len);

		if (n <= 0)
			return (int)n;
		conn->msg_len += (size_t)n;
	}
	wshead_mask(conn->msg, m->bulk_len, m->head + m->head_len - WSHEAD_MASK);
	m->bulk = false;
	m->head_len = 0;
	m->left = 0;
	if (conn->state == CONN_OPEN)
		session_binary(conn->session, conn->msg, m->bulk_len);
	conn->msg_len = 0;
	shrink_msg(conn);
	return 1;
}

/* Lets wslay have the frame in hand. 1 = it has had all of it, 0 = not now, -errno. */
static int
feed_wslay(struct ws_msg *m)
{
	m->dry = false;
	if (wslay_event_recv(m->conn->ws) != 0)
		return -EPIPE;
	if (m->dry || m->conn->state == CONN_DEAD || !wslay_event_get_read_enabled(m->conn->ws))
		return 0;
	m->head_len = 0;
	return 1;
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
	struct ws_msg *m = conn->ws_msg;
	int r = 1;

	while (r > 0 && conn->state != CONN_DEAD && wslay_event_get_read_enabled(conn->ws)) {
		r = m->bulk || m->head_len == head_size(m) ? 1 : read_head(m);
		if (r > 0)
			r = m->bulk ? read_bulk(m) : feed_wslay(m);
		/* This turn may read on for a while. */
		if (conn->urgent && conn->state == CONN_OPEN)
			conn_push(conn);
	}
	if (conn->state == CONN_DEAD)
		return;
	if (r < 0) {
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
