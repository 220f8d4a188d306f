#include "connectd/link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/log.h"
#include "common/trim.h"
#include "connectd/upframes.h"

#define SETTLED_MS	1000	/* after the welcome: the runs that were resumed are under way */

static void retry_due(struct loop_timer *timer);
static void teardown_due(struct loop_timer *timer);
static void stable_due(struct loop_timer *timer);
static void settled_due(struct loop_timer *timer);
static void away_due(struct loop_timer *timer);
static const struct hubconn_cb conn_cb;
static const struct session_ops session_ops;

void
link_init(struct link *link, const struct link_params *params)
{
	*link = (struct link){ .p = *params, .state = CTL_LINK_STARTING, .since = monotime_wall_ns(),
		.last_attempt = MONOTIME_NEVER, .twice = MONOTIME_NEVER };
	backoff_init(&link->backoff, params->conf->retry_min, params->conf->retry_max_local, params->conf->retry_max);
	loop_timer_init(&link->retry, retry_due, link);
	loop_timer_init(&link->teardown, teardown_due, link);
	loop_timer_init(&link->stable, stable_due, link);
	loop_timer_init(&link->settled, settled_due, link);
	loop_timer_init(&link->away, away_due, link);
}

void
link_done(struct link *link)
{
	session_free(link->session);
	link->session = NULL;
	hubconn_free(link->conn);
	link->conn = NULL;
	enroll_wipe(&link->enroll);
	loop_timer_del(link->p.loop, &link->retry);
	loop_timer_del(link->p.loop, &link->teardown);
	loop_timer_del(link->p.loop, &link->stable);
	loop_timer_del(link->p.loop, &link->settled);
	loop_timer_del(link->p.loop, &link->away);
}

void
link_set_state(struct link *link, enum ctl_link_state state)
{
	if (link->state == state)
		return;
	link->state = state;
	link->since = monotime_wall_ns();
	link_tell(link);
}

void
link_set_cause(struct link *link, const char *code, const char *fmt, ...)
{
	va_list ap;

	snprintf(link->cause, sizeof(link->cause), "%s", code);
	va_start(ap, fmt);
	vsnprintf(link->detail, sizeof(link->detail), fmt, ap);
	va_end(ap);
	link_tell(link);
	if (strcmp(link->logged, code) == 0)
		return;
	memcpy(link->logged, link->cause, sizeof(link->logged));
	if (code[0] != '\0')
		log_warn("link: %s: %s", code, link->detail);
}

/* ---- one attempt ---- */

static void
dial(struct link *link)
{
	struct hubconn_params params = { .offer_edgeward1 = link->p.conf->hub_dialect != CONF_DIALECT_CLOOP,
		.insecure = link->p.conf->hub_insecure, .proxy = link->p.conf->hub_proxy,
		.no_proxy = link->p.conf->hub_no_proxy, .connect_timeout_ms = link->p.conf->connect_timeout,
		.write_timeout_ms = link->p.conf->write_timeout, .min_wall_ns = clock_floor_ns(link->p.clock) };
	char url[512], err[200] = "";
	int r;

	if (!link_choose(link, url, sizeof(url), &params.bearer, &params.pins))
		return;
	params.url = url;
	link->upgraded = link->welcomed = link->closing = link->over_set = false;
	link->last_attempt = monotime_now();
	link->attempts++;
	link->peer[0] = '\0';
	link->insecure = strncasecmp(url, "ws://", 5) == 0 || strncasecmp(url, "http://", 7) == 0;
	if (link->insecure && link->p.conf->hub_insecure)
		log_warn("dialling without TLS: the connection is not encrypted (insecure-transport)");
	link_set_state(link, CTL_LINK_RESOLVING);
	r = hubconn_start(link->p.env, link->p.loop, &params, &conn_cb, link, &link->conn, err);
	if (r < 0) {
		struct hubconn_end end = { .cause = HUBCONN_LOCAL, .retry_after_ms = -1 };

		link->conn = NULL;
		snprintf(end.code, sizeof(end.code), "%s", r == -EINVAL ? "config" : "internal");
		snprintf(end.detail, sizeof(end.detail), "%s", err[0] != '\0' ? err : strerror(-r));
		link->stopped = r == -EINVAL;
		link_attempt_ended(link, &end);
	}
}

void
link_kick(struct link *link)
{
	int64_t away = workchan_away_ms(link->p.work);

	/* A session outlives a workerd that is away for a while; beyond that, silence is better than a wrong heartbeat. */
	if (away == 0)
		loop_timer_del(link->p.loop, &link->away);
	else if (away > 0 && away < WORKCHAN_AWAY_MS && !loop_timer_armed(&link->away))
		loop_timer_set_ms(link->p.loop, &link->away, WORKCHAN_AWAY_MS - away);
	if (link->conn != NULL || loop_timer_armed(&link->teardown) || loop_timer_armed(&link->retry))
		return;
	if (away < 0 || away >= WORKCHAN_AWAY_MS) {
		link_set_state(link, CTL_LINK_STARTING);
		if (away < 0)		/* the ordinary course of a start is no news */
			snprintf(link->logged, sizeof(link->logged), "workerd-down");
		link_set_cause(link, "workerd-down", "workerd has not said what it holds; nothing is told to the hub before that");
		return;
	}
	if (strcmp(link->cause, "workerd-down") == 0)	/* it has: an attempt that takes long is not told as that */
		link_set_cause(link, "", "%s", "");
	/* An operator who puts another credential there wants it tried. */
	if (link->stopped && cred_changed(link->p.cred)) {
		log_info("the credential file has changed");
		cred_load(link->p.cred, link->p.cred->dirfd);
		link->stopped = false;
	}
	if (link->stopped && !link->asked) {
		link_set_state(link, CTL_LINK_STOPPED);
		loop_timer_set_ms(link->p.loop, &link->retry, LINK_LOOK_MS);
		return;
	}
	dial(link);
}

static void
retry_due(struct loop_timer *timer)
{
	link_kick(timer->ctx);
}

static void
away_due(struct loop_timer *timer)
{
	struct link *link = timer->ctx;

	if (workchan_away_ms(link->p.work) == 0)
		return;
	if (link->session != NULL)
		session_end(link->session, SESSION_FAILED, 1001, "workerd-down",
		    "workerd has been away for %d s; the session ends so that no run is declared dead", WORKCHAN_AWAY_MS / 1000);
	else
		link_kick(link);
}

/* ---- waking ---- */

static void
dial_soon(struct link *link)
{
	monotime_t now = monotime_now(), floor = monotime_add_ms(link->last_attempt, link->backoff.min_ms);

	/* A storm of events is no storm of attempts. */
	loop_timer_set(link->p.loop, &link->retry, link->last_attempt.ns == INT64_MAX || monotime_before(floor, now) ? now :
	    floor);
}

void
link_wake(struct link *link, const char *why)
{
	if (link->conn != NULL || loop_timer_armed(&link->teardown) || link->stopped)
		return;
	log_debug("link: woken by %s", why);
	if (loop_timer_armed(&link->retry))
		dial_soon(link);
	else
		link_kick(link);
}

void
link_policy_news(struct link *link)
{
	if (link->session != NULL)
		invframe_look(link->session);
}

void
link_upgrade_news(struct link *link)
{
	if (link->session != NULL)
		upframes_tell(link->session);
}

void
link_reconnect(struct link *link)
{
	link->stopped = link->have_spent = false;
	if (link->session != NULL) {
		link->wake_again = true;
		session_end(link->session, SESSION_FAILED, 1000, "reconnect", "the operator asked for a new connection");
	} else if (link->conn != NULL && !link->closing) {
		link->wake_again = link->over_set = true;
		link->over = (struct session_over){ .how = SESSION_FAILED, .code = "reconnect" };
		loop_timer_set(link->p.loop, &link->teardown, monotime_now());
	} else if (link->conn != NULL || loop_timer_armed(&link->teardown)) {
		link->wake_again = true;
	} else {
		dial_soon(link);
	}
}

/* ---- from the connection ---- */

static void
on_stage(enum hubconn_stage stage, void *ctx)
{
	static const enum ctl_link_state states[] = { [HUBCONN_RESOLVING] = CTL_LINK_RESOLVING,
		[HUBCONN_CONNECTING] = CTL_LINK_CONNECTING, [HUBCONN_PROXY] = CTL_LINK_PROXY, [HUBCONN_TLS] = CTL_LINK_TLS,
		[HUBCONN_UPGRADING] = CTL_LINK_UPGRADING, [HUBCONN_OPEN] = CTL_LINK_HELLO };

	link_set_state(ctx, states[stage]);
}

static void
on_opened(bool edgeward1, const char *peer, void *ctx)
{
	struct link *link = ctx;
	bool use_cred = !link->enrolling && link->p.cred->state == CRED_GOOD;
	struct session_params params = { .loop = link->p.loop, .conf = link->p.conf, .policy = link->p.policy,
		.device = link->p.device, .mirror = link->p.mirror, .work = link->p.work, .upgrader = link->p.upgrader, .conn = link->conn,
		.services = link->p.services, .env = link->p.env, .events = link->p.events, .counts = &link->counts,
		.edgeward1 = edgeward1, .statefd = link->p.cred->dirfd, .agent_id = use_cred ? link->p.cred->cred.agent_id : "",
		.name = link->p.conf->device_name[0] != '\0' ? link->p.conf->device_name :
		    link->enrolling ? link->enroll.name : link->p.cred->cred.name,
		.beat_seq = &link->beat_seq, .ops = &session_ops, .ctx = link };

	link->upgraded = true;
	link->edgeward1 = edgeward1;
	snprintf(link->peer, sizeof(link->peer), "%s", peer);
	link_set_state(link, CTL_LINK_HELLO);
	if (session_new(&params, &link->session) < 0)
		hubconn_close(link->conn, 1011, "out of memory");
}

static void
on_text(const uint8_t *data, size_t len, void *ctx)
{
	struct link *link = ctx;

	if (link->session != NULL)
		session_text(link->session, data, len);
}

static void
on_binary(const uint8_t *data, size_t len, void *ctx)
{
	struct link *link = ctx;

	if (link->session != NULL)
		session_binary(link->session, data, len);
}

static void
on_writable(void *ctx)
{
	struct link *link = ctx;

	if (link->session != NULL)
		session_writable(link->session);
}

static void
on_ended(const struct hubconn_end *end, void *ctx)
{
	struct hubconn_end copy = *end;	/* the original goes with the connection */

	link_attempt_ended(ctx, &copy);
}

static const struct hubconn_cb conn_cb = { .stage = on_stage, .opened = on_opened, .text = on_text,
	.binary = on_binary, .writable = on_writable, .ended = on_ended };

/* ---- from the session ---- */

/* Never tears down here: this may be deep inside a call of the connection or of the work channel. */
static void
on_over(const struct session_over *over, void *ctx)
{
	struct link *link = ctx;

	link->over = *over;
	link->over_set = true;
	if (link->state == CTL_LINK_CONNECTED)
		link_set_state(link, CTL_LINK_WAITING);
	link_set_cause(link, over->code, "%s", over->detail);
	loop_timer_set(link->p.loop, &link->teardown, monotime_now());
}

/* The session is wound up first; a polite close frame may still be on its way then. */
static void
teardown_due(struct loop_timer *timer)
{
	struct link *link = timer->ctx;

	session_free(link->session);
	link->session = NULL;
	if (link->conn != NULL && link->over.close_code != 0 && !link->closing) {
		link->closing = true;
		hubconn_close(link->conn, link->over.close_code, link->over.code);
		return;
	}
	link_attempt_ended(link, NULL);
}

static void
on_up(void *ctx)
{
	struct link *link = ctx;

	link->welcomed = true;
	link->sessions++;
	backoff_authorized(&link->backoff);
	link_set_state(link, CTL_LINK_CONNECTED);
	link_set_cause(link, "", "%s", "");
	loop_timer_set_ms(link->p.loop, &link->stable, link->p.conf->stable_after);
	loop_timer_set_ms(link->p.loop, &link->settled, SETTLED_MS);
	log_info("connected to %s as %s (%s)", link->peer, link->p.cred->cred.agent_id,
	    link->edgeward1 ? "edgeward.1" : "cloop");
	if (link->insecure && !link->p.conf->hub_insecure)
		log_warn("the connection is not encrypted");
}

static void
stable_due(struct loop_timer *timer)
{
	struct link *link = timer->ctx;

	backoff_stable(&link->backoff);
	link->attempts = 0;
}

/* Once a session: what the handshake needed is not needed for the rest of it. */
static void
settled_due(struct loop_timer *timer)
{
	trim_memory();
}

static int
on_identity(const char *credential, const char *executor_id, void *ctx)
{
	return link_take_identity(ctx, credential, executor_id);
}

static void
on_server_time(int64_t wall_ns, int64_t server_ns, void *ctx)
{
	struct link *link = ctx;
	int r;

	if (link->insecure)
		return;		/* nobody has proved that this is the hub */
	r = clock_confirm(link->p.clock, wall_ns, server_ns);
	if (r < 0)
		log_warn("the time could not be saved: %s", strerror(-r));
}

static size_t
on_health(const char **codes, size_t max, void *ctx)
{
	const struct link *link = ctx;
	size_t n = 0;

	if (n < max && clock_implausible(link->p.clock, monotime_wall_ns()))
		codes[n++] = "clock-implausible";
	if (n < max && link->insecure)
		codes[n++] = "insecure-transport";
	if (n < max && link->p.policy->problem[0] != '\0')
		codes[n++] = "policy-bad";
	if (n < max && workchan_away_ms(link->p.work) != 0)
		codes[n++] = "workerd-down";
	if (n < max && link->twice.ns != MONOTIME_NEVER.ns && monotime_diff_ms(monotime_now(), link->twice) < LINK_TWICE_TOLD_MS)
		codes[n++] = "identity-duplicate";
	if (n < max && link->p.mirror->refused_some)
		codes[n++] = "too-many-workloads";
	return n;
}

static const struct session_ops session_ops = { .over = on_over, .up = on_up, .identity = on_identity,
	.server_time = on_server_time, .health = on_health };
