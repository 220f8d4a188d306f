/* B91, B102: when a release on trial may stay and when it goes back. proto/release/judge.c is the only place that decides it. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "proto/release/judge.h"

#define START	30000

struct play {
	struct judge j;
	struct judge_facts f;
	struct upgrade_probe probe;
};

/* All is well; 60 s to settle; connected before. Tests change what they are about. */
static void
begin(struct play *p, const struct upgrade_probe *work)
{
	struct upgrade_state state = { .settle = 60, .units = 7, .connected = true };

	memset(p, 0, sizeof(*p));
	judge_init(&p->j, &state, START, work);
	p->probe = (struct upgrade_probe){ .net_up = true, .work_up = true, .introduced = true, .connected = true, .work_pid = 30, .cause = "none" };
	p->f = (struct judge_facts){ .units_known = true, .probe = &p->probe };
	for (unsigned i = 0; i < JUDGE_UNITS; i++)
		p->f.units[i] = (struct judge_unit_facts){ .active = true, .runs_new = true, .pid = 10 + i };
}

static enum judge_verdict
at(struct play *p, int64_t ms)
{
	p->f.now_ms = ms;
	return judge_look(&p->j, &p->f);
}

static void
test_good(void **state)
{
	struct play p;

	begin(&p, NULL);
	for (int64_t ms = 0; ms < 60000; ms += 500)
		assert_int_equal(at(&p, ms), JUDGE_GO_ON);
	assert_int_equal(at(&p, 60000), JUDGE_GOOD);
}

/* Each of these alone, for as long as the start time, and it goes back; a moment less and it does not. */
static void
test_b91_unhealthy(void **state)
{
	for (unsigned what = 0; what < 8; what++) {
		struct play p, ok;

		begin(&p, NULL);
		ok = p;
		ok.f.probe = &ok.probe;
		switch (what) {
		case 0: case 1: case 2: p.f.units[what].runs_new = false; break;
		case 3: p.probe.net_up = false; break;
		case 4: p.probe.work_up = false; break;
		case 5: p.probe.introduced = false; break;
		case 6: p.f.units_known = false; break;
		case 7: p.f.cancelled = true; break;
		}
		if (what == 7) {
			assert_int_equal(at(&p, 0), JUDGE_BAD);
			assert_string_equal(p.j.why.code, "cancelled");
			continue;
		}
		assert_int_equal(at(&p, START - 1), JUDGE_GO_ON);
		assert_int_equal(at(&p, START), JUDGE_BAD);
		assert_string_equal(p.j.why.code, "unhealthy");
		/* Late is well, too. */
		assert_int_equal(at(&ok, START), JUDGE_GO_ON);
	}
}

static void
test_b91_units_that_did_not_run_before_do_not_count(void **state)
{
	struct play p;

	begin(&p, NULL);
	p.j.units = 1u << JUDGE_CONNECTD;
	p.f.units[JUDGE_WORKERD].runs_new = p.f.units[JUDGE_PRIVHELPER].runs_new = p.probe.work_up = p.probe.introduced = false;
	p.f.units[JUDGE_WORKERD].failed = true;
	assert_int_equal(at(&p, 0), JUDGE_GO_ON);
	assert_int_equal(at(&p, 60000), JUDGE_GOOD);
}

static void
test_b91_crashes(void **state)
{
	for (unsigned i = 0; i < JUDGE_UNITS; i++) {
		struct play p;

		/* What it had before the trial does not count, a restart somebody asked for resets it, one more is a crash. */
		begin(&p, NULL);
		p.f.units[i].restarts = 5;
		assert_int_equal(at(&p, 0), JUDGE_GO_ON);
		p.f.units[i].restarts = 0;
		assert_int_equal(at(&p, 500), JUDGE_GO_ON);
		p.f.units[i].restarts = 1;
		assert_int_equal(at(&p, 1000), JUDGE_BAD);
		assert_string_equal(p.j.why.code, "crashed");
		begin(&p, NULL);
		p.f.units[i].failed = true;
		assert_int_equal(at(&p, 0), JUDGE_BAD);
	}
}

/* workerd under one launcher; somebody's systemctl restart in a loop is no crash. */
static void
test_b91_workerd_ends_again_and_again(void **state)
{
	struct play p;
	unsigned n = 0;

	begin(&p, NULL);
	while (at(&p, n * 500) == JUDGE_GO_ON && n < 20) {
		p.probe.work_pid++;
		n++;
	}
	assert_int_equal(n, 4);
	assert_string_equal(p.j.why.code, "crashed");
	begin(&p, NULL);
	for (n = 0; n < 100; n++) {
		assert_int_equal(at(&p, n * 500), JUDGE_GO_ON);
		p.probe.work_pid += 2;
		p.f.units[JUDGE_WORKERD].pid += 2;
	}
}

static void
test_work(void **state)
{
	static const struct { uint64_t pid_now; bool listed, alive; bool lost; } cases[] = {
		{ 40, true, true, false }, { 41, true, true, true }, { 0, true, false, false }, { 0, true, true, false },	/* 0: ended properly */
		{ 0, false, false, false }, { 0, false, true, true },
	};
	struct upgrade_probe work = { .nwork = 2, .work = { { "job-0", 0 }, { "job-1", 40 } } };

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct play p;

		begin(&p, &work);
		p.f.work_alive[1] = cases[i].alive;
		p.probe.nwork = cases[i].listed;
		p.probe.work[0] = (struct upgrade_work){ "job-1", cases[i].pid_now };
		assert_int_equal(at(&p, 0), cases[i].lost ? JUDGE_BAD : JUDGE_GO_ON);
		if (cases[i].lost)
			assert_string_equal(p.j.why.detail, "workload job-1 was not taken over");
	}
}

/* Two hours without a network: on trial; the network is back: for good. */
static void
test_b102_offline(void **state)
{
	struct play p;

	begin(&p, NULL);
	p.probe.connected = false;
	for (int64_t ms = 0; ms < 7200000; ms += 500)
		assert_int_equal(at(&p, ms), ms < 60000 ? JUDGE_GO_ON : JUDGE_WAIT);
	p.probe.connected = true;
	assert_int_equal(at(&p, 7200000), JUDGE_GOOD);
	/* There was none before: none is needed. */
	begin(&p, NULL);
	p.j.connected = p.probe.connected = false;
	assert_int_equal(at(&p, 60000), JUDGE_GOOD);
}

static void
test_b102_refused(void **state)
{
	struct play p;

	begin(&p, NULL);
	p.probe.connected = false;
	p.probe.hub_refuses = true;
	assert_int_equal(at(&p, 60000 + START - 1), JUDGE_WAIT);
	assert_int_equal(at(&p, 60000 + START), JUDGE_BAD);
	assert_string_equal(p.j.why.code, "hub-refuses");
}

/* The hub's address answers all the time and there is no session: back. Once it did not, the time begins again. */
static void
test_b102_there_but_no_session(void **state)
{
	struct play p;

	begin(&p, NULL);
	p.probe.connected = false;
	p.probe.reachable = true;
	for (int64_t ms = 60000; ms < 60000 + 4 * START; ms += 500)
		assert_int_equal(at(&p, ms), JUDGE_WAIT);
	p.probe.reachable = false;
	assert_int_equal(at(&p, 60000 + 4 * START), JUDGE_WAIT);
	p.probe.reachable = true;
	assert_int_equal(at(&p, 200000), JUDGE_WAIT);
	assert_int_equal(at(&p, 200000 + 4 * START - 1), JUDGE_WAIT);
	assert_int_equal(at(&p, 200000 + 4 * START), JUDGE_BAD);
	assert_string_equal(p.j.why.code, "no-session");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good), cmocka_unit_test(test_b91_unhealthy), cmocka_unit_test(test_b91_units_that_did_not_run_before_do_not_count),
		cmocka_unit_test(test_b91_crashes), cmocka_unit_test(test_b91_workerd_ends_again_and_again), cmocka_unit_test(test_work),
		cmocka_unit_test(test_b102_offline), cmocka_unit_test(test_b102_refused), cmocka_unit_test(test_b102_there_but_no_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
