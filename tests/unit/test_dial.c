/*
 * Names and addresses: dns.c and race.c.
 *
 * B13: an address that is kept, a dead family that costs a minute. Where the kind can occur: every attempt makes a new
 * c-ares channel in dns_start() and asks anew, the only connect() is in race.c, and both are reached through dial.c alone.
 * B10: an absent or broken resolver is an ending like any other.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "connectd/dns.h"
#include "connectd/race.h"
#include "tests/unit/fakedns.h"
#include "tests/unit/netrig.h"
#include "tests/unit/unit.h"

static struct netrig rig;
static struct fakedns dns;

static struct {
	unsigned calls;
	size_t n, v6;
	bool last;
	char why[100];
	bool first_v6;
	int64_t first_ms;
} got;

static int64_t
real_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void
resolved(const union netaddr *addrs, size_t n, bool last, const char *why, void *ctx)
{
	if (got.calls++ == 0) {
		got.first_ms = real_ms();
		got.first_v6 = n > 0 && addrs[0].sa.sa_family == AF_INET6;
	}
	for (size_t i = 0; i < n; i++)
		got.v6 += addrs[i].sa.sa_family == AF_INET6;
	got.n += n;
	got.last = last;
	snprintf(got.why, sizeof(got.why), "%s", why != NULL ? why : "");
}

static struct dns_query *
ask(const char *host, bool ip, bool ip6)
{
	struct dns_query *query;

	memset(&got, 0, sizeof(got));
	assert_int_equal(dns_start(rig.loop, host, ip, ip6, 443, resolved, NULL, &query), 0);
	assert_int_equal(got.calls, 0);		/* never from inside */
	return query;
}

static void
answers(void **state)
{
	struct dns_query *query;

	/* Both families. */
	dns.n4 = 3;
	dns.n6 = 2;
	query = ask("hub.test", false, false);
	assert_true(netrig_until(&rig, &got.last, 3000));
	assert_int_equal(got.n, 5);
	assert_int_equal(got.v6, 2);
	dns_free(query);
	/* Many: every one of them is tried. */
	dns.n4 = 28;
	dns.n6 = 8;
	query = ask("hub.test", false, false);
	assert_true(netrig_until(&rig, &got.last, 3000));
	assert_int_equal(got.n, 36);
	assert_true(got.n <= DNS_ADDRS_MAX);
	dns_free(query);
	/* One family only. */
	dns.n4 = 1;
	dns.n6 = 0;
	query = ask("hub.test", false, false);
	assert_true(netrig_until(&rig, &got.last, 3000));
	assert_int_equal(got.n, 1);
	assert_string_equal(got.why, "");
	dns_free(query);
}

static void
no_question(void **state)
{
	static const struct { const char *host; bool ip, ip6; size_t n, v6; } t[] = {
		{ "192.0.2.1", true, false, 1, 0 }, { "2001:db8::1", true, true, 1, 1 }, { "localhost", false, false, 2, 1 },
		{ "x.localhost", false, false, 2, 1 },
	};
	unsigned asked = dns.questions[0] + dns.questions[1];

	for (size_t i = 0; i < COUNT(t); i++) {
		struct dns_query *query = ask(t[i].host, t[i].ip, t[i].ip6);

		assert_true(netrig_until(&rig, &got.last, 3000));
		assert_int_equal(got.n, t[i].n);
		assert_int_equal(got.v6, t[i].v6);
		dns_free(query);
	}
	assert_int_equal(dns.questions[0] + dns.questions[1], asked);
}

/* A name server that answers for one family only costs 50 ms, and the other answer is not lost when it does come. */
static void
one_family_late(void **state)
{
	struct dns_query *query;
	int64_t start;

	dns.rcode[1] = FAKEDNS_SILENT;
	dns.n4 = 1;
	dns.n6 = 1;
	start = real_ms();
	query = ask("hub.test", false, false);
	assert_true(netrig_until_n(&rig, &got.calls, 3000));
	assert_in_range(got.first_ms - start, 45, 1000);
	assert_false(got.last);
	assert_int_equal(got.n, 1);
	dns.rcode[1] = 0;
	fakedns_release(&dns);
	assert_true(netrig_until(&rig, &got.last, 3000));
	assert_int_equal(got.n, 2);
	dns_free(query);
	/* IPv6 first does not wait for anybody. */
	dns.rcode[0] = FAKEDNS_SILENT;
	query = ask("hub.test", false, false);
	assert_true(netrig_until_n(&rig, &got.calls, 3000));
	assert_true(got.first_v6);
	assert_false(got.last);
	dns_free(query);
	dns.rcode[0] = 0;
}

static void
test_b10_resolver_trouble(void **state)
{
	static const struct { int rcode; const char *says; } t[] = {
		{ 3, "not found" }, { 2, "could not contact" }, { 5, "could not contact" },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		dns.rcode[0] = dns.rcode[1] = t[i].rcode;
		for (unsigned k = 0; k < 5; k++) {
			struct dns_query *query = ask("hub.test", false, false);
			unsigned turns = 0;

			/* SERVFAIL makes c-ares try again: let its patience pass on our clock. */
			while (!got.last && turns++ < 2000) {
				loop_turn(rig.loop, 2);
				netrig_advance(20);
			}
			assert_true(got.last);
			assert_int_equal(got.n, 0);
			if (strcasestr(got.why, t[i].says) == NULL)
				fail_msg("%d: %s", t[i].rcode, got.why);
			dns_free(query);
		}
	}
	/* The next question is asked, not answered from a memory of the last. */
	dns.rcode[0] = dns.rcode[1] = 0;
	dns.n4 = 1;
	struct dns_query *query = ask("hub.test", false, false);

	assert_true(netrig_until(&rig, &got.last, 3000));
	assert_int_equal(got.n, 2);
	dns_free(query);
	/* Nobody there at all. */
	dns_set_server("127.0.0.1:1");
	query = ask("hub.test", false, false);
	assert_true(netrig_until(&rig, &got.last, 20000));	/* c-ares has its own clock: about 4 s */
	assert_int_equal(got.n, 0);
	dns_free(query);
	dns_set_server(dns.server);
}

static struct {
	unsigned calls;
	int fd;
	uint16_t port;
} won;

static void
raced(int fd, const union netaddr *peer, void *ctx)
{
	won.calls++;
	won.fd = fd;
	won.port = peer != NULL ? ntohs(peer->in.sin_port) : 0;
}

/* A listener whose queue is full: the kernel drops every further SYN, as a dead host would. */
struct dead {
	int listener, fill[4];
	uint16_t port;
};

static uint16_t
listen_on(int *ret_fd, int backlog)
{
	struct sockaddr_in sa = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sa);

	*ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(*ret_fd >= 0 && bind(*ret_fd, (struct sockaddr *)&sa, sizeof(sa)) == 0 && listen(*ret_fd, backlog) == 0);
	assert_int_equal(getsockname(*ret_fd, (struct sockaddr *)&sa, &len), 0);
	return ntohs(sa.sin_port);
}

static union netaddr
at(uint16_t port)
{
	union netaddr a;

	assert_true(netaddr_set(&a, "127.0.0.1", false, port));
	return a;
}

static void
die(struct dead *dead)
{
	union netaddr a;

	dead->port = listen_on(&dead->listener, 0);
	a = at(dead->port);
	for (size_t i = 0; i < COUNT(dead->fill); i++) {
		dead->fill[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		(void)connect(dead->fill[i], &a.sa, netaddr_len(&a));
	}
}

static void
bury(struct dead *dead)
{
	for (size_t i = 0; i < COUNT(dead->fill); i++)
		close(dead->fill[i]);
	close(dead->listener);
}

static int64_t
run_race(const union netaddr *addrs, size_t n, int64_t max_ms)
{
	struct race *race;
	int64_t start = real_ms();

	memset(&won, 0, sizeof(won));
	assert_int_equal(race_new(rig.loop, 0, raced, NULL, &race), 0);
	race_add(race, addrs, n, true);
	assert_int_equal(won.calls, 0);
	while (won.calls == 0 && real_ms() - start < max_ms)
		loop_turn(rig.loop, 10);
	race_free(race);
	return real_ms() - start;
}

static void
test_b13_addresses(void **state)
{
	struct dead dead;
	int good, refusing;
	uint16_t port = listen_on(&good, 8), none;
	union netaddr a[3];
	int64_t ms;
	unsigned fds;

	none = listen_on(&refusing, 1);
	close(refusing);
	die(&dead);
	fds = netrig_fds();
	/* Dead, refused, good. */
	a[0] = at(dead.port);
	a[1] = at(none);
	a[2] = at(port);
	ms = run_race(a, 3, 3000);
	assert_int_equal(won.calls, 1);
	assert_true(won.fd >= 0);
	assert_int_equal(won.port, port);
	assert_in_range(ms, RACE_STAGGER_MS - 5, 1500);
	close(won.fd);
	/* A refusal is followed at once. */
	a[0] = at(none);
	a[1] = at(none);
	ms = run_race(a, 3, 3000);
	assert_true(won.fd >= 0);
	assert_true(ms < RACE_STAGGER_MS);
	close(won.fd);
	/* IPv6 without a route does not count as an attempt that took time. */
	assert_true(netaddr_set(&a[0], "2001:db8::1", true, port));
	a[1] = at(port);
	ms = run_race(a, 2, 3000);
	assert_true(won.fd >= 0);
	assert_true(ms < 300);
	close(won.fd);
	/* All refused: one result, the telling one. */
	a[0] = at(none);
	a[1] = at(none);
	run_race(a, 2, 3000);
	assert_int_equal(won.calls, 1);
	assert_int_equal(won.fd, -ECONNREFUSED);
	/* Nothing to try. */
	run_race(a, 0, 3000);
	assert_int_equal(won.fd, -EADDRNOTAVAIL);
	assert_int_equal(netrig_fds(), fds);
	bury(&dead);
	close(good);
}

static void
late_addresses(void **state)
{
	struct dead dead;
	struct race *race;
	int good;
	uint16_t port = listen_on(&good, 8);
	union netaddr a;

	die(&dead);
	memset(&won, 0, sizeof(won));
	assert_int_equal(race_new(rig.loop, 0, raced, NULL, &race), 0);
	a = at(dead.port);
	race_add(race, &a, 1, false);
	netrig_turns(&rig, 2 * RACE_STAGGER_MS);
	assert_int_equal(won.calls, 0);
	assert_int_equal(race_attempts(race), 1);
	a = at(port);
	race_add(race, &a, 1, true);
	assert_true(netrig_until_n(&rig, &won.calls, 1000));
	assert_int_equal(won.port, port);
	close(won.fd);
	race_free(race);
	bury(&dead);
	close(good);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(answers), cmocka_unit_test(no_question), cmocka_unit_test(one_family_late),
		cmocka_unit_test(test_b10_resolver_trouble), cmocka_unit_test(test_b13_addresses),
		cmocka_unit_test(late_addresses),
	};

	return netrig_run(&rig, &dns, tests, COUNT(tests));
}
