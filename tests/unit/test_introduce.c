/*
 * privhelper's introducer, in this process, with raw clients: who is let in, who is refused for how long, and when a
 * pair is made.
 * B56 (an fd taken for a pid, a uid for a role): the caller is known by SO_PEERCRED alone, never by what it says.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "privhelper/introduce.h"
#include "privhelper/rules.h"
#include "proto/ipc/priv.h"
#include "tests/unit/unit.h"

#define C	SIDE_CONNECTD
#define W	SIDE_WORKERD

static const enum ipc_role roles[SIDES] = { IPC_ROLE_CONNECTD, IPC_ROLE_WORKERD };
static char dir[64], path[96];
static int listener = -1;
static struct loop *loop;
static struct introducer in;
static int64_t clock_ns = 1000000000;

static int64_t
mock_clock(void)
{
	return clock_ns;
}

static void
pass_time(int64_t ms)
{
	clock_ns += ms * 1000000;
}

static unsigned
strikes(void)
{
	return in.strikes[C].n + in.strikes[W].n + in.strikes[SIDE_EITHER].n;
}

/* One daemon as the introducer sees it. */
struct client {
	int fd, work;			/* channel to privhelper, work channel */
	uint64_t pair;
	uint32_t max_data;
	unsigned hellos, peers, gone;
	bool eof;
};

static void
start(uid_t net, uid_t work)
{
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(introduce_init(&in, loop, listener, net, work), 0);
}

static void
stop(void)
{
	introduce_done(&in);
	loop_free(loop);
}

static void
settle(void)
{
	for (int i = 0; i < 6; i++)
		assert_int_equal(loop_turn(loop, 0), 0);
}

static int
setup(void **state)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	snprintf(dir, sizeof(dir), "/tmp/edgeward-unit-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/introduce.sock", dir);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(listener, 16), 0);
	monotime_set_source(mock_clock, NULL);
	start(getuid(), getuid());
	return 0;
}

static int
teardown(void **state)
{
	stop();
	monotime_set_source(NULL, NULL);
	close(listener);
	unlink(path);
	rmdir(dir);
	return 0;
}

static void
hang_up(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static void
die(struct client *c)
{
	hang_up(c);
	if (c->work >= 0)
		close(c->work);
	*c = (struct client){ .fd = -1, .work = -1 };
}

static void
dial(struct client *c)
{
	c->fd = ipc_connect(path);
	assert_true(c->fd >= 0);
	c->eof = false;
}

static void
put(struct client *c, const struct ipc_hdr *hdr, const void *data, size_t len, const int *fds, unsigned nfds)
{
	union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int) * 8)]; } ctl = { 0 };
	struct iovec iov[2] = { { (void *)hdr, sizeof(*hdr) }, { (void *)data, len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	if (nfds > 0) {
		struct cmsghdr *cm;

		mh.msg_control = ctl.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		cm = CMSG_FIRSTHDR(&mh);
		*cm = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(sizeof(int) * nfds) };
		memcpy(CMSG_DATA(cm), fds, sizeof(int) * nfds);
	}
	assert_true(sendmsg(c->fd, &mh, MSG_NOSIGNAL) >= 0);
}

static void
say_hello(struct client *c, uint32_t role, uint64_t have)
{
	struct ipc_hdr hdr = { .type = IPC_HELLO, .version = IPC_VERSION, .len = sizeof(struct ipc_hello) };
	struct ipc_hello hello = { .role = role, .pid = 1, .have_work = have, .build = "test" };

	put(c, &hdr, &hello, sizeof(hello), NULL, 0);
}

static void
take_peer(struct client *c, const uint8_t *data, int fd)
{
	struct priv_peer peer;

	memcpy(&peer, data, sizeof(peer));
	assert_true(fd >= 0);
	assert_true(peer.pair != 0);
	if (c->work >= 0)
		close(c->work);
	c->work = fd;
	c->pair = peer.pair;
	c->max_data = peer.max_data;
	c->peers++;
}

/* Everything the introducer has said by now. */
static void
listen_to(struct client *c)
{
	struct { struct ipc_hdr hdr; uint8_t data[IPC_MAX_PRIV]; } rec;
	union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int) * 8)]; } ctl;

	while (c->fd >= 0 && !c->eof) {
		struct iovec iov = { &rec, sizeof(rec) };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof(ctl) };
		ssize_t n = recvmsg(c->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&mh) : NULL;
		int fd = -1;

		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			c->eof = true;
			return;
		}
		assert_int_equal(ipc_check(&rec.hdr, (size_t)n, IPC_MAX_PRIV, cm != NULL), 0);
		if (cm != NULL)
			memcpy(&fd, CMSG_DATA(cm), sizeof(fd));
		if (rec.hdr.type == IPC_HELLO)
			c->hellos++;
		else if (rec.hdr.type == PRIV_EV_PEER)
			take_peer(c, rec.data, fd);
		else if (rec.hdr.type == PRIV_EV_GONE)
			c->gone++;
		else
			fail_msg("unknown record 0x%x", rec.hdr.type);
	}
}

static void
settle_with(struct client *c, struct client *w)
{
	settle();
	if (c != NULL)
		listen_to(c);
	if (w != NULL)
		listen_to(w);
}

static void
come(struct client *c, enum side side, uint64_t have)
{
	dial(c);
	say_hello(c, roles[side], have);
}

static void
assert_joined(struct client *c, struct client *w)
{
	char buf[8] = "";

	assert_true(c->pair != 0 && c->pair == w->pair);
	assert_int_equal(send(c->work, "over", 5, 0), 5);
	assert_int_equal(recv(w->work, buf, sizeof(buf), MSG_DONTWAIT), 5);
	assert_int_equal(send(w->work, "back", 5, 0), 5);
	assert_int_equal(recv(c->work, buf, sizeof(buf), MSG_DONTWAIT), 5);
}

#define NOBODY	{ .fd = -1, .work = -1 }

static void
introduces(void **state)
{
	struct client c = NOBODY, w = NOBODY;

	come(&c, C, 0);
	settle_with(&c, NULL);
	assert_int_equal(c.hellos, 1);
	assert_int_equal(c.peers, 0);
	come(&w, W, 0);
	settle_with(&c, &w);
	assert_int_equal(w.hellos, 1);
	assert_int_equal(c.peers + w.peers, 2);
	assert_joined(&c, &w);
	/* Root may raise the buffer beyond the system's limit; without that records must be smaller. */
	assert_true(c.max_data == 65536 || c.max_data == 32768);
	assert_int_equal(c.max_data, w.max_data);
	assert_int_equal(strikes(), 0);
	die(&c);
	settle_with(NULL, &w);
	assert_int_equal(w.gone, 1);
	assert_false(w.eof);
	die(&w);
}

static void
pair_ids(void **state)
{
	static const struct { uint64_t c, w; unsigned made; } cases[] = {
		{ 0, 0, 1 }, { 7, 7, 0 }, { 7, 8, 1 }, { 7, 0, 1 }, { 0, 7, 1 }, { UINT64_MAX, UINT64_MAX, 0 },
	};

	for (size_t i = 0; i < COUNT(cases) * 2; i++) {
		struct client c = NOBODY, w = NOBODY;
		bool c_first = i % 2 == 0;

		if (c_first)
			come(&c, C, cases[i / 2].c);
		come(&w, W, cases[i / 2].w);
		settle();
		if (!c_first)
			come(&c, C, cases[i / 2].c);
		settle_with(&c, &w);
		assert_int_equal(c.peers, cases[i / 2].made);
		assert_int_equal(w.peers, cases[i / 2].made);
		if (cases[i / 2].made > 0) {
			assert_joined(&c, &w);
			assert_true(c.pair != cases[i / 2].c && c.pair != cases[i / 2].w);
		}
		die(&c);
		die(&w);
		settle();
	}
}

static void
new_replaces_old(void **state)
{
	struct client old = NOBODY, c = NOBODY, w = NOBODY;

	come(&old, C, 0);
	come(&w, W, 0);
	settle_with(&old, &w);
	come(&c, C, 0);
	settle_with(&c, &w);
	listen_to(&old);
	assert_true(old.eof);
	assert_int_equal(w.peers, 2);
	assert_int_equal(w.gone, 0);	/* connectd never was away */
	assert_joined(&c, &w);
	/* The same daemon again, still holding its pair: nothing happens to the other. */
	hang_up(&c);
	come(&c, C, c.pair);
	settle_with(&c, &w);
	assert_int_equal(w.peers, 2);
	assert_joined(&c, &w);
	die(&old);
	die(&c);
	die(&w);
}

static void
privhelper_restart_changes_nothing(void **state)
{
	struct client c = NOBODY, w = NOBODY;

	come(&c, C, 0);
	come(&w, W, 0);
	settle_with(&c, &w);
	stop();
	start(getuid(), getuid());
	listen_to(&c);
	assert_true(c.eof);
	hang_up(&c);
	hang_up(&w);
	come(&w, W, w.pair);
	come(&c, C, c.pair);
	settle_with(&c, &w);
	assert_int_equal(c.peers, 1);
	assert_int_equal(w.peers, 1);
	assert_joined(&c, &w);
	die(&c);
	die(&w);
}

/* B56: a peer's uid decides, not its word. */
static void
test_b56_unknown_uid(void **state)
{
	struct client c = NOBODY;

	stop();
	start(getuid() + 1, getuid() + 2);
	come(&c, C, 0);
	settle_with(&c, NULL);
	assert_true(c.eof);
	assert_int_equal(c.hellos, 0);	/* not one record */
	assert_int_equal(strikes(), 0);
	die(&c);
}

static void
test_b56_wrong_role_for_the_uid(void **state)
{
	static const struct { int net, work; uint32_t role; bool good; } cases[] = {
		{ 0, 1, IPC_ROLE_CONNECTD, true }, { 0, 1, IPC_ROLE_WORKERD, false }, { 1, 0, IPC_ROLE_WORKERD, true },
		{ 1, 0, IPC_ROLE_CONNECTD, false }, { 0, 0, IPC_ROLE_CONNECTD, true }, { 0, 0, IPC_ROLE_WORKERD, true },
		{ 0, 0, IPC_ROLE_NONE, false }, { 0, 0, IPC_ROLE_PRIVHELPER, false }, { 0, 0, IPC_ROLE_CONTROL, false },
		{ 0, 1, IPC_ROLE_LAUNCHER, false }, { 0, 0, 99, false },
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct client c = NOBODY;

		stop();
		start(getuid() + (uid_t)cases[i].net, getuid() + (uid_t)cases[i].work);
		dial(&c);
		say_hello(&c, cases[i].role, 0);
		settle_with(&c, NULL);
		assert_int_equal(strikes(), cases[i].good ? 0 : 1);
		assert_int_equal(c.eof, !cases[i].good);
		assert_int_equal(c.hellos, cases[i].good);
		die(&c);
	}
}

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

/* What a daemon does by contract: come back when the channel ends, with 0 when the work channel has ended. */
static void
follow(struct client *c, enum side side)
{
	char buf[8];

	listen_to(c);
	if (c->work >= 0 && recv(c->work, buf, sizeof(buf), MSG_DONTWAIT | MSG_PEEK) == 0) {
		close(c->work);
		c->work = -1;
		c->pair = 0;
		hang_up(c);
	}
	if (c->fd >= 0 && c->eof)
		hang_up(c);
	if (c->fd < 0)
		come(c, side, c->pair);
}

/* Any order of restarts and losses ends with both on one pair, and with no pair made that was not needed. */
static void
restart_orders(void **state)
{
	struct client who[SIDES] = { NOBODY, NOBODY };
	unsigned seed = 20;

	for (unsigned step = 0; step < 3000; step++) {
		switch (rand_r(&seed) % 7) {
		case 0: die(&who[C]); break;
		case 1: die(&who[W]); break;
		case 2: stop(); start(getuid(), getuid()); break;
		case 3: hang_up(&who[rand_r(&seed) % 2]); break;
		case 4: shutdown(who[C].work, SHUT_RDWR); break;
		case 5: settle(); break;
		default: follow(&who[step % 2], step % 2 == 0 ? C : W); break;
		}
		if (rand_r(&seed) % 4 != 0)
			continue;
		for (int i = 0; i < 5; i++) {
			follow(&who[C], C);
			follow(&who[W], W);
			settle();
		}
		assert_int_equal(strikes(), 0);
		assert_joined(&who[C], &who[W]);
		unsigned made = who[C].peers;

		follow(&who[C], C);
		follow(&who[W], W);
		settle_with(&who[C], &who[W]);
		assert_int_equal(who[C].peers, made);
	}
	die(&who[C]);
	die(&who[W]);
}

static void
tables(void **state)
{
	assert_int_equal(priv_tables[SIDE_CONNECTD].n, 1);	/* the introduction and nothing else, for ever */
	assert_int_equal(priv_tables[SIDE_EITHER].n, 1);
	assert_ptr_not_equal(priv_tables[SIDE_CONNECTD].rules, priv_tables[SIDE_WORKERD].rules);
	for (unsigned t = 0; t < TABLES; t++) {
		const struct ipc_rule *rule = priv_tables[t].rules;

		assert_int_equal(rule->type, IPC_HELLO);
		assert_int_equal(rule->states, IPC_ST_HELLO);
		assert_int_equal(rule->min, sizeof(struct ipc_hello));
		assert_int_equal(rule->max, sizeof(struct ipc_hello));
		assert_int_equal(rule->max_fds, 0);
	}
}

#define CASE(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)

int
main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(introduces), CASE(pair_ids), CASE(new_replaces_old), CASE(privhelper_restart_changes_nothing),
		CASE(test_b56_unknown_uid), CASE(test_b56_wrong_role_for_the_uid), CASE(bad_records), CASE(empty_record),
		CASE(refused_for_longer_each_time), CASE(refused_by_uid),
		CASE(silent_crowd), CASE(restart_orders), CASE(tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
