/*
 * Bodies between the hub and a service: taken out of the one framing and put into the other, never copied with it. A request's body goes as the
 * service takes it, an answer's comes as the hub takes it; nothing of either is held whole.
 */
#include <errno.h>
#include <string.h>

#include "connectd/svc.h"

#define INTERIM_MAX	8u	/* answers 1xx before the real one */

/* ---- the request's body ---- */

static void
send_piece(struct svc_stream *st, const void *data, size_t len)
{
	if (!st->req_void && len > 0 && svcconn_put(st->up, data, len) < 0)
		st->req_void = true;	/* it may have answered all the same: 413, for one */
}

static ssize_t
take_length(struct svc_stream *st, const uint8_t *data, size_t len)
{
	size_t room = svcconn_room(st->up);

	if (len > st->req_left)
		len = (size_t)st->req_left;
	if (len > room)
		len = room;
	send_piece(st, data, len);
	st->req_left -= len;
	st->req_done = st->req_left == 0;
	return (ssize_t)len;
}

/* Amid the service's answer another one would be taken for a part of it. */
static void
bad_body(struct svc_stream *st)
{
	static const char why[] = "the request's body must be chunked without extensions or trailers";

	if (st->state == SVC_AT_ANSWER)
		svc_answer_text(st, 400, why);
	else
		svc_reset_soon(st, why);
}

static ssize_t
take_chunked(struct svc_stream *st, const uint8_t *data, size_t len)
{
	size_t room = svcconn_room(st->up), used, n;
	const uint8_t *content;
	char head[CHUNKED_HEAD + 1];
	int r;

	if (room < 1024)
		return 0;
	if (len > room - 64)
		len = room - 64;
	r = chunked_take(&st->req_chunked, data, len, &used, &content, &n);
	if (r < 0) {
		bad_body(st);
		return (ssize_t)len;
	}
	if (n > 0) {
		send_piece(st, head, chunked_put_size(head, n));
		send_piece(st, content, n);
		send_piece(st, "\r\n", 2);
	}
	if (r == 1) {
		send_piece(st, CHUNKED_LAST, sizeof(CHUNKED_LAST) - 1);
		st->req_done = true;
	}
	return (ssize_t)used;
}

ssize_t
svc_relay_take(struct svc_stream *st, const uint8_t *data, size_t len)
{
	ssize_t n = 0;

	if (st->state == SVC_AT_PIPE) {
		size_t room = svcconn_room(st->up);

		n = (ssize_t)(len < room ? len : room);
		if (n > 0 && svcconn_put(st->up, data, (size_t)n) < 0)
			n = (ssize_t)len;	/* its end shows where it is read */
	} else if (st->req_void) {
		n = (ssize_t)len;
	} else if (!st->req_done) {
		n = st->req_body == SVC_BODY_LENGTH ? take_length(st, data, len) : take_chunked(st, data, len);
	}
	if (n > 0)
		svc_moved(st);
	return n;
}

/* The service is there. */
void
svc_relay_begin(struct svc_stream *st)
{
	char head[SVCHEAD_MAX];
	size_t len;

	if (svchead_request(&st->req, &st->route.target, st->route.path, st->route.upgrade, !st->close_after, head, &len) < 0) {
		svc_answer_text(st, 431, "the head is too large to be passed on");
		return;
	}
	st->req_body = svchead_request_body(&st->req);
	st->req_left = st->req_body == SVC_BODY_LENGTH ? (uint64_t)st->req.content_length : 0;
	st->req_done = st->req_body == SVC_BODY_NONE || (st->req_body == SVC_BODY_LENGTH && st->req_left == 0);
	chunked_init(&st->req_chunked, false);
	st->req_void = st->keep = false;
	http_init(&st->ans, HTTP_RESPONSE);
	svc_set_state(st, SVC_AT_ANSWER);
	send_piece(st, head, len);
	explicit_bzero(head, sizeof(head));
	/* The loop says when there is an answer; not of bytes that came with the end of a handshake. */
	if (st->route.target.scheme == SERVICE_HTTPS)
		mux_want(&st->chan);
	if (!st->req_done)
		mux_resume(&st->chan);
}

/* ---- the answer ---- */

static int
put(struct svc_stream *st, const void *data, size_t len)
{
	int r = outq_put(&st->out, data, len);

	if (r < 0)
		svc_reset_soon(st, "out of memory");
	return r;
}

/* More bytes of the service in st->in: 1, 0 = none now, -EPIPE its end, -errno. */
static int
more(struct svc_stream *st)
{
	ssize_t n;

	if (st->in_off < st->in_len)
		return 1;
	st->in_off = st->in_len = 0;
	n = svcconn_read(st->up, st->in, sizeof(st->in));
	if (n > 0)
		st->in_len = (size_t)n;
	return n > 0 ? 1 : n == -EAGAIN ? 0 : n == 0 ? -EPIPE : (int)n;
}

/* Not behind HEAD, or a 304 or 204 with a length: more than one server sends a body all the same, and it would begin the next answer. */
static bool
serves_more(const struct svc_stream *st)
{
	if (st->ans_body == SVC_BODY_NONE && (st->ans.content_length > 0 || st->ans.chunked))
		return false;
	return !st->close_after && st->ans.minor > 0 && st->ans_body != SVC_BODY_CLOSE && strcmp(st->req.method, "HEAD") != 0 &&
	    !http_has_token(&st->ans, "Connection", "close");
}

static void
head_done(struct svc_stream *st)
{
	struct svchead_answer how = { .target = &st->route.target, .policy = st->warned ? "warn" : NULL };
	bool switches = st->ans.status == 101, interim = st->ans.status < 200 && !switches, old = st->req.minor == 0;
	char head[SVCHEAD_MAX];
	size_t len;

	if ((switches && !st->route.upgrade) || (interim && ++st->interim > INTERIM_MAX) ||
	    (switches && http_header(&st->ans, "Upgrade") == NULL)) {
		svc_answer_text(st, 502, "upstream error: the service switches to what nobody asked for");
		return;
	}
	st->ans_body = svchead_response_body(&st->ans, st->req.method);
	st->ans_left = st->ans_body == SVC_BODY_LENGTH ? (uint64_t)st->ans.content_length : 0;
	st->ans_coded = !old && (st->ans_body == SVC_BODY_CHUNKED || st->ans_body == SVC_BODY_CLOSE);
	if (old && (st->ans_body == SVC_BODY_CHUNKED || st->ans_body == SVC_BODY_CLOSE))
		st->close_after = true;
	st->keep = !interim && serves_more(st);
	chunked_init(&st->ans_chunked, true);
	how.body = st->ans_coded ? SVC_BODY_CHUNKED : old && st->ans_body == SVC_BODY_CHUNKED ? SVC_BODY_CLOSE : st->ans_body;
	how.close = st->close_after && !interim;
	how.upgrade = switches;
	if (svchead_response(&st->ans, &how, head, &len) < 0) {
		svc_answer_text(st, 502, "upstream error: the head of the answer is too large");
		return;
	}
	if (put(st, head, len) < 0)
		return;
	if (interim)
		http_init(&st->ans, HTTP_RESPONSE);
	else
		svc_set_state(st, switches ? SVC_AT_PIPE : SVC_AT_BODY);
	/* What the client has sent ahead of the switch goes on from the loop. */
	if (switches) {
		st->piped = monotime_now();
		loop_timer_set(st->s->p.loop, &st->soon, monotime_now());
	}
}

static void
fill_head(struct svc_stream *st)
{
	int r = more(st), used_up = 0;
	size_t used;

	while (r > 0 && st->state == SVC_AT_ANSWER && used_up == 0) {
		int h = http_feed(&st->ans, st->in + st->in_off, st->in_len - st->in_off, &used);

		st->in_off += used;
		if (h < 0)
			svc_answer_text(st, 502, "upstream error: the service's answer is no HTTP/1");
		else if (h == 1)
			head_done(st);
		used_up = outq_len(&st->out) > 0 || st->why[0] != '\0';
		r = used_up == 0 && st->state == SVC_AT_ANSWER ? more(st) : 0;
	}
	if (r < 0 && st->again && !st->redialled && st->interim == 0 && st->ans.len == 0)
		svc_redial(st);
	else if (r < 0)
		svc_answer_text(st, 502, "upstream error: the service ended before it answered");
}

/* The body has passed. An answer that came before its request was whole ends the stream: where the next one begins is not known. */
static void
body_done(struct svc_stream *st)
{
	if (st->ans_coded)
		(void)put(st, CHUNKED_LAST, sizeof(CHUNKED_LAST) - 1);
	if (!st->req_done)
		st->close_after = true;
	svc_set_state(st, SVC_AT_SENT);
}

static ssize_t
fill_length(struct svc_stream *st, uint8_t *buf, size_t max)
{
	size_t have = st->in_len - st->in_off;
	ssize_t n;

	if (max > st->ans_left)
		max = (size_t)st->ans_left;
	if (have > 0) {
		n = (ssize_t)(have < max ? have : max);
		memcpy(buf, st->in + st->in_off, (size_t)n);
		st->in_off += (size_t)n;
	} else {
		n = max > 0 ? svcconn_read(st->up, buf, max) : 0;
	}
	if (n > 0)
		st->ans_left -= (size_t)n;
	if (st->ans_left == 0) {
		body_done(st);
		return n > 0 ? n : 0;
	}
	if (n == -EAGAIN)
		return 0;
	if (n <= 0)
		svc_reset_soon(st, "the service ended in the middle of its answer");
	return n < 0 ? 0 : n;
}

static void
put_piece(struct svc_stream *st, const uint8_t *content, size_t n)
{
	char head[CHUNKED_HEAD + 1];

	if (n == 0)
		return;
	if (st->ans_coded && put(st, head, chunked_put_size(head, n)) < 0)
		return;
	if (put(st, content, n) == 0 && st->ans_coded)
		(void)put(st, "\r\n", 2);
}

/* Chunked, or to the end of the connection: a piece of at most SVC_IN bytes through out. */
static void
fill_coded(struct svc_stream *st)
{
	const uint8_t *content = NULL;
	size_t used = 0, n = 0;
	int r = more(st), done = 0;

	if (r == -EPIPE && st->ans_body == SVC_BODY_CLOSE) {
		body_done(st);
		return;
	}
	if (r < 0)
		svc_reset_soon(st, "the service ended in the middle of its answer");
	if (r <= 0)
		return;
	if (st->ans_body == SVC_BODY_CHUNKED) {
		done = chunked_take(&st->ans_chunked, st->in + st->in_off, st->in_len - st->in_off, &used, &content, &n);
	} else {
		content = st->in + st->in_off;
		n = used = st->in_len - st->in_off;
	}
	st->in_off += used;
	if (done < 0) {
		svc_reset_soon(st, "the service's answer is not chunked as it should be");
		return;
	}
	put_piece(st, content, n);
	if (done == 1)
		body_done(st);
}

static ssize_t
fill_pipe(struct svc_stream *st, uint8_t *buf, size_t max)
{
	size_t have = st->in_len - st->in_off;
	ssize_t n;

	if (have > 0) {
		n = (ssize_t)(have < max ? have : max);
		memcpy(buf, st->in + st->in_off, (size_t)n);
		st->in_off += (size_t)n;
		return n;
	}
	n = svcconn_read(st->up, buf, max);
	if (n > 0 || n == -EAGAIN)
		return n > 0 ? n : 0;
	/* The first side to finish ends both: no protocol that is piped here goes on in one direction. */
	svc_finish(st);
	return 0;
}

ssize_t
svc_relay_fill(struct svc_stream *st, uint8_t *buf, size_t max)
{
	ssize_t n = 0;

	if (st->state == SVC_AT_ANSWER)
		fill_head(st);
	while (st->state == SVC_AT_BODY && n == 0 && outq_len(&st->out) == 0 && st->why[0] == '\0') {
		if (st->ans_body == SVC_BODY_NONE) {
			body_done(st);
		} else if (st->ans_body == SVC_BODY_LENGTH) {
			n = fill_length(st, buf, max);
			if (n == 0 && st->state == SVC_AT_BODY)
				break;
		} else {
			size_t before = st->in_off;
			bool had = st->in_off < st->in_len;

			fill_coded(st);
			if (outq_len(&st->out) == 0 && st->state == SVC_AT_BODY && st->in_len == 0 && !had && before == st->in_off)
				break;
		}
	}
	if (st->state == SVC_AT_PIPE && outq_len(&st->out) == 0)
		n = fill_pipe(st, buf, max);
	return n;
}
