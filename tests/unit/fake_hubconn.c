#include "tests/unit/fake_hubconn.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct hubconn *fake_conns;
unsigned fake_started, fake_freed;
int fake_start_result;

struct hubconn *
fake_conn(void)
{
	return fake_conns;
}

static void
end_due(struct loop_timer *timer)
{
	struct hubconn *conn = timer->ctx;

	conn->open = false;
	conn->cb.ended(&conn->end, conn->ctx);
}

int
hubconn_start(struct netenv *env, struct loop *loop, const struct hubconn_params *params, const struct hubconn_cb *cb,
    void *ctx, struct hubconn **ret_conn, char err[200])
{
	struct hubconn *conn;

	(void)env;
	if (fake_start_result < 0) {
		snprintf(err, 200, "the fake does not want to");
		return fake_start_result;
	}
	conn = calloc(1, sizeof(*conn));
	assert(conn != NULL);
	conn->cb = *cb;
	conn->ctx = ctx;
	conn->loop = loop;
	conn->room = SIZE_MAX;
	conn->last_rx = conn->started = monotime_now();
	conn->offer_edgeward1 = params->offer_edgeward1;
	snprintf(conn->url, sizeof(conn->url), "%s", params->url);
	snprintf(conn->bearer, sizeof(conn->bearer), "%s", params->bearer);
	snprintf(conn->pins, sizeof(conn->pins), "%s", params->pins);
	loop_timer_init(&conn->end_timer, end_due, conn);
	conn->next = fake_conns;
	fake_conns = conn;
	fake_started++;
	*ret_conn = conn;
	return 0;
}

void
hubconn_free(struct hubconn *conn)
{
	struct hubconn **p = &fake_conns;
	struct fake_msg *m;

	if (conn == NULL)
		return;
	while (*p != conn)
		p = &(*p)->next;
	*p = conn->next;
	loop_timer_del(conn->loop, &conn->end_timer);
	while ((m = fake_take(conn)) != NULL)
		free(m);
	free(conn->begun);
	free(conn);
	fake_freed++;
}

void
fake_open(struct hubconn *conn, bool edgeward1)
{
	conn->open = true;
	conn->last_rx = monotime_now();
	conn->cb.stage(HUBCONN_OPEN, conn->ctx);
	conn->cb.opened(edgeward1, "192.0.2.1:443", conn->ctx);
}

void
fake_text(struct hubconn *conn, const char *text)
{
	conn->last_rx = monotime_now();
	conn->cb.text((const uint8_t *)text, strlen(text), conn->ctx);
}

void
fake_binary(struct hubconn *conn, const void *data, size_t len)
{
	conn->last_rx = monotime_now();
	conn->cb.binary(data, len, conn->ctx);
}

void
fake_end(struct hubconn *conn, enum hubconn_cause cause, int http_status, uint16_t close_code, const char *code)
{
	conn->end = (struct hubconn_end){ .cause = cause, .http_status = http_status, .close_code = close_code,
		.superseded = strcmp(code, "superseded") == 0,
		.retry_after_ms = conn->end.retry_after_ms == 0 ? -1 : conn->end.retry_after_ms };
	snprintf(conn->end.code, sizeof(conn->end.code), "%s", code);
	snprintf(conn->end.detail, sizeof(conn->end.detail), "the test ended it");
	conn->ended = true;
	loop_timer_set(conn->loop, &conn->end_timer, monotime_now());
}

static int
put(struct hubconn *conn, bool binary, const void *data, size_t len)
{
	struct fake_msg *m;

	/* Nothing may be sent between begin and commit. */
	assert(conn->begun == NULL);
	if (!conn->open || conn->ended || conn->closed)
		return -EPIPE;
	if (len > 1u << 20)
		return -EMSGSIZE;
	m = calloc(1, sizeof(*m) + len + 1);
	assert(m != NULL);
	m->binary = binary;
	m->len = len;
	memcpy(m->data, data, len);
	if (conn->tail != NULL)
		conn->tail->next = m;
	else
		conn->head = m;
	conn->tail = m;
	conn->queued += len;
	return 0;
}

int
hubconn_send_text(struct hubconn *conn, const void *data, size_t len)
{
	return put(conn, false, data, len);
}

int
hubconn_send_binary(struct hubconn *conn, const void *data, size_t len)
{
	return put(conn, true, data, len);
}

static uint8_t *
begin(struct hubconn *conn, size_t len, bool text)
{
	assert(conn->begun == NULL);
	if (!conn->open || conn->ended || conn->closed)
		return NULL;
	if (conn->queued >= conn->room) {
		conn->refused = true;
		return NULL;
	}
	conn->begun = malloc(len);
	assert(conn->begun != NULL);
	conn->begun_size = len;
	conn->begun_text = text;
	return conn->begun;
}

static void
commit(struct hubconn *conn, size_t len, bool text)
{
	uint8_t *p = conn->begun;

	assert(p != NULL && conn->begun_text == text && len <= conn->begun_size);
	conn->begun = NULL;
	if (len > 0)
		put(conn, !text, p, len);
	free(p);
}

uint8_t *
hubconn_bulk_begin(struct hubconn *conn, size_t len)
{
	return begin(conn, len, false);
}

void
hubconn_bulk_commit(struct hubconn *conn, size_t len)
{
	commit(conn, len, false);
}

uint8_t *
hubconn_text_begin(struct hubconn *conn, size_t len)
{
	return begin(conn, len, true);
}

void
hubconn_text_commit(struct hubconn *conn, size_t len)
{
	commit(conn, len, true);
}

void
hubconn_flush(struct hubconn *conn)
{
	conn->flushes++;
}

void
hubconn_close(struct hubconn *conn, uint16_t code, const char *reason)
{
	(void)reason;
	if (conn->closed || conn->ended)
		return;
	fake_end(conn, HUBCONN_CLOSED, 0, code, "closed");
	conn->closed = true;
	conn->close_code = code;
}

enum hubconn_stage
hubconn_stage(const struct hubconn *conn)
{
	return conn->open ? HUBCONN_OPEN : HUBCONN_CONNECTING;
}

monotime_t
hubconn_last_rx(const struct hubconn *conn)
{
	return conn->last_rx;
}

size_t
hubconn_queued(const struct hubconn *conn)
{
	return conn->queued;
}

void
hubconn_counters(const struct hubconn *conn, uint64_t *ret_rx, uint64_t *ret_tx)
{
	(void)conn;
	*ret_rx = *ret_tx = 0;
}

struct fake_msg *
fake_take(struct hubconn *conn)
{
	struct fake_msg *m = conn->head;

	if (m == NULL)
		return NULL;
	conn->head = m->next;
	if (conn->head == NULL)
		conn->tail = NULL;
	m->next = NULL;
	return m;
}

void
fake_drain(struct hubconn *conn)
{
	conn->queued = 0;
	if (!conn->refused)
		return;
	conn->refused = false;
	conn->cb.writable(conn->ctx);
}
