/*
 * The channel of an http stream. Bytes of the hub come by take(), are asked for by fill(); in fill() nothing of the channel may be taken away, so
 * what ends there is marked and done from the loop. One request at a time: what the hub sends ahead waits in its window.
 *
 * Bounded: streams by [services] streams, and as many again that are being closed; a stream by its heads, SVC_IN, the service's queue (SVCCONN_QUEUE) and the window; each wait has
 * its limit, counted from the last thing that moved.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/eventlog.h"
#include "common/log.h"
#include "connectd/streams.h"
#include "connectd/svc.h"

#define CLOSE_MS	10000	/* for the hub to end its direction, too */
#define IDLE_MS		30000	/* a stream that has served waits for another request */
#define KEEP_MS		1000	/* a connection waits for another request: small servers have few, so not for long */

static void
free_stream(struct svc_stream *st)
{
	struct session *s = st->s;
	struct svc_stream **p = &s->svcs;

	while (*p != st)
		p = &(*p)->next;
	*p = st->next;
	s->nsvcs--;
	svc_ended(st);
	svc_drop_service(st);
	svc_list_free(st->list);
	loop_timer_del(s->p.loop, &st->soon);
	loop_timer_del(s->p.loop, &st->deadline);
	loop_timer_del(s->p.loop, &st->kept);
	outq_done(&st->out);
	explicit_bzero(&st->req, sizeof(st->req));	/* cookies, passwords */
	free(st);
}

/* ---- time ---- */

static int64_t
limit_ms(const struct svc_stream *st)
{
	const struct conf *conf = st->s->p.conf;

	switch (st->state) {
	case SVC_AT_ANSWER:
		return st->route.upgrade || st->req_done ? conf->service_answer : conf->service_idle;
	case SVC_AT_HEAD:
		return st->served && st->req.len == 0 && IDLE_MS < conf->service_idle ? IDLE_MS : conf->service_idle;
	case SVC_AT_BODY:
	case SVC_AT_SENT:
		return conf->service_idle;
	case SVC_AT_CLOSE:
		return CLOSE_MS;
	case SVC_AT_DIAL:	/* these have limits of their own */
	case SVC_AT_LIST:
	case SVC_AT_PIPE:	/* a terminal may be silent for days; it ends with the link */
		break;
	}
	return -1;
}

void
svc_moved(struct svc_stream *st)
{
	st->progress = monotime_now();
}

static void
deadline_due(struct loop_timer *timer)
{
	struct svc_stream *st = timer->ctx;
	int64_t limit = limit_ms(st), left;

	if (limit < 0)
		return;
	left = limit - monotime_diff_ms(monotime_now(), st->progress);
	if (left > 0)
		loop_timer_set_ms(st->s->p.loop, timer, left);
	else
		svc_timed_out(st);
}

void
svc_set_state(struct svc_stream *st, enum svc_state state)
{
	st->state = state;
	svc_moved(st);
	if (limit_ms(st) >= 0)
		loop_timer_set_ms(st->s->p.loop, &st->deadline, limit_ms(st));
	else
		loop_timer_del(st->s->p.loop, &st->deadline);
}

/* ---- ends ---- */

void
svc_drop_service(struct svc_stream *st)
{
	svcconn_free(st->up);
	st->up = NULL;
	loop_timer_del(st->s->p.loop, &st->kept);
}

static void
kept_long_enough(struct loop_timer *timer)
{
	svc_drop_service(timer->ctx);
}

void
svc_finish(struct svc_stream *st)
{
	svc_drop_service(st);
	svc_set_state(st, SVC_AT_CLOSE);
	mux_want(&st->chan);
}

void
svc_reset_soon(struct svc_stream *st, const char *why)
{
	if (st->why[0] != '\0')
		return;
	snprintf(st->why, sizeof(st->why), "%s", why);
	loop_timer_set(st->s->p.loop, &st->soon, monotime_now());
}

static void
await_request(struct svc_stream *st)
{
	/* What came behind its answer was not asked for. */
	if (st->up != NULL && st->keep && st->in_off == st->in_len)
		loop_timer_set_ms(st->s->p.loop, &st->kept, KEEP_MS);
	else
		svc_drop_service(st);
	st->in_off = st->in_len = 0;
	st->interim = 0;
	st->req_done = st->req_void = st->warned = st->redialled = false;
	st->served = true;
	http_init(&st->req, HTTP_REQUEST);
	svc_set_state(st, SVC_AT_HEAD);
}

static void
next_request(struct svc_stream *st)
{
	if (st->close_after || st->peer_ended)
		svc_finish(st);		/* what was sent behind it is of no use any more */
	else
		await_request(st);
	mux_resume(&st->chan);
}

static void
soon_due(struct loop_timer *timer)
{
	struct svc_stream *st = timer->ctx;

	if (st->why[0] != '\0') {
		log_debug("http stream %u: %s", st->chan.id, st->why);
		mux_reset(&st->chan, STREAM_RESET_INTERNAL, st->why);
		free_stream(st);
	} else if (st->state == SVC_AT_PIPE) {
		if (st->peer_ended)
			svcconn_end(st->up);
		mux_resume(&st->chan);
	} else {
		next_request(st);
	}
}

/* ---- the channel ---- */

static ssize_t
take_head(struct svc_stream *st, const uint8_t *data, size_t len)
{
	size_t used;
	int r = http_feed(&st->req, data, len, &used);

	if (r == 1)
		svc_request(st);
	else if (r < 0)
		svc_bad_request(st, r);
	return (ssize_t)used;
}

static ssize_t
take_some(struct svc_stream *st, const uint8_t *data, size_t len)
{
	if (st->why[0] != '\0')
		return (ssize_t)len;
	switch (st->state) {
	case SVC_AT_HEAD:
		return take_head(st, data, len);
	case SVC_AT_ANSWER:
	case SVC_AT_BODY:
	case SVC_AT_PIPE:
		return svc_relay_take(st, data, len);
	case SVC_AT_CLOSE:
		return (ssize_t)len;
	case SVC_AT_DIAL:
	case SVC_AT_LIST:
	case SVC_AT_SENT:
		break;
	}
	return 0;
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	size_t done = 0;
	ssize_t n = 1;

	while (done < len && n > 0) {
		n = take_some(c->ctx, data + done, len - done);
		done += (size_t)n;
	}
	return (ssize_t)done;
}

/* What is in out, else of the service. */
static ssize_t
fill_some(struct svc_stream *st, uint8_t *buf, size_t max)
{
	ssize_t n = 0;

	if (outq_len(&st->out) == 0 && (st->state == SVC_AT_ANSWER || st->state == SVC_AT_BODY || st->state == SVC_AT_PIPE))
		n = svc_relay_fill(st, buf, max);
	if (n == 0 && outq_len(&st->out) > 0) {
		n = (ssize_t)(outq_len(&st->out) < max ? outq_len(&st->out) : max);
		memcpy(buf, outq_data(&st->out), (size_t)n);
		outq_drop(&st->out, (size_t)n);
	}
	return n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct svc_stream *st = c->ctx;
	ssize_t n = 0, some = 1;

	while (st->why[0] == '\0' && some > 0 && (size_t)n < max) {
		some = fill_some(st, buf + n, max - (size_t)n);
		n += some;
	}
	if (n > 0)
		svc_moved(st);
	/* With nothing of the hub's to give to it, the next request can be awaited here; else from the loop. */
	if (outq_len(&st->out) == 0 && st->state == SVC_AT_SENT && st->why[0] == '\0' && !st->close_after && !st->peer_ended &&
	    c->kept_off == c->kept_len)
		await_request(st);
	else if (outq_len(&st->out) == 0 && st->state == SVC_AT_SENT)
		loop_timer_set(st->s->p.loop, &st->soon, monotime_now());
	else if (outq_len(&st->out) == 0 && st->state == SVC_AT_CLOSE)
		mux_end(c, NULL);
	return n;
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	struct svc_stream *st = c->ctx;

	st->peer_ended = true;
	switch (st->state) {
	case SVC_AT_HEAD:
		svc_finish(st);
		break;
	case SVC_AT_PIPE:
		svcconn_end(st->up);
		break;
	case SVC_AT_ANSWER:
	case SVC_AT_BODY:
		if (!st->req_done && !st->req_void)
			svc_reset_soon(st, "the request ended early");
		break;
	case SVC_AT_DIAL:
		if (st->route.kind == SVC_SSH || st->route.upgrade || svchead_request_body(&st->req) != SVC_BODY_NONE)
			svc_reset_soon(st, "the request ended early");
		break;
	case SVC_AT_LIST:
	case SVC_AT_SENT:
	case SVC_AT_CLOSE:
		break;
	}
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	free_stream(c->ctx);
}

static const struct mux_kind kind = { .class = MUX_HTTP, .take = take, .ended = ended, .fill = fill, .closed = closed };

/* ---- the frame ---- */

/* Between two requests, and nothing of the next one is here. */
static bool
is_idle(const struct svc_stream *st)
{
	return st->state == SVC_AT_HEAD && st->served && st->req.len == 0 && st->chan.kept_off == st->chan.kept_len && !st->peer_ended;
}

/* Room for one more, for which the one that has been idle longest is ended. It counts no more, though the hub has yet to end it, too. */
static bool
make_room(struct session *s)
{
	struct svc_stream *idle = NULL;
	unsigned busy = 0, limit = s->p.conf->service_streams;

	for (struct svc_stream *st = s->svcs; st != NULL; st = st->next) {
		if (st->state == SVC_AT_CLOSE)
			continue;
		busy++;
		if (is_idle(st) && (idle == NULL || monotime_diff_ms(st->progress, idle->progress) < 0))
			idle = st;
	}
	if (s->nsvcs >= 2 * limit || (busy >= limit && idle == NULL))
		return false;
	if (busy >= limit)
		svc_finish(idle);
	return true;
}

static const char *
may_open(struct session *s, enum svc_purpose purpose, char buf[200], const char **ret_code)
{
	const struct policy *policy = s->p.policy;
	char where[POLICY_WHERE];

	*ret_code = "policy";
	buf[0] = '\0';
	if (policy->denied)
		snprintf(buf, 200, "%.150s; nothing is served until that is put right", policy->problem);
	else if (!policy->serve)
		snprintf(buf, 200, "%s = no", policy_where(policy, POLICY_SERVE, where));
	else if (purpose == SVC_FOR_SSH && !policy->ssh)
		snprintf(buf, 200, "%s = no: ssh proxy is not enabled for this edge", policy_where(policy, POLICY_SSH, where));
	if (buf[0] != '\0')
		return buf;
	*ret_code = "busy";
	return make_room(s) ? NULL : "as many http streams are open as this device allows ([services] streams)";
}

static void
refuse(struct session *s, const struct cloop_frame *f, const char *code, const char *why)
{
	session_send_error(s, f->id, code, why);
	eventlog_add(s->p.events, "service", "", "http stream refused: %s", why);
}

static void
open_stream(struct session *s, const struct cloop_frame *f, uint32_t channel)
{
	enum svc_purpose purpose = svcroute_purpose(json_get_str(f->payload, "purpose"));
	const char *code = "protocol", *why = "purpose must be status, svc or ssh";
	struct svc_stream *st;
	char buf[200];
	struct json_w w;

	if (purpose != SVC_PURPOSES)
		why = may_open(s, purpose, buf, &code);
	if (why != NULL) {
		refuse(s, f, code, why);
		return;
	}
	st = calloc(1, sizeof(*st));
	if (st == NULL || mux_open(&s->mux, &st->chan, channel, &kind, st, 0, 0, 0, 0) < 0) {
		free(st);
		refuse(s, f, "busy", "too many streams are open");
		return;
	}
	st->s = s;
	st->purpose = purpose;
	st->piped = MONOTIME_NEVER;
	json_copy_str(f->payload, "actor", buf, sizeof(st->actor));
	log_quote(st->actor, sizeof(st->actor), buf, strlen(buf));
	loop_timer_init(&st->soon, soon_due, st);
	loop_timer_init(&st->deadline, deadline_due, st);
	loop_timer_init(&st->kept, kept_long_enough, st);
	http_init(&st->req, HTTP_REQUEST);
	st->next = s->svcs;
	s->svcs = st;
	s->nsvcs++;
	svc_set_state(st, SVC_AT_HEAD);
	streams_begin_opened(s, &w, f, channel);
	session_send(s, &w);
}

const struct services svcstream_services = { .open = open_stream };
