/*
 * Life of an attempt. Whatever ends it comes through hubconn_finish(), of which the first call counts; the resources go
 * and ended() is called from a timer, so never from inside a call of the owner's, and not while our own callers still
 * hold pointers. hubconn_free() inside a callback marks the object; the outermost hubconn_leave() takes it apart.
 */
#include "connectd/hubconn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/hubconn_impl.h"

/* Gives back all that was taken from outside. Safe to call twice. */
static void
release(struct hubconn *conn)
{
	dial_free(conn->dial);
	conn->dial = NULL;
	loop_io_del(conn->loop, &conn->io);
	loop_timer_del(conn->loop, &conn->deadline);
	loop_timer_del(conn->loop, &conn->soon);
	loop_timer_del(conn->loop, &conn->more);
	loop_timer_del(conn->loop, &conn->stall);
	conn->rx += conn->t.rx;
	conn->tx += conn->t.tx;
	transport_done(&conn->t);
	ws_free(conn->ws);
	conn->ws = NULL;
	free(conn->upgrade);
	conn->upgrade = NULL;
	free(conn->early);
	conn->early = NULL;
	outq_done(&conn->out);
	if (conn->bearer != NULL)
		explicit_bzero(conn->bearer, strlen(conn->bearer));
	free(conn->bearer);
	conn->bearer = NULL;
	explicit_bzero(&conn->params.proxy, sizeof(conn->params.proxy));
}

void
hubconn_enter(struct hubconn *conn)
{
	conn->depth++;
}

bool
hubconn_leave(struct hubconn *conn)
{
	if (--conn->depth > 0 || !conn->doomed)
		return true;
	release(conn);
	free(conn);
	return false;
}

void
hubconn_free(struct hubconn *conn)
{
	if (conn == NULL)
		return;
	conn->doomed = true;
	if (conn->ws != NULL)
		ws_stop(conn->ws);
	if (conn->depth > 0)
		return;
	release(conn);
	free(conn);
}

void
hubconn_finish(struct hubconn *conn, const struct hubconn_end *end)
{
	if (conn->ended)
		return;
	conn->ended = true;
	conn->end = *end;
	conn->end.answered = conn->end.answered || conn->answered;
	loop_io_del(conn->loop, &conn->io);
	loop_timer_del(conn->loop, &conn->deadline);
	loop_timer_del(conn->loop, &conn->stall);
	loop_timer_del(conn->loop, &conn->more);
	if (conn->ws != NULL)
		ws_stop(conn->ws);
	/* It may be armed already, for a flush: the end is as soon. */
	loop_timer_set(conn->loop, &conn->soon, monotime_now());
}

void
hubconn_finish_errno(struct hubconn *conn, int err)
{
	struct hubconn_end end;

	if (conn->closing) {
		hubconn_finish(conn, &conn->end);
		return;
	}
	if (err == -ETIMEDOUT && conn->stage == HUBCONN_OPEN)
		hubend_set(&end, HUBCONN_STALLED, conn->stage, "stalled", "nothing of what was sent was acknowledged in time");
	else if (err == -ENOMEM || err == -EIO)
		hubend_set(&end, HUBCONN_LOCAL, conn->stage, "internal", "this device is short of memory or randomness");
	else
		hubend_set(&end, HUBCONN_LOST, conn->stage, "lost", "the connection was lost: %s",
		    err == 0 ? "closed without a word" : strerror(-err));
	hubconn_finish(conn, &end);
}

void
hubconn_linger(struct hubconn *conn, const struct hubconn_end *end)
{
	if (conn->closing || conn->ended)
		return;
	conn->closing = true;
	conn->end = *end;
	loop_timer_del(conn->loop, &conn->stall);
	loop_timer_set_ms(conn->loop, &conn->deadline, HUBCONN_CLOSE_MS);
	hubconn_schedule(conn);
}

static void
deadline_passed(struct loop_timer *timer)
{
	struct hubconn *conn = timer->ctx;
	struct hubconn_end end;

	if (conn->closing) {
		hubconn_finish(conn, &conn->end);
		return;
	}
	hubend_set(&end, HUBCONN_TIMEOUT, conn->stage, "timeout", "the hub did not answer the upgrade in time");
	hubconn_finish(conn, &end);
}

/* What was put off until now: the end, or bytes that wait to leave. */
static void
soon(struct loop_timer *timer)
{
	struct hubconn *conn = timer->ctx;

	hubconn_enter(conn);
	if (conn->ended) {
		struct hubconn_end end = conn->end;

		release(conn);
		if (!conn->doomed)
			conn->cb.ended(&end, conn->ctx);
	} else {
		(void)hubconn_push(conn);
		hubconn_tell_writable(conn);
	}
	hubconn_leave(conn);
}

void
hubconn_set_stage(struct hubconn *conn, enum hubconn_stage stage)
{
	conn->stage = stage;
	conn->cb.stage(stage, conn->ctx);
}

static void
dial_stage(enum hubconn_stage stage, void *ctx)
{
	struct hubconn *conn = ctx;

	/* hubconn_free() must take the dial with it at once: it stands right above us and asks whether it is still there. */
	hubconn_set_stage(conn, stage);
}

static void
dial_failed(const struct hubconn_end *end, void *ctx)
{
	hubconn_finish(ctx, end);
}

static int
init(struct hubconn *conn, const struct hubconn_params *params, char err[200])
{
	static const struct dial_cb dial_cb = { .stage = dial_stage, .done = hubconn_dialled, .failed = dial_failed };
	int r = dial_params_init(&conn->params, params, netenv_proxy(conn->env), err);

	if (r < 0)
		return r;
	if (!upgrade_bearer_ok(params->bearer)) {
		snprintf(err, 200, "the credential or token has a character that cannot be sent, or is too long");
		return -EINVAL;
	}
	conn->bearer = strdup(params->bearer);
	if (conn->bearer == NULL)
		return -ENOMEM;
	conn->offer = params->offer_edgeward1;
	conn->write_timeout_ms = params->write_timeout_ms;
	conn->total = monotime_add_ms(monotime_now(), DIAL_TOTAL * params->connect_timeout_ms);
	return dial_start(conn->env, conn->loop, &conn->params, &dial_cb, conn, &conn->t, &conn->dial);
}

int
hubconn_start(struct netenv *env, struct loop *loop, const struct hubconn_params *params, const struct hubconn_cb *cb,
    void *ctx, struct hubconn **ret_conn, char err[200])
{
	struct hubconn *conn = calloc(1, sizeof(*conn));
	int r;

	snprintf(err, 200, "out of memory or descriptors");
	if (conn == NULL)
		return -ENOMEM;
	conn->loop = loop;
	conn->env = env;
	conn->cb = *cb;
	conn->ctx = ctx;
	conn->io.fd = conn->t.fd = -1;
	loop_timer_init(&conn->deadline, deadline_passed, conn);
	loop_timer_init(&conn->soon, soon, conn);
	loop_timer_init(&conn->more, hubconn_read_more, conn);
	loop_timer_init(&conn->stall, hubconn_stalled, conn);
	r = init(conn, params, err);
	if (r < 0) {
		hubconn_free(conn);
		return r;
	}
	*ret_conn = conn;
	return 0;
}

enum hubconn_stage
hubconn_stage(const struct hubconn *conn)
{
	return conn->stage;
}

monotime_t
hubconn_last_rx(const struct hubconn *conn)
{
	return conn->last_rx;
}

size_t
hubconn_queued(const struct hubconn *conn)
{
	return outq_len(&conn->out) + transport_pending(&conn->t);
}

void
hubconn_counters(const struct hubconn *conn, uint64_t *ret_rx, uint64_t *ret_tx)
{
	*ret_rx = conn->rx + conn->t.rx;
	*ret_tx = conn->tx + conn->t.tx;
}
