/*
 * RFC 8305 section 3: an AAAA answer is used at once, an A answer that comes first waits 50 ms for it, and whichever
 * comes later is handed on later.
 */
#include "connectd/dns.h"

#include <ares.h>
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/time.h>

#include "connectd/url.h"

#define RESOLUTION_DELAY_MS	50
#define TRY_MS			2000	/* of the first try at one server; c-ares doubles it each round */
#define TRIES			3
#define SOCKETS_MAX		16u

struct dns_socket {
	struct loop_io io;
	ares_socket_t fd;		/* ARES_SOCKET_BAD = free */
	struct dns_query *query;
};

struct dns_query {
	struct loop *loop;
	ares_channel channel;
	bool have_channel, dead;
	unsigned pending;		/* families still unanswered */
	uint16_t port;
	const char *why;
	size_t n, told;
	union netaddr addrs[DNS_ADDRS_MAX];
	struct loop_timer report, timeout;
	struct dns_socket sockets[SOCKETS_MAX];
	dns_cb cb;
	void *ctx;
};

static const char *test_server;

void
dns_set_server(const char *server)
{
	test_server = server;
}

int
dns_library_init(void)
{
	return ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS ? 0 : -ENOMEM;
}

void
dns_library_done(void)
{
	ares_library_cleanup();
}

/* Asks c-ares when it wants to be called next. */
static void
set_timeout(struct dns_query *query)
{
	struct timeval tv;

	if (!query->have_channel || ares_timeout(query->channel, NULL, &tv) == NULL)
		loop_timer_del(query->loop, &query->timeout);
	else
		loop_timer_set_ms(query->loop, &query->timeout, (int64_t)tv.tv_sec * 1000 + tv.tv_usec / 1000 + 1);
}

static void
timed_out(struct loop_timer *timer)
{
	struct dns_query *query = timer->ctx;

	ares_process_fd(query->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	set_timeout(query);
}

static void
socket_ready(struct loop_io *io, uint32_t events)
{
	struct dns_socket *s = io->ctx;
	struct dns_query *query = s->query;
	ares_socket_t fd = s->fd;
	bool in = (events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0, out = (events & EPOLLOUT) != 0;

	ares_process_fd(query->channel, in ? fd : ARES_SOCKET_BAD, out ? fd : ARES_SOCKET_BAD);
	set_timeout(query);
}

/* c-ares tells what it wants to know about a socket; neither = it is about to close it. */
static void
socket_state(void *data, ares_socket_t fd, int readable, int writable)
{
	struct dns_query *query = data;
	struct dns_socket *s = NULL;
	uint32_t events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u);

	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		if (query->sockets[i].fd == fd || (s == NULL && query->sockets[i].fd == ARES_SOCKET_BAD)) {
			s = &query->sockets[i];
			if (s->fd == fd)
				break;
		}
	if (s == NULL)
		return;		/* more servers than we watch: their answers are never read and the query goes on to the next */
	if (events == 0) {
		loop_io_del(query->loop, &s->io);
		s->fd = ARES_SOCKET_BAD;
	} else if (s->fd == fd) {
		loop_io_set(query->loop, &s->io, events);
	} else if (loop_io_add(query->loop, &s->io, fd, events, socket_ready, s) == 0) {
		s->fd = fd;
	}
}

static void
report(struct loop_timer *timer)
{
	struct dns_query *query = timer->ctx;
	size_t from = query->told;

	query->told = query->n;
	query->cb(query->addrs + from, query->n - from, query->pending == 0, query->n == 0 ? query->why : NULL, query->ctx);
}

static void
add_answer(struct dns_query *query, const struct ares_addrinfo *info, bool *ret_v6)
{
	for (const struct ares_addrinfo_node *node = info->nodes; node != NULL; node = node->ai_next) {
		union netaddr *a = &query->addrs[query->n];

		if (query->n == DNS_ADDRS_MAX)
			return;
		if (node->ai_family != AF_INET && node->ai_family != AF_INET6)
			continue;
		memset(a, 0, sizeof(*a));
		if (node->ai_family == AF_INET6 && (size_t)node->ai_addrlen >= sizeof(a->in6)) {
			memcpy(&a->in6, node->ai_addr, sizeof(a->in6));
			a->in6.sin6_port = htons(query->port);
			*ret_v6 = true;
		} else if (node->ai_family == AF_INET && (size_t)node->ai_addrlen >= sizeof(a->in)) {
			memcpy(&a->in, node->ai_addr, sizeof(a->in));
			a->in.sin_port = htons(query->port);
		} else {
			continue;
		}
		query->n++;
	}
}

static void
answered(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
	struct dns_query *query = arg;
	bool v6 = false;
	size_t before = query->n;

	(void)timeouts;
	if (info != NULL && status == ARES_SUCCESS && !query->dead)
		add_answer(query, info, &v6);
	if (info != NULL)
		ares_freeaddrinfo(info);
	if (query->dead)
		return;
	query->pending--;
	/* "No data" of one family says less than what became of the other. */
	if (status != ARES_SUCCESS && (query->why == NULL || status != ARES_ENODATA))
		query->why = ares_strerror(status);
	if (query->pending == 0 || v6)
		loop_timer_set(query->loop, &query->report, (monotime_t){ 0 });
	else if (query->n > before)
		loop_timer_set_ms(query->loop, &query->report, RESOLUTION_DELAY_MS);
}

static int
ask(struct dns_query *query, const char *host)
{
	struct ares_options options = {
		.timeout = TRY_MS, .tries = TRIES, .sock_state_cb = socket_state, .sock_state_cb_data = query };
	static const int families[] = { AF_INET6, AF_INET };
	int r = ares_init_options(&query->channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB);

	if (r != ARES_SUCCESS)
		return -ENOMEM;
	query->have_channel = true;
	query->pending = 2;
	if (test_server != NULL && ares_set_servers_ports_csv(query->channel, test_server) != ARES_SUCCESS)
		return -EINVAL;
	for (unsigned i = 0; i < 2; i++) {
		/* No sorting by probing sockets: the race finds out by connecting. */
		struct ares_addrinfo_hints hints = { .ai_family = families[i], .ai_flags = ARES_AI_NOSORT };

		ares_getaddrinfo(query->channel, host, NULL, &hints, answered, query);
	}
	set_timeout(query);
	return 0;
}

/* Addresses that need no question. */
static bool
known(struct dns_query *query, const char *host, bool ip, bool ip6)
{
	if (ip) {
		query->n = netaddr_set(&query->addrs[0], host, ip6, query->port) ? 1 : 0;
	} else if (url_host_is_localhost(host)) {
		netaddr_set(&query->addrs[0], "::1", true, query->port);
		netaddr_set(&query->addrs[1], "127.0.0.1", false, query->port);
		query->n = 2;
	} else {
		return false;
	}
	loop_timer_set(query->loop, &query->report, (monotime_t){ 0 });
	return true;
}

int
dns_start(struct loop *loop, const char *host, bool ip, bool ip6, uint16_t port, dns_cb cb, void *ctx,
    struct dns_query **ret_query)
{
	struct dns_query *query = calloc(1, sizeof(*query));
	int r = 0;

	if (query == NULL)
		return -ENOMEM;
	query->loop = loop;
	query->port = port;
	query->cb = cb;
	query->ctx = ctx;
	for (unsigned i = 0; i < SOCKETS_MAX; i++) {
		query->sockets[i] = (struct dns_socket){ .io.fd = -1, .fd = ARES_SOCKET_BAD, .query = query };
	}
	loop_timer_init(&query->report, report, query);
	loop_timer_init(&query->timeout, timed_out, query);
	if (!known(query, host, ip, ip6))
		r = ask(query, host);
	if (r < 0) {
		dns_free(query);
		return r;
	}
	*ret_query = query;
	return 0;
}

void
dns_free(struct dns_query *query)
{
	if (query == NULL)
		return;
	query->dead = true;		/* ares_destroy() answers what is open */
	if (query->have_channel)
		ares_destroy(query->channel);
	for (unsigned i = 0; i < SOCKETS_MAX; i++)
		loop_io_del(query->loop, &query->sockets[i].io);
	loop_timer_del(query->loop, &query->report);
	loop_timer_del(query->loop, &query->timeout);
	free(query);
}
