/* Requests of an http stream: what they ask for, what is answered here, and the record of what was dialled for whom. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/eventlog.h"
#include "common/log.h"
#include "connectd/counts.h"
#include "connectd/svc.h"

static const char *
reason_of(unsigned status)
{
	static const struct {
		unsigned status;
		const char *text;
	} reasons[] = {
		{ 200, "OK" }, { 400, "Bad Request" }, { 403, "Forbidden" }, { 404, "Not Found" }, { 405, "Method Not Allowed" },
		{ 408, "Request Timeout" }, { 417, "Expectation Failed" }, { 426, "Upgrade Required" },
		{ 431, "Request Header Fields Too Large" }, { 501, "Not Implemented" }, { 502, "Bad Gateway" },
		{ 503, "Service Unavailable" }, { 504, "Gateway Timeout" },
	};

	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		if (reasons[i].status == status)
			return reasons[i].text;
	return "Error";
}

/* ---- answers of this device itself ---- */

void
svc_answer(struct svc_stream *st, unsigned status, const char *type, const char *headers, const char *body, size_t len)
{
	bool head_only = st->req.done && strcmp(st->req.method, "HEAD") == 0;
	char head[512];
	int n;

	/* What of its body is still to come is not read: the next request would begin nobody knows where. */
	if (!st->req.done || (st->state == SVC_AT_ANSWER ? !st->req_done : svchead_request_body(&st->req) != SVC_BODY_NONE))
		st->close_after = true;
	svc_drop_service(st);
	n = snprintf(head, sizeof(head), "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s%s\r\n", status, reason_of(status), type,
	    len, headers, st->close_after ? "Connection: close\r\n" : "");
	if (n < 0 || (size_t)n >= sizeof(head) || outq_put(&st->out, head, (size_t)n) < 0 ||
	    (!head_only && outq_put(&st->out, body, len) < 0)) {
		svc_reset_soon(st, "out of memory");
		return;
	}
	svc_set_state(st, SVC_AT_SENT);
	mux_want(&st->chan);
}

void
svc_answer_text(struct svc_stream *st, unsigned status, const char *text)
{
	char body[256];
	int n = snprintf(body, sizeof(body), "%s\n", text);

	svc_answer(st, status, "text/plain; charset=utf-8", status == 405 ? "Allow: GET\r\n" : "", body,
	    n < (int)sizeof(body) ? (size_t)n : sizeof(body) - 1);
}

void
svc_bad_request(struct svc_stream *st, int err)
{
	if (err == -EMSGSIZE)
		svc_answer_text(st, 431, "the head of the request is too large");
	else
		svc_answer_text(st, 400, "the request is malformed");
}

void
svc_timed_out(struct svc_stream *st)
{
	if (st->state == SVC_AT_HEAD && st->req.len == 0)
		svc_finish(st);
	else if (st->state == SVC_AT_HEAD)
		svc_answer_text(st, 408, "the request did not come in time");
	else if (st->state == SVC_AT_ANSWER)
		svc_answer_text(st, 504, "upstream error: the service did not answer in time");
	else
		svc_reset_soon(st, st->state == SVC_AT_CLOSE ? "ended" : "nothing has moved for too long");
}

/* ---- the record ---- */

static const char *
subject_of(const struct svc_stream *st, char buf[SERVICE_AUTHORITY_SIZE])
{
	if (st->route.kind == SVC_SSH)
		snprintf(buf, SERVICE_AUTHORITY_SIZE, "sshd");
	else if (st->route.name[0] != '\0')
		snprintf(buf, SERVICE_AUTHORITY_SIZE, "%s", st->route.name);
	else
		service_authority(&st->route.target, buf);
	return buf;
}

/* Each service that a stream reaches once, and each refusal; further requests to the same one are no news. */
static void
record(struct svc_stream *st, const char *what, const char *why)
{
	char subject[SERVICE_AUTHORITY_SIZE], text[sizeof(st->told)];

	if (st->s->p.counts != NULL)
		count_add(st->s->p.counts->services, what);
	subject_of(st, subject);
	snprintf(text, sizeof(text), "%.10s %.250s", what, subject);
	if (strcmp(text, st->told) == 0)
		return;
	memcpy(st->told, text, sizeof(text));
	eventlog_add(st->s->p.events, st->route.kind == SVC_SSH ? "ssh" : "service", subject, "%s for %s%s%s", what,
	    st->actor[0] != '\0' ? st->actor : "the hub", why[0] != '\0' ? ": " : "", why);
	log_info("http stream %u: %s %s%s%s", st->chan.id, subject, what, why[0] != '\0' ? ": " : "", why);
}

void
svc_ended(struct svc_stream *st)
{
	char subject[SERVICE_AUTHORITY_SIZE];
	int64_t s = st->piped.ns == MONOTIME_NEVER.ns ? -1 : monotime_diff_ms(monotime_now(), st->piped) / 1000;

	if (s >= 0)
		eventlog_add(st->s->p.events, st->route.kind == SVC_SSH ? "ssh" : "service", subject_of(st, subject),
		    "ended after %lld s, for %s", (long long)s, st->actor[0] != '\0' ? st->actor : "the hub");
}

/* ---- services ---- */

static void
ready(bool warned, void *ctx)
{
	static const char switched[] = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " SVC_SSH_UPGRADE "\r\n\r\n";
	struct svc_stream *st = ctx;

	st->warned = warned;
	if (!st->redialled)
		record(st, warned ? "warned" : "connected", "");
	if (st->route.kind != SVC_SSH) {
		svc_relay_begin(st);
		return;
	}
	if (outq_put(&st->out, switched, sizeof(switched) - 1) < 0) {
		svc_reset_soon(st, "out of memory");
		return;
	}
	st->piped = monotime_now();
	svc_set_state(st, SVC_AT_PIPE);
	mux_want(&st->chan);
	loop_timer_set(st->s->p.loop, &st->soon, monotime_now());
}

static void
answer_denied(struct svc_stream *st, const char *why)
{
	char body[6 * SVCJUDGE_WHY + 128];	/* every character escaped */
	struct json_w w;
	size_t len = 0;

	json_w_init(&w, body, sizeof(body));
	json_w_obj(&w, NULL);
	json_w_str(&w, "error", "target host not allowed");
	json_w_str(&w, "reason", why);
	json_w_end_obj(&w);
	(void)json_w_done(&w, &len);
	svc_answer(st, 403, "application/json", SVC_POLICY_HEADER ": enforce\r\n", body, len);
}

static void
failed(const struct svcconn_end *end, void *ctx)
{
	struct svc_stream *st = ctx;
	char text[SVCJUDGE_WHY + 32];

	record(st, end->status == 403 ? "refused" : end->untrusted ? "untrusted" : "failed", end->why);
	snprintf(text, sizeof(text), "upstream error: %s", end->why);
	if (end->status == 403)
		answer_denied(st, end->why);
	else
		svc_answer_text(st, end->status, text);
}

static void
readable(void *ctx)
{
	struct svc_stream *st = ctx;

	if (st->state == SVC_AT_HEAD)
		svc_drop_service(st);	/* kept, and it ends or says something unasked */
	else
		mux_want(&st->chan);
}

static void
writable(void *ctx)
{
	struct svc_stream *st = ctx;

	mux_resume(&st->chan);
}

/* Sent a second time these do no harm: a kept connection may end in the very moment it is used. */
static bool
is_safe(const struct svc_stream *st)
{
	const char *m = st->req.method;

	return !st->route.upgrade && svchead_request_body(&st->req) == SVC_BODY_NONE &&
	    (strcmp(m, "GET") == 0 || strcmp(m, "HEAD") == 0 || strcmp(m, "OPTIONS") == 0);
}

static void
dial(struct svc_stream *st, bool sshd)
{
	static const struct svcconn_cb cb = { .ready = ready, .failed = failed, .readable = readable, .writable = writable };
	const struct session_params *p = &st->s->p;
	struct svcconn_params params = { .loop = p->loop, .env = p->env, .policy = p->policy, .target = st->route.target,
		.insecure = st->route.insecure, .sshd = sshd, .timeout_ms = p->conf->service_connect };
	bool warned;

	memcpy(params.name, st->route.name, sizeof(params.name));
	st->again = st->up != NULL && is_safe(st) && svcconn_serves(st->up, &params, &warned);
	if (st->again) {
		loop_timer_del(p->loop, &st->kept);
		ready(warned, st);
		return;
	}
	svc_drop_service(st);
	svc_set_state(st, SVC_AT_DIAL);
	if (svcconn_open(&params, &cb, st, &st->up) < 0)
		svc_answer_text(st, 503, "this device is out of memory");
}

void
svc_redial(struct svc_stream *st)
{
	svc_drop_service(st);
	st->redialled = true;
	dial(st, false);
}

static void
proxy(struct svc_stream *st)
{
	if (st->route.name[0] != '\0' && !svc_list_find(st->s->p.conf, st->route.name, &st->route.target)) {
		svc_answer_text(st, 404, "no service of that name is declared on this device");
		return;
	}
	if (st->route.upgrade)
		st->close_after = true;
	dial(st, false);
}

static void
ssh(struct svc_stream *st)
{
	const struct policy *policy = st->s->p.policy;
	char where[POLICY_WHERE], text[200];

	st->close_after = true;
	st->route.target = (struct service_target){ .scheme = SERVICE_HTTP, .port = (uint16_t)policy->ssh_port, .host = "localhost" };
	if (policy->ssh && policy->serve && !policy->denied) {
		dial(st, true);
		return;
	}
	snprintf(text, sizeof(text), "ssh proxy is not enabled for this edge: %s", policy_where(policy, POLICY_SSH, where));
	record(st, "refused", text);
	svc_answer_text(st, 501, text);
}

void
svc_request(struct svc_stream *st)
{
	static const char good[] = "{\"status\":\"ok\"}";

	st->close_after = st->req.minor == 0 || http_has_token(&st->req, "Connection", "close");
	svcroute_decide(&st->req, st->purpose, &st->route);
	switch (st->route.kind) {
	case SVC_REFUSED:
		svc_answer_text(st, st->route.status, st->route.text);
		break;
	case SVC_STATUS:
		svc_answer(st, 200, "application/json", "", good, sizeof(good) - 1);
		break;
	case SVC_LIST:
		eventlog_add(st->s->p.events, "services", "", "listed for %s", st->actor[0] != '\0' ? st->actor : "the hub");
		svc_set_state(st, SVC_AT_LIST);
		svc_list_begin(st);
		break;
	case SVC_PROXY:
		proxy(st);
		break;
	case SVC_SSH:
		ssh(st);
		break;
	}
}
