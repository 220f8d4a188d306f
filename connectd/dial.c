/*
 * A callback of ours may be the owner's last word (dial_free() inside it), so nothing here is touched after one that
 * ends the attempt, and stage() is followed by a look at whether we are still wanted.
 */
#include "connectd/dial.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/dns.h"
#include "connectd/outq.h"
#include "connectd/race.h"
#include "connectd/tls.h"

struct dial {
	struct loop *loop;
	struct netenv *env;
	struct dial_params params;
	struct dial_cb cb;
	void *ctx;
	enum hubconn_stage stage;
	struct dns_query *dns;
	struct race *race;
	struct transport *t;
	uint64_t rx_before;		/* what the proxy said is no answer of the hub */
	struct loop_io io;
	struct loop_timer deadline;
	monotime_t total;
	struct proxy_talk *talk;
	struct outq out;		/* what the proxy has still to get */
	const char *what;		/* whom we talk to, for sentences */
	bool *freed;			/* set by dial_free() inside a callback */
	char peer[DIAL_PEER_SIZE];
};

/* Stops everything but the object itself. */
static void
quiet(struct dial *dial)
{
	loop_io_del(dial->loop, &dial->io);
	loop_timer_del(dial->loop, &dial->deadline);
	dns_free(dial->dns);
	dial->dns = NULL;
	race_free(dial->race);
	dial->race = NULL;
	if (dial->talk != NULL)
		explicit_bzero(dial->talk, sizeof(*dial->talk));
	free(dial->talk);
	dial->talk = NULL;
	outq_done(&dial->out);
}

static void
fail(struct dial *dial, struct hubconn_end *end)
{
	quiet(dial);
	dial->cb.failed(end, dial->ctx);
}

static void
fail_errno(struct dial *dial, int err)
{
	struct hubconn_end end;

	hubend_set_errno(&end, dial->stage, err, dial->what);
	if (dial->stage == HUBCONN_PROXY || (dial->params.proxy.kind != PROXY_NONE && dial->stage == HUBCONN_CONNECTING &&
	    end.cause != HUBCONN_LOCAL)) {
		end.cause = HUBCONN_PROXY_FAILED;
		memcpy(end.code, "proxy", sizeof("proxy"));
	}
	fail(dial, &end);
}

static void
progress(struct dial *dial)
{
	monotime_t when = monotime_add_ms(monotime_now(), dial->params.timeout_ms);

	loop_timer_set(dial->loop, &dial->deadline, monotime_before(when, dial->total) ? when : dial->total);
}

static void
deadline_passed(struct loop_timer *timer)
{
	static const char *const at[] = {
		[HUBCONN_RESOLVING] = "the name server", [HUBCONN_CONNECTING] = "the hub's addresses",
		[HUBCONN_PROXY] = "the proxy", [HUBCONN_TLS] = "the TLS handshake",
	};
	struct dial *dial = timer->ctx;
	struct hubconn_end end;

	hubend_set(&end, HUBCONN_TIMEOUT, dial->stage, "timeout", "no answer from %s in time", at[dial->stage]);
	fail(dial, &end);
}

/* False: the owner has ended us. */
static bool
enter(struct dial *dial, enum hubconn_stage stage)
{
	bool freed = false;

	dial->stage = stage;
	progress(dial);
	dial->freed = &freed;
	dial->cb.stage(stage, dial->ctx);
	if (!freed)
		dial->freed = NULL;
	return !freed;
}

static void
done(struct dial *dial)
{
	quiet(dial);
	dial->cb.done(dial->peer, dial->ctx);
}

static void
go_on_tls(struct dial *dial)
{
	struct hubconn_end end;
	uint64_t rx = dial->t->rx;
	int r = tls_handshake(dial->t);

	if (r == 0) {
		if (dial->t->rx != rx)
			progress(dial);
		return;
	}
	if (r < 0)
		tls_why(dial->t, r, TLS_HUB, &dial->params.url, dial->params.min_wall_ns, &end);
	else if (tls_check_pins(dial->t, &dial->params.pins, &end) == 0) {
		done(dial);
		return;
	}
	end.answered = dial->t->rx > dial->rx_before;
	fail(dial, &end);
}

/* The socket leads to the hub: TLS, or for plaintext nothing more. */
static void
start_tls(struct dial *dial)
{
	int r;

	if (!dial->params.url.tls) {
		done(dial);
		return;
	}
	dial->rx_before = dial->t->rx;
	if (!enter(dial, HUBCONN_TLS))
		return;
	r = tls_start(dial->t, netenv_trust(dial->env), &dial->params.url, dial->params.min_wall_ns);
	if (r < 0)
		fail_errno(dial, r);
	else
		go_on_tls(dial);
}

static void
proxy_refused(struct dial *dial)
{
	struct hubconn_end end;

	hubend_set(&end, HUBCONN_PROXY_FAILED, HUBCONN_PROXY, dial->talk->auth_failed ? "proxy-auth" : "proxy", "%s",
	    dial->talk->detail);
	end.http_status = dial->talk->http_status;
	fail(dial, &end);
}

/* Puts what the talk wants to say on its way. */
static int
say_to_proxy(struct dial *dial)
{
	struct proxy_talk *talk = dial->talk;
	int r = outq_put(&dial->out, talk->out, talk->out_len);

	explicit_bzero(talk->out, talk->out_len);
	talk->out_len = 0;
	if (r == 0)
		r = transport_push(dial->t, &dial->out);
	return r == -EAGAIN ? 0 : r;
}

static void
go_on_proxy(struct dial *dial)
{
	uint8_t buf[2048];
	ssize_t n;
	int r = say_to_proxy(dial);

	while (r == 0 && (n = transport_read(dial->t, buf, sizeof(buf))) != -EAGAIN) {
		if (n < 0) {
			r = (int)n;
			break;
		}
		progress(dial);
		if (n == 0)
			proxy_talk_eof(dial->talk);
		r = n > 0 ? proxy_talk_feed(dial->talk, buf, (size_t)n) : -EPROTO;
		if (r == 0)
			r = say_to_proxy(dial);
	}
	if (r == -EPROTO)
		proxy_refused(dial);
	else if (r < 0)
		fail_errno(dial, r);
	else if (r == 1)
		start_tls(dial);
}

static void
transport_ready(struct loop_io *io, uint32_t events)
{
	struct dial *dial = io->ctx;

	(void)events;
	if (dial->stage == HUBCONN_PROXY)
		go_on_proxy(dial);
	else
		go_on_tls(dial);
}

static void
start_proxy(struct dial *dial)
{
	dial->what = "the proxy";
	dial->talk = malloc(sizeof(*dial->talk));
	if (dial->talk == NULL) {
		fail_errno(dial, -ENOMEM);
		return;
	}
	proxy_talk_start(dial->talk, &dial->params.proxy, &dial->params.url);
	if (enter(dial, HUBCONN_PROXY))
		go_on_proxy(dial);
}

static void
raced(int fd, const union netaddr *peer, void *ctx)
{
	struct dial *dial = ctx;
	char text[NETADDR_TEXT_SIZE];
	int r;

	if (fd < 0) {
		fail_errno(dial, fd);
		return;
	}
	transport_init(dial->t, fd);
	netaddr_format(peer, text);
	snprintf(dial->peer, sizeof(dial->peer), "%s%s", dial->params.proxy.kind != PROXY_NONE ? "proxy " : "", text);
	dns_free(dial->dns);
	dial->dns = NULL;
	r = loop_io_add(dial->loop, &dial->io, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, transport_ready, dial);
	if (r < 0)
		fail_errno(dial, r);
	else if (dial->params.proxy.kind != PROXY_NONE)
		start_proxy(dial);
	else
		start_tls(dial);
}

static void
resolved(const union netaddr *addrs, size_t n, bool last, const char *why, void *ctx)
{
	struct dial *dial = ctx;
	struct hubconn_end end;

	if (why != NULL || (last && n == 0 && dial->stage == HUBCONN_RESOLVING)) {
		hubend_set(&end, HUBCONN_DNS_FAILED, HUBCONN_RESOLVING, "dns", "%.80s cannot be resolved: %.80s",
		    dial->params.proxy.kind != PROXY_NONE ? dial->params.proxy.host : dial->params.url.host,
		    why != NULL ? why : "no address");
		fail(dial, &end);
		return;
	}
	race_add(dial->race, addrs, n, last);
	if (dial->stage == HUBCONN_RESOLVING)
		(void)enter(dial, HUBCONN_CONNECTING);
}

int
dial_start(struct netenv *env, struct loop *loop, const struct dial_params *params, const struct dial_cb *cb, void *ctx,
    struct transport *t, struct dial **ret_dial)
{
	struct dial *dial = calloc(1, sizeof(*dial));
	bool proxied = params->proxy.kind != PROXY_NONE;
	int r;

	if (dial == NULL)
		return -ENOMEM;
	dial->loop = loop;
	dial->env = env;
	dial->params = *params;
	dial->cb = *cb;
	dial->ctx = ctx;
	dial->t = t;
	dial->io.fd = -1;
	dial->what = proxied ? "the proxy" : "the hub";
	dial->stage = HUBCONN_RESOLVING;
	loop_timer_init(&dial->deadline, deadline_passed, dial);
	dial->total = monotime_add_ms(monotime_now(), DIAL_TOTAL * params->timeout_ms);
	r = race_new(loop, (unsigned)params->user_timeout_ms, raced, dial, &dial->race);
	if (r == 0 && proxied)
		r = dns_start(loop, params->proxy.host, params->proxy.ip, params->proxy.ip6, params->proxy.port, resolved, dial,
		    &dial->dns);
	else if (r == 0)
		r = dns_start(loop, params->url.host, params->url.ip, params->url.ip6, params->url.port, resolved, dial,
		    &dial->dns);
	if (r < 0) {
		dial_free(dial);
		return r;
	}
	progress(dial);
	*ret_dial = dial;
	return 0;
}

void
dial_free(struct dial *dial)
{
	if (dial == NULL)
		return;
	if (dial->freed != NULL)
		*dial->freed = true;
	quiet(dial);
	explicit_bzero(&dial->params.proxy, sizeof(dial->params.proxy));
	free(dial);
}
