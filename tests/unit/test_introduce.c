/*
 * privhelper's introducer: who is let in, and when a pair is made.
 * B56 (an fd taken for a pid, a uid for a role): the caller is known by SO_PEERCRED alone, never by what it says.
 */
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/introrig.h"

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

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(introduces), T(pair_ids), T(new_replaces_old), T(privhelper_restart_changes_nothing), T(test_b56_unknown_uid),
		T(test_b56_wrong_role_for_the_uid), T(restart_orders), T(tables),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
