#include "connectd/svcconn.h"

#include <errno.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "connectd/dns.h"
#include "connectd/outq.h"
#include "connectd/race.h"
#include "connectd/tls.h"
#include "connectd/transport.h"

enum svcconn_state { SVCCONN_RESOLVING, SVCCONN_CONNECTING, SVCCONN_TLS, SVCCONN_UP, SVCCONN_DEAD };

struct svcconn {
	struct svcconn_params p;
	struct svcconn_cb cb;
	void *ctx;
	enum svcconn_state state;
	struct dns_query *dns;
	struct race *race;
	struct transport t;
	struct loop_io io;
	struct loop_timer timer;	/* begins; then the time to connect */
	struct outq out;
	bool warned, loopback, ending, wants_room, untrusted;
	bool told;			/* that it can be read; nobody has read since */
	size_t n;
	union netaddr addrs[DNS_ADDRS_MAX];
	bool own[DNS_ADDRS_MAX];	/* the way there ends on this device */
};

static void
fail(struct svcconn *c, unsigned status, const char *why)
{
	struct svcconn_end end = { .status = status, .untrusted = c->untrusted };

	snprintf(end.why, sizeof(end.why), "%.*s", (int)sizeof(end.why) - 1, why);
	c->state = SVCCONN_DEAD;
	loop_timer_del(c->p.loop, &c->timer);
	loop_io_del(c->p.loop, &c->io);
	c->cb.failed(&end, c->ctx);
}

static void
fail_errno(struct svcconn *c, int err)
{
	char text[SVCJUDGE_WHY], target[SERVICE_AUTHORITY_SIZE + 16];

	service_target_text(&c->p.target, target, sizeof(target));
	snprintf(text, sizeof(text), "%.100s: %s", target, strerror(-err));
	fail(c, err == -ETIMEDOUT ? 504 : 502, text);
}

static void
timer_due(struct loop_timer *timer)
{
	fail_errno(timer->ctx, -ETIMEDOUT);
}

/* ---- bytes ---- */

static void
watch(struct svcconn *c, uint32_t more, uint32_t less)
{
	loop_io_set(c->p.loop, &c->io, (c->io.events | more) & ~less);
}

static int
push(struct svcconn *c)
{
	int r = transport_push(&c->t, &c->out);

	if (r == -EAGAIN) {
		watch(c, EPOLLOUT, 0);
		return 0;
	}
	watch(c, 0, EPOLLOUT);
	if (r == 0 && c->ending && c->t.ssl == NULL)
		shutdown(c->t.fd, SHUT_WR);
	return r;
}

ssize_t
svcconn_read(struct svcconn *c, void *buf, size_t len)
{
	ssize_t n = transport_read(&c->t, buf, len);

	c->told = false;
	if (n == -EAGAIN)
		watch(c, EPOLLIN, 0);
	return n;
}

/* Behind TLS what was taken may be encrypted and still not gone. */
static size_t
used_room(const struct svcconn *c)
{
	return outq_len(&c->out) + transport_pending(&c->t);
}

size_t
svcconn_room(const struct svcconn *c)
{
	size_t used = used_room(c);

	return used < SVCCONN_QUEUE ? SVCCONN_QUEUE - used : 0;
}

int
svcconn_put(struct svcconn *c, const void *data, size_t len)
{
	int r = outq_put(&c->out, data, len);

	if (r == 0)
		r = push(c);
	c->wants_room = used_room(c) > 0;
	return r;
}

void
svcconn_end(struct svcconn *c)
{
	c->ending = true;
	(void)push(c);
}

static void
go_on_tls(struct svcconn *c)
{
	struct hubconn_end why;
	struct url url = { .tls = true, .ip = c->p.target.ip, .ip6 = c->p.target.ip6, .port = c->p.target.port };
	int r = tls_handshake(&c->t);

	if (r == 0) {
		/* Nothing of ours can be stuck for long: a handshake fits into any socket buffer. */
		watch(c, EPOLLIN, EPOLLOUT);
		return;
	}
	if (r < 0) {
		snprintf(url.host, sizeof(url.host), "%s", c->p.target.host);
		tls_why(&c->t, r, TLS_SERVICE, &url, 0, &why);
		c->untrusted = strncmp(why.code, "tls-", 4) == 0;
		fail(c, 502, why.detail);
		return;
	}
	c->state = SVCCONN_UP;
	loop_timer_del(c->p.loop, &c->timer);
	watch(c, EPOLLIN, EPOLLOUT);
	c->cb.ready(c->warned, c->ctx);
}

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct svcconn *c = io->ctx;
	bool room = c->wants_room;

	if (c->state == SVCCONN_TLS) {
		go_on_tls(c);
		return;
	}
	if ((events & EPOLLOUT) != 0 && push(c) < 0)
		watch(c, 0, EPOLLOUT);
	c->wants_room = used_room(c) > 0;
	/* An error shows in the next read; a hang-up that is not being waited for would make this loop hot. */
	if ((events & (EPOLLERR | EPOLLHUP)) != 0) {
		loop_io_del(c->p.loop, io);
		room = false;
	}
	/* One call a turn, as it may be the last: what can be read as well is told again. */
	if (room && svcconn_room(c) >= SVCCONN_QUEUE / 2) {
		c->cb.writable(c->ctx);
	} else if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) {
		/* Told again of what nobody has read since: the hub takes nothing, and this loop must not become hot. */
		if (c->told)
			watch(c, 0, EPOLLIN);
		c->told = true;
		c->cb.readable(c->ctx);
	}
}

/* ---- the way there ---- */

static void
connected(struct svcconn *c, int fd)
{
	struct url url = { .tls = true, .ip = c->p.target.ip, .ip6 = c->p.target.ip6, .port = c->p.target.port };
	int r;

	transport_init(&c->t, fd);
	r = loop_io_add(c->p.loop, &c->io, fd, EPOLLIN, on_socket, c);
	if (r < 0) {
		fail_errno(c, r);
		return;
	}
	if (c->p.target.scheme != SERVICE_HTTPS) {
		c->state = SVCCONN_UP;
		loop_timer_del(c->p.loop, &c->timer);
		c->cb.ready(c->warned, c->ctx);
		return;
	}
	snprintf(url.host, sizeof(url.host), "%s", c->p.target.host);
	c->state = SVCCONN_TLS;
	r = tls_start(&c->t, netenv_trust(c->p.env), &url, 0);
	if (r < 0) {
		fail_errno(c, r);
		return;
	}
	/* Whoever could listen on this device's own loopback needs no certificate to be it; another one only where the hub says so. */
	if (c->loopback || c->p.insecure)
		SSL_set_verify(c->t.ssl, SSL_VERIFY_NONE, NULL);
	go_on_tls(c);
}

static void
raced(int fd, const union netaddr *peer, void *ctx)
{
	struct svcconn *c = ctx;

	if (fd < 0)
		fail_errno(c, fd);
	else
		connected(c, fd);
}

/* Nothing is sent by connecting a datagram socket: it tells whether the way to this address ends on this device. */
static bool
is_own(const union netaddr *addr)
{
	_cleanup_close_ int fd = socket(addr->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	union netaddr from, to = *addr;
	socklen_t len = sizeof(from);
	uint8_t a[16], b[16];

	if (fd < 0 || connect(fd, &to.sa, netaddr_len(&to)) < 0 || getsockname(fd, &from.sa, &len) < 0)
		return false;
	svcjudge_address(&from, a);
	svcjudge_address(&to, b);
	return memcmp(a, b, 16) == 0;
}

static void
dial_all(struct svcconn *c)
{
	char why[SVCJUDGE_WHY];
	enum svc_verdict verdict = SVC_ALLOWED;
	uint8_t a[16];
	int r;

	c->loopback = true;
	for (size_t i = 0; i < c->n; i++) {
		svcjudge_address(&c->addrs[i], a);
		c->loopback = c->loopback && service_is_loopback(a);
		c->own[i] = service_never(a) == NULL && (service_is_loopback(a) || is_own(&c->addrs[i]));
	}
	if (!c->p.sshd)
		verdict = svcjudge_addresses(c->p.policy, &c->p.target, c->addrs, c->own, c->n, why);
	if (verdict == SVC_DENIED) {
		fail(c, 403, why);
		return;
	}
	c->warned = verdict == SVC_WARN;
	c->state = SVCCONN_CONNECTING;
	r = race_new(c->p.loop, 0, raced, c, &c->race);
	if (r < 0)
		fail_errno(c, r);
	else
		race_add(c->race, c->addrs, c->n, true);
}

static void
resolved(const union netaddr *addrs, size_t n, bool last, const char *why, void *ctx)
{
	struct svcconn *c = ctx;
	char text[SVCJUDGE_WHY];

	for (size_t i = 0; i < n && c->n < DNS_ADDRS_MAX; i++)
		c->addrs[c->n++] = addrs[i];
	if (!last)
		return;
	if (c->n == 0) {
		snprintf(text, sizeof(text), "%.80s cannot be resolved: %.80s", c->p.target.host, why != NULL ? why : "no address");
		fail(c, 502, text);
		return;
	}
	dial_all(c);
}

/* The path is the configuration's own. Its answer is awaited by nobody: a local socket connects at once or not. */
static int
dial_socket(struct svcconn *c)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", c->p.target.path);
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0)
		return -errno;
	transport_init(&c->t, fd);
	r = loop_io_add(c->p.loop, &c->io, fd, EPOLLIN | EPOLLOUT, on_socket, c);
	if (r == 0)
		take_fd(&fd);
	else
		c->t.fd = -1;
	return r;
}

static void
begin(struct loop_timer *timer)
{
	struct svcconn *c = timer->ctx;
	char why[SVCJUDGE_WHY];
	int r = 0;

	loop_timer_init(&c->timer, timer_due, c);
	loop_timer_set_ms(c->p.loop, &c->timer, c->p.timeout_ms);
	if (!c->p.sshd && svcjudge_target(c->p.policy, &c->p.target, c->p.name, why) == SVC_DENIED) {
		fail(c, 403, why);
		return;
	}
	if (c->p.target.scheme == SERVICE_UNIX) {
		r = dial_socket(c);
		if (r == 0) {
			c->state = SVCCONN_UP;
			loop_timer_del(c->p.loop, &c->timer);
			c->cb.ready(false, c->ctx);
			return;
		}
	} else {
		r = dns_start(c->p.loop, c->p.target.host, c->p.target.ip, c->p.target.ip6, c->p.target.port, resolved, c, &c->dns);
	}
	if (r < 0)
		fail_errno(c, r);
}

int
svcconn_open(const struct svcconn_params *params, const struct svcconn_cb *cb, void *ctx, struct svcconn **ret_conn)
{
	struct svcconn *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	c->p = *params;
	c->cb = *cb;
	c->ctx = ctx;
	c->io.fd = -1;
	c->t.fd = -1;
	loop_timer_init(&c->timer, begin, c);
	loop_timer_set(c->p.loop, &c->timer, monotime_now());
	*ret_conn = c;
	return 0;
}

bool
svcconn_serves(struct svcconn *c, const struct svcconn_params *p, bool *ret_warned)
{
	const struct service_target *a = &c->p.target, *b = &p->target;
	char why[SVCJUDGE_WHY];
	enum svc_verdict verdict;
	uint8_t byte;

	if (c->state != SVCCONN_UP || c->ending || used_room(c) > 0 || c->p.insecure != p->insecure || c->p.sshd || p->sshd ||
	    strcmp(c->p.name, p->name) != 0 || a->scheme != b->scheme || a->port != b->port || strcmp(a->host, b->host) != 0 ||
	    strcmp(a->path, b->path) != 0)
		return false;
	verdict = svcjudge_target(p->policy, b, p->name, why);
	if (verdict != SVC_DENIED && b->scheme != SERVICE_UNIX)
		verdict = svcjudge_addresses(p->policy, b, c->addrs, c->own, c->n, why);
	*ret_warned = verdict == SVC_WARN;
	/* A byte that nobody asked for would be taken for the beginning of the next answer. */
	return verdict != SVC_DENIED && c->io.fd >= 0 && svcconn_read(c, &byte, 1) == -EAGAIN;
}

void
svcconn_free(struct svcconn *c)
{
	if (c == NULL)
		return;
	loop_io_del(c->p.loop, &c->io);
	loop_timer_del(c->p.loop, &c->timer);
	dns_free(c->dns);
	race_free(c->race);
	transport_done(&c->t);
	outq_done(&c->out);
	free(c);
}
