/* privhelper's introducer: what is no record of the protocol, and who is refused for how long. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/introrig.h"

enum bad { SECOND_HELLO, OVERSIZED, UNDERSIZED, SURPLUS_FD, MANY_FDS, UNKNOWN, PEER_FROM_PEER, OLD_VERSION, DIRTY_BUILD,
	WRONG_LEN, BADS };

static void
misbehave(struct client *c, enum bad bad)
{
	static const char zeros[4096];
	struct ipc_hdr hdr = { .type = IPC_HELLO, .version = IPC_VERSION, .len = sizeof(struct ipc_hello) };
	struct ipc_hello hello = { .role = IPC_ROLE_CONNECTD };
	int fds[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };

	switch (bad) {
	case SECOND_HELLO:
		say_hello(c, IPC_ROLE_CONNECTD, 0);
		say_hello(c, IPC_ROLE_CONNECTD, 0);
		return;
	case OVERSIZED:
		hdr.len = sizeof(zeros);
		put(c, &hdr, zeros, sizeof(zeros), NULL, 0);
		return;
	case UNDERSIZED:
		hdr.len = 47;
		put(c, &hdr, &hello, 47, NULL, 0);
		return;
	case SURPLUS_FD:
		hdr.nfds = 1;
		put(c, &hdr, &hello, sizeof(hello), fds, 1);
		return;
	case MANY_FDS:
		put(c, &hdr, &hello, sizeof(hello), fds, 8);
		return;
	case UNKNOWN:
		hdr.type = 0x0150;
		put(c, &hdr, &hello, sizeof(hello), NULL, 0);
		return;
	case PEER_FROM_PEER:
		say_hello(c, IPC_ROLE_CONNECTD, 0);
		hdr = (struct ipc_hdr){ .type = PRIV_EV_GONE, .version = IPC_VERSION };
		put(c, &hdr, NULL, 0, NULL, 0);
		return;
	case OLD_VERSION:
		hdr.version = IPC_VERSION - 1;
		put(c, &hdr, &hello, sizeof(hello), NULL, 0);
		return;
	case DIRTY_BUILD:
		memset(hello.build, 'x', sizeof(hello.build));
		put(c, &hdr, &hello, sizeof(hello), NULL, 0);
		return;
	case WRONG_LEN:
		hdr.len--;
		put(c, &hdr, &hello, sizeof(hello), NULL, 0);
		return;
	case BADS:
		break;
	}
	fail();
}

static unsigned
open_fds(void)
{
	unsigned n = 0;

	for (int i = 0; i < 256; i++)
		n += fcntl(i, F_GETFD) >= 0;
	return n;
}

/* A bad record ends that channel alone; the pair of the others is untouched and no descriptor stays. */
static void
bad_records(void **state)
{
	for (enum bad bad = 0; bad < BADS; bad++) {
		struct client c = NOBODY, w = NOBODY, evil = NOBODY;
		unsigned before;

		come(&c, C, 0);
		come(&w, W, 0);
		settle_with(&c, &w);
		before = open_fds();
		dial(&evil);
		settle();
		misbehave(&evil, bad);
		settle_with(&c, &w);
		listen_to(&evil);
		assert_int_equal(strikes(), 1);
		assert_true(evil.eof);
		assert_false(w.eof);
		if (bad != SECOND_HELLO && bad != PEER_FROM_PEER) {
			assert_joined(&c, &w);
			hang_up(&evil);
			assert_int_equal(open_fds(), before);
		}
		die(&evil);
		die(&c);
		die(&w);
		stop();
		start(getuid(), getuid());
	}
}

/* Says HELLO as connectd and then once more: its own role is struck, whoever shares the uid. */
static void
strike_connectd(void)
{
	struct client evil = NOBODY;

	dial(&evil);
	misbehave(&evil, SECOND_HELLO);
	settle();
	listen_to(&evil);
	assert_true(evil.eof);
	die(&evil);
}

static bool
is_let_in(enum side side)
{
	struct client c = NOBODY;
	bool in_now;

	come(&c, side, 0);
	settle_with(&c, NULL);
	in_now = c.hellos == 1;
	assert_int_equal(c.eof, !in_now);
	die(&c);
	settle();
	return in_now;
}

/* The refused time doubles up to a limit, trying does not lengthen it, the other side is served, and a quiet minute ends it. */
static void
refused_for_longer_each_time(void **state)
{
	static const int64_t seconds[] = { 1, 2, 4, 8, 16, 32, 32, 32 };
	struct client w = NOBODY, c = NOBODY;

	come(&w, W, 0);
	settle_with(&w, NULL);
	for (size_t i = 0; i < COUNT(seconds); i++) {
		strike_connectd();
		assert_false(is_let_in(C));
		assert_true(is_let_in(W));
		come(&w, W, 0);
		settle();
		pass_time(seconds[i] * 1000 - 1);
		assert_false(is_let_in(C));
		pass_time(1);
		assert_true(is_let_in(C));
	}
	pass_time(60001);
	strike_connectd();
	pass_time(1000);
	die(&w);
	come(&w, W, 0);
	come(&c, C, 0);
	settle_with(&c, &w);
	assert_joined(&c, &w);
	die(&c);
	die(&w);
}

/* Where the uid tells the side, a refused one gets not even as far as its HELLO. */
static void
refused_by_uid(void **state)
{
	struct client c = NOBODY;

	stop();
	start(getuid(), getuid() + 1);
	strike_connectd();
	dial(&c);
	settle_with(&c, NULL);
	assert_true(c.eof);
	die(&c);
	pass_time(1000);
	assert_true(is_let_in(C));
}

/* A record of no bytes reads like the end: nothing worse may come of it. */
static void
empty_record(void **state)
{
	struct client c = NOBODY;

	dial(&c);
	assert_int_equal(send(c.fd, "", 0, 0), 0);
	settle_with(&c, NULL);
	assert_true(c.eof);
	assert_int_equal(strikes(), 0);
	die(&c);
}

/* Silent connections cannot crowd out those who speak, nor the live ones. */
static void
silent_crowd(void **state)
{
	struct client c = NOBODY, w = NOBODY, crowd[20];

	come(&c, C, 0);
	settle_with(&c, NULL);
	for (size_t i = 0; i < COUNT(crowd); i++) {
		crowd[i] = (struct client)NOBODY;
		dial(&crowd[i]);
		settle();
	}
	come(&w, W, 0);
	settle_with(&c, &w);
	assert_joined(&c, &w);
	assert_false(c.eof);
	for (size_t i = 0; i < COUNT(crowd); i++)
		die(&crowd[i]);
	die(&c);
	die(&w);
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(bad_records), T(empty_record), T(refused_for_longer_each_time), T(refused_by_uid), T(silent_crowd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
