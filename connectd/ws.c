/*
 * The client's side of a WebSocket. wslay takes frames apart, but for one kind: a whole binary message of some size, which is what a stream
 * of bulk is made of. wslay reads it in pieces of 4 KiB and copies it twice before it hands it on. So the head of every frame is looked at first:
 * the plain bulk frame is read to its place; everything else, whatever is odd included, is handed to wslay byte by byte to its end.
 */
#include "connectd/ws.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <wslay/wslay.h>

#include "proto/hub/utf8.h"
#include "proto/hub/wshead.h"

#define MASK_BLOCK	1024u		/* random bytes drawn at a time */
#define BULK_MIN	1024u		/* below it wslay does as well */
#define BULK_KEEP	(96u * 1024)	/* room for a DATA frame stays; more is rare and given back */

struct ws {
	wslay_event_context_ptr wslay;
	struct ws_cb cb;
	void *ctx;
	struct outq *out;
	size_t budget, fragments;
	enum ws_state state;
	int err;
	bool close_sent;
	uint16_t close_code;
	char close_reason[WS_REASON_MAX + 1];
	size_t begun_head;		/* header bytes reserved by ws_begin() */
	uint8_t head[WSHEAD_MAX];		/* of the frame in hand */
	size_t head_len, head_given;	/* bytes read; bytes wslay has had of them */
	uint64_t left;			/* of its payload, not read yet */
	bool fragmented;		/* more frames of the message are to come */
	bool begun;			/* it is known who takes the frame in hand: */
	bool bulk;			/* it is read to bulk_buf */
	uint8_t *bulk_buf;
	size_t bulk_len, bulk_size;
	uint8_t masks[MASK_BLOCK];
	size_t masks_left;
};

/* A fresh mask per frame, unpredictable for the peer (RFC 6455 5.3). */
static int
draw_mask(struct ws *ws, uint8_t mask[WSHEAD_MASK])
{
	if (ws->masks_left < WSHEAD_MASK) {
		if (getrandom(ws->masks, MASK_BLOCK, 0) != (ssize_t)MASK_BLOCK)
			return -EIO;
		ws->masks_left = MASK_BLOCK;
	}
	ws->masks_left -= WSHEAD_MASK;
	memcpy(mask, ws->masks + ws->masks_left, WSHEAD_MASK);
	return 0;
}

static size_t
head_len(size_t len)
{
	return 2 + (len < 126 ? 0 : len < 65536 ? 2u : 8u) + WSHEAD_MASK;
}

static void
write_head(uint8_t *p, unsigned opcode, size_t len, const uint8_t mask[WSHEAD_MASK])
{
	size_t n = len < 126 ? 0 : len < 65536 ? 2 : 8;

	p[0] = (uint8_t)(WSHEAD_FIN | opcode);
	p[1] = (uint8_t)(WSHEAD_MASKED | (n == 0 ? len : n == 2 ? 126 : 127));
	for (size_t i = 0; i < n; i++)
		p[2 + i] = (uint8_t)((uint64_t)len >> (8 * (n - 1 - i)));
	memcpy(p + 2 + n, mask, WSHEAD_MASK);
}

uint8_t *
ws_begin(struct ws *ws, size_t len)
{
	size_t head = head_len(len);
	uint8_t *room = outq_room(ws->out, head + len);

	ws->begun_head = head;
	return room != NULL ? room + head : NULL;
}

static int
commit(struct ws *ws, unsigned opcode, size_t len)
{
	struct outq *q = ws->out;
	size_t head = head_len(len), gap = ws->begun_head - head;
	uint8_t mask[WSHEAD_MASK];

	if (draw_mask(ws, mask) < 0)
		return -EIO;
	/* A shorter message has a shorter header. With nothing before it the frame just begins later. */
	if (gap > 0 && q->off == q->end) {
		q->off += gap;
		q->end += gap;
	} else if (gap > 0) {
		memmove(q->buf + q->end + head, q->buf + q->end + ws->begun_head, len);
	}
	write_head(q->buf + q->end, opcode, len, mask);
	wshead_mask(q->buf + q->end + head, len, mask);
	outq_commit(q, head + len);
	return 0;
}

int
ws_commit(struct ws *ws, enum ws_opcode opcode, size_t len)
{
	return len == 0 ? 0 : commit(ws, opcode, len);
}

static int
put(struct ws *ws, unsigned opcode, const void *data, size_t len)
{
	uint8_t *room = ws_begin(ws, len);

	if (room == NULL)
		return -ENOMEM;
	if (len > 0)
		memcpy(room, data, len);
	return commit(ws, opcode, len);
}

int
ws_put(struct ws *ws, enum ws_opcode opcode, const void *data, size_t len)
{
	return put(ws, opcode, data, len);
}

int
ws_close(struct ws *ws, uint16_t code, const char *reason)
{
	uint8_t payload[2 + WS_REASON_MAX] = { (uint8_t)(code >> 8), (uint8_t)code };
	size_t len = strlen(reason);

	if (ws->close_sent)
		return 0;
	len = utf8_valid_prefix((const uint8_t *)reason, len < WS_REASON_MAX ? len : WS_REASON_MAX, NULL);
	memcpy(payload + 2, reason, len);
	ws->close_sent = true;
	return put(ws, WSLAY_CONNECTION_CLOSE, payload, 2 + len);
}

/* Bytes of the peer, as far as this turn may take them. 0: none, and the state says why. */
static size_t
take(struct ws *ws, uint8_t *buf, size_t len)
{
	ssize_t n;

	if (ws->budget == 0) {
		ws->state = WS_BUDGET;
		return 0;
	}
	n = ws->cb.read(buf, len, ws->ctx);
	if (n > 0) {
		ws->budget -= (size_t)n < ws->budget ? (size_t)n : ws->budget;
		return (size_t)n;
	}
	ws->state = n == -EAGAIN ? WS_DRAINED : n == 0 ? WS_EOF : WS_ERROR;
	ws->err = (int)n;
	return 0;
}

/* Of the head in hand. */
static size_t
head_size(const struct ws *ws)
{
	return wshead_size(ws->head, ws->head_len);
}

/* More of the head in hand, up to size bytes of it. False: not now, or not all. */
static bool
read_head(struct ws *ws, size_t size)
{
	if (ws->head_len < size)
		ws->head_len += take(ws, ws->head + ws->head_len, size - ws->head_len);
	if (ws->head_len < size)
		return false;
	ws->left = wshead_payload(ws->head);
	return true;
}

/* For wslay: the frame in hand and not a byte more. */
static ssize_t
on_recv(wslay_event_context_ptr wslay, uint8_t *buf, size_t len, int flags, void *arg)
{
	struct ws *ws = arg;
	size_t n;

	(void)flags;
	if (ws->head_given == ws->head_len && ws->head_len < head_size(ws))
		(void)read_head(ws, head_size(ws));
	n = ws->head_len - ws->head_given;
	if (n > 0) {
		n = n < len ? n : len;
		memcpy(buf, ws->head + ws->head_given, n);
		ws->head_given += n;
		return (ssize_t)n;
	}
	n = ws->head_len == head_size(ws) && ws->left > 0 ? take(ws, buf, len < ws->left ? len : (size_t)ws->left) : 0;
	ws->left -= n;
	if (n > 0)
		return (ssize_t)n;
	/* Whatever it was, it is no protocol error: wslay shall leave it at that. */
	wslay_event_set_error(wslay, WSLAY_ERR_WOULDBLOCK);
	return -1;
}

/* By the first two bytes of a head: it may be bulk, so all of it is to be known first. wslay says of two bytes already what is wrong with them. */
static bool
may_be_bulk(const struct ws *ws)
{
	return !ws->fragmented && ws->head_given == 0 && ws->head[0] == (WSHEAD_FIN | WSLAY_BINARY_FRAME) && ws->head[1] >= 126 && ws->head[1] <= 127;
}

static bool
is_bulk(const struct ws *ws)
{
	return may_be_bulk(ws) && ws->left >= BULK_MIN && ws->left <= WS_MESSAGE_MAX && (ws->head[1] == 126 || ws->left > UINT16_MAX);
}

static void
read_bulk(struct ws *ws)
{
	size_t len = ws->bulk_len + (size_t)ws->left;

	if (len > ws->bulk_size) {
		free(ws->bulk_buf);	/* nothing of this frame is in it yet */
		ws->bulk_size = len < BULK_KEEP ? BULK_KEEP : len;
		ws->bulk_buf = malloc(ws->bulk_size);
	}
	if (ws->bulk_buf == NULL) {
		ws->bulk_size = 0;
		ws->state = WS_ERROR;
		ws->err = -ENOMEM;
		return;
	}
	while (ws->left > 0) {
		size_t n = take(ws, ws->bulk_buf + ws->bulk_len, (size_t)ws->left);

		if (n == 0)
			return;
		ws->bulk_len += n;
		ws->left -= n;
	}
	ws->cb.binary(ws->bulk_buf, len, ws->ctx);
	if (ws->bulk_size > BULK_KEEP) {
		free(ws->bulk_buf);
		ws->bulk_buf = NULL;
		ws->bulk_size = 0;
	}
}

/* A frame begins: whose it is. False: not now. */
static bool
begin_frame(struct ws *ws)
{
	if (!read_head(ws, 2) || (may_be_bulk(ws) && !read_head(ws, head_size(ws))))
		return false;
	ws->begun = true;
	ws->bulk = is_bulk(ws);
	ws->bulk_len = 0;
	if ((ws->head[0] & 0x0f) <= WSLAY_BINARY_FRAME)
		ws->fragmented = (ws->head[0] & WSHEAD_FIN) == 0;
	return true;
}

/* What there is of one frame at most. 0, or wslay's error. */
static int
receive_some(struct ws *ws)
{
	int r = 0;

	if (!ws->begun && !begin_frame(ws))
		return 0;
	if (ws->bulk)
		read_bulk(ws);
	else
		r = wslay_event_recv(ws->wslay);
	if (ws->head_len == head_size(ws) && ws->left == 0 && (ws->bulk || ws->head_given == ws->head_len)) {
		ws->head_len = ws->head_given = 0;
		ws->begun = false;
	}
	return r;
}

/* wslay's control frames. The queue grows as needed, so it never has to stop in the middle of one. */
static ssize_t
on_send(wslay_event_context_ptr wslay, const uint8_t *data, size_t len, int flags, void *arg)
{
	struct ws *ws = arg;

	(void)flags;
	if (outq_put(ws->out, data, len) == 0)
		return (ssize_t)len;
	wslay_event_set_error(wslay, WSLAY_ERR_CALLBACK_FAILURE);
	return -1;
}

static int
on_mask(wslay_event_context_ptr wslay, uint8_t *buf, size_t len, void *arg)
{
	(void)wslay;
	return len == WSHEAD_MASK && draw_mask(arg, buf) == 0 ? 0 : -1;
}

static void
reject(struct ws *ws, uint16_t code)
{
	ws->state = WS_BROKEN;
	ws->close_code = code;
	wslay_event_shutdown_read(ws->wslay);
}

/* What wslay leaves to us: it allocates for every fragment, an empty one too, and takes half a status code for none. */
static void
on_frame(wslay_event_context_ptr wslay, const struct wslay_event_on_frame_recv_start_arg *arg, void *ctx)
{
	struct ws *ws = ctx;

	(void)wslay;
	if (arg->opcode == WSLAY_CONNECTION_CLOSE && arg->payload_length == 1)
		reject(ws, WSLAY_CODE_PROTOCOL_ERROR);
	if (wslay_is_ctrl_frame(arg->opcode))
		return;
	ws->fragments = arg->opcode == WSLAY_CONTINUATION_FRAME ? ws->fragments + 1 : 1;
	if (ws->fragments > WS_FRAGMENTS_MAX)
		reject(ws, WSLAY_CODE_MESSAGE_TOO_BIG);
}

/* wslay checks the reason piece by piece and skips two bytes of each, so a reason that came in pieces is looked at again. */
static void
take_close(struct ws *ws, const struct wslay_event_on_msg_recv_arg *arg)
{
	size_t len = arg->msg_length > 2 ? arg->msg_length - 2 : 0;

	if (len > 0 && utf8_valid_prefix(arg->msg + 2, len, NULL) != len) {
		reject(ws, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA);
		return;
	}
	ws->close_code = arg->status_code != 0 ? arg->status_code : WSLAY_CODE_NO_STATUS_RCVD;
	if (len > 0)
		memcpy(ws->close_reason, arg->msg + 2, len);
	ws->close_reason[len] = '\0';
}

/* Pongs and the answer to a close, unless our own close has ended our direction. */
static void
pump_control(struct ws *ws)
{
	if (ws->close_sent || !wslay_event_want_write(ws->wslay))
		return;
	if (wslay_event_send(ws->wslay) != 0) {
		ws->state = WS_ERROR;
		ws->err = -ENOMEM;
	}
	ws->close_sent = wslay_event_get_close_sent(ws->wslay);
}

static void
on_message(wslay_event_context_ptr wslay, const struct wslay_event_on_msg_recv_arg *arg, void *ctx)
{
	struct ws *ws = ctx;
	size_t len = arg->msg_length;

	(void)wslay;
	if (ws->state == WS_STOPPED || ws->state == WS_BROKEN)
		return;
	if (arg->opcode == WSLAY_TEXT_FRAME) {
		ws->cb.text(arg->msg, len, ws->ctx);
	} else if (arg->opcode == WSLAY_BINARY_FRAME) {
		ws->cb.binary(arg->msg, len, ws->ctx);
	} else if (arg->opcode == WSLAY_CONNECTION_CLOSE) {
		take_close(ws, arg);
	} else if (arg->opcode == WSLAY_PING) {
		/* At once and in its place: a close that follows in the same read would make wslay drop the pong. */
		pump_control(ws);
	}
}

/* The peer broke a rule: wslay names the code where it has one, everything else is 1002. */
static void
broken(struct ws *ws, int wslay_result)
{
	if (ws->state != WS_BROKEN) {
		ws->state = WS_BROKEN;
		ws->close_code = wslay_result == WSLAY_ERR_NOMEM ? WSLAY_CODE_INTERNAL_SERVER_ERROR : WSLAY_CODE_PROTOCOL_ERROR;
		if (wslay_result == 0)
			pump_control(ws);
		if (wslay_event_get_close_sent(ws->wslay))
			ws->close_code = wslay_event_get_status_code_sent(ws->wslay);
	}
	(void)ws_close(ws, ws->close_code, "");
}

enum ws_state
ws_receive(struct ws *ws, size_t budget)
{
	int r;

	if (ws->state == WS_CLOSED || ws->state == WS_BROKEN || ws->state == WS_STOPPED)
		return ws->state;
	ws->budget = budget;
	ws->state = WS_READING;
	do
		r = receive_some(ws);
	while (r == 0 && ws->state == WS_READING && wslay_event_get_read_enabled(ws->wslay));
	if (ws->state == WS_STOPPED)
		return ws->state;
	if (ws->state != WS_BROKEN && wslay_event_get_close_received(ws->wslay)) {
		pump_control(ws);
		ws->state = WS_CLOSED;
	} else if (r != 0 || !wslay_event_get_read_enabled(ws->wslay)) {
		broken(ws, r);
	} else {
		pump_control(ws);
	}
	return ws->state;
}

void
ws_stop(struct ws *ws)
{
	ws->state = WS_STOPPED;
	wslay_event_shutdown_read(ws->wslay);
}

int
ws_errno(const struct ws *ws)
{
	return ws->err;
}

uint16_t
ws_close_code(const struct ws *ws)
{
	return ws->close_code;
}

const char *
ws_close_reason(const struct ws *ws)
{
	return ws->close_reason;
}

bool
ws_close_sent(const struct ws *ws)
{
	return ws->close_sent;
}

int
ws_new(const struct ws_cb *cb, void *ctx, struct outq *out, struct ws **ret_ws)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_recv, .send_callback = on_send, .genmask_callback = on_mask,
		.on_frame_recv_start_callback = on_frame, .on_msg_recv_callback = on_message,
	};
	struct ws *ws = calloc(1, sizeof(*ws));

	if (ws == NULL)
		return -ENOMEM;
	ws->cb = *cb;
	ws->ctx = ctx;
	ws->out = out;
	if (wslay_event_context_client_init(&ws->wslay, &callbacks, ws) != 0) {
		free(ws);
		return -ENOMEM;
	}
	wslay_event_config_set_max_recv_msg_length(ws->wslay, WS_MESSAGE_MAX);
	*ret_ws = ws;
	return 0;
}

void
ws_free(struct ws *ws)
{
	if (ws == NULL)
		return;
	wslay_event_context_free(ws->wslay);
	explicit_bzero(ws->masks, sizeof(ws->masks));
	free(ws->bulk_buf);
	free(ws);
}
