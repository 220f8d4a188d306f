/*
 * What privupgrade and privtrial decide and read without touching anything: whether a release fits this device and the request (B95, B97), how long
 * it must settle, how a flood of requests is slowed, what the service manager and /proc say.
 */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/release/fit.h"
#include "proto/release/judge.h"

static const struct manifest good = { .version = "2.0", .sequence = 7, .channel = "stable", .arch = "x86_64", .protocol = 3, .expires = 1000,
	.total = 500 };
static const struct release_head head = { .signature_len = 100, .manifest_len = 200 };
static const struct upgrade_request request = { .sequence = 7, .id = "a" }, downgrade = { .sequence = 7, .id = "a", .downgrade = true };

static struct refusal why;

static struct fit
facts(void)
{
	return (struct fit){ .why = &why, .size = 800, .arch = "x86_64", .channel = "stable", .now = 999, .request = &request, .from = 6 };
}

static void
refused(struct fit f, const struct manifest *m, const char *code)
{
	assert_int_equal(fit_release(&f, &head, m), -ECANCELED);
	assert_string_equal(why.code, code);
	assert_true(strlen(why.detail) > 5);
}

static void
test_b95_device(void **state)
{
	struct fit f = facts();

	assert_int_equal(fit_release(&f, &head, &good), 0);
	for (int d = -1; d <= 1; d += 2) {	/* a byte too few, a byte too many */
		f = facts();
		f.size = (uint64_t)(800 + d);
		refused(f, &good, "bad-size");
	}
	f = facts();
	f.size = 0;
	refused(f, &good, "bad-size");
	f = facts();
	f.arch = "aarch64";
	refused(f, &good, "wrong-arch");
	f = facts();
	f.channel = "edge";
	refused(f, &good, "wrong-channel");
	f = facts();
	f.now = 1000;
	refused(f, &good, "expired");
	f.request = NULL;	/* privupgrade -n, too */
	refused(f, &good, "expired");
}

static void
test_b97_order(void **state)
{
	static const struct { uint64_t from; bool down, operator; uint64_t tries; const char *code; } cases[] = {
		{ 6, false, false, 0, NULL }, { 0, false, false, 0, NULL }, { 7, false, false, 0, "already-current" }, { 7, true, true, 0, "already-current" },
		{ 8, false, false, 0, "old-sequence" }, { 8, false, true, 0, "old-sequence" }, { 8, true, true, 0, NULL },
		{ RELEASE_SEQUENCE_MAX, false, true, 0, "old-sequence" }, { 6, false, false, UPGRADE_TRIES - 1, NULL },
		{ 6, false, false, UPGRADE_TRIES, "marked-bad" }, { 6, false, true, UPGRADE_TRIES, NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fit f = facts();

		f.from = cases[i].from;
		f.operator = cases[i].operator;
		f.tries = cases[i].tries;
		f.request = cases[i].down ? &downgrade : &request;
		if (cases[i].code != NULL)
			refused(f, &good, cases[i].code);
		else
			assert_int_equal(fit_release(&f, &head, &good), 0);
	}
	struct fit f = facts();

	f.from = 2;	/* less than it was */
	f.floor = 8;
	refused(f, &good, "old-sequence");
	f.request = &downgrade;
	assert_int_equal(fit_release(&f, &head, &good), 0);
	f = facts();
	f.from = 2;
	f.floor = 7;	/* the same once more */
	assert_int_equal(fit_release(&f, &head, &good), 0);
	struct manifest other = good;
	other.sequence = 8;
	refused(facts(), &other, "other-release");
}

static void
test_protocol(void **state)
{
	assert_int_equal(fit_protocol(&why, &good, 0), 0);	/* no session: nobody knows */
	assert_int_equal(fit_protocol(&why, &good, 3), 0);
	assert_int_equal(fit_protocol(&why, &good, 2), -ECANCELED);
	assert_string_equal(why.code, "protocol");
}

static void
test_b100_program(void **state)
{
	struct machine ours, other;
	static uint8_t own[MACHINE_HEAD];
	FILE *file = fopen("/proc/self/exe", "r");
	size_t n;

	assert_non_null(file);
	n = fread(own, 1, sizeof(own), file);
	fclose(file);
	assert_int_equal(machine_of(own, n, &ours), 0);
	assert_int_equal(fit_program(&why, "x", own, n, &ours), 0);
	assert_int_equal(fit_program(&why, "x", "#!/bin/sh\n", 10, &ours), -ECANCELED);
	assert_string_equal(why.code, "bad-file");
	other = ours;
	other.machine++;
	assert_int_equal(fit_program(&why, "x", own, n, &other), -ECANCELED);
	assert_string_equal(why.code, "wrong-arch");
	other = ours;
	snprintf(other.interp, sizeof(other.interp), "/lib/ld-musl.so.1");
	assert_int_equal(fit_program(&why, "x", own, n, &other), -ECANCELED);
	assert_string_equal(why.code, "wrong-arch");
}

static void
add(struct upgrade_history *h, enum upgrade_source source, enum upgrade_outcome outcome, uint64_t to)
{
	upgrade_history_add(h, &(struct upgrade_entry){ .attempt = h->n + 1, .source = source, .outcome = outcome, .to = to });
}

/* What was installed last is remembered; refusals are counted since anything else happened. */
static void
test_history(void **state)
{
	static struct upgrade_history h;

	assert_int_equal(upgrade_history_floor(&h), 0);
	assert_int_equal(upgrade_history_refusals(&h), 0);
	add(&h, UPGRADE_OPERATOR, UPGRADE_OUT_DONE, 9);
	add(&h, UPGRADE_OPERATOR, UPGRADE_OUT_DONE, 5);
	add(&h, UPGRADE_HUB, UPGRADE_OUT_BACK, 12);
	add(&h, UPGRADE_HUB, UPGRADE_OUT_FAILED, 13);
	assert_int_equal(upgrade_history_floor(&h), 5);	/* not 9: an operator went down from it */
	for (unsigned i = 1; i <= 40; i++) {
		add(&h, UPGRADE_HUB, UPGRADE_OUT_REFUSED, 20);
		assert_int_equal(upgrade_history_refusals(&h), i < 28 ? i : 28);
	}
	assert_int_equal(upgrade_history_floor(&h), 5);
	add(&h, UPGRADE_OPERATOR, UPGRADE_OUT_REFUSED, 20);
	assert_int_equal(upgrade_history_refusals(&h), 0);
}

/* A hub can ask for neither a moment nor for ever. */
static void
test_settle(void **state)
{
	struct upgrade_conf c;
	static const char text[] = "channel stable\nsettle 60\nsettle-max 300\n", more[] = "channel stable\nsettle 60\nsettle-max 300\nsettle-min 30\n";

	assert_int_equal(upgrade_conf_parse(text, sizeof(text) - 1, &c), 0);
	assert_int_equal(c.settle_min, UPGRADE_SETTLE_MIN);
	assert_int_equal(upgrade_conf_parse(more, sizeof(more) - 1, &c), 0);
	assert_int_equal(upgrade_settle(&c, UPGRADE_HUB, 0), 60);
	assert_int_equal(upgrade_settle(&c, UPGRADE_HUB, 1), 30);
	assert_int_equal(upgrade_settle(&c, UPGRADE_OPERATOR, 1), 1);
	assert_int_equal(upgrade_settle(&c, UPGRADE_HUB, 600), 300);
	assert_int_equal(upgrade_settle(&c, UPGRADE_OPERATOR, 600), 300);
	c.settle_max = 10;
	assert_int_equal(upgrade_settle(&c, UPGRADE_HUB, 1), 10);
	for (size_t n = sizeof(text) - 1; n < sizeof(more) - 1; n++)	/* cut off in the last line */
		assert_int_equal(upgrade_conf_parse(more, n, &c), n == sizeof(text) - 1 ? 0 : -EBADMSG);
}

static void
test_units(void **state)
{
	char text[] = "ActiveState=active\nMainPID=12\nNRestarts=3\n\nMainPID=99999999999\nActiveState=failed\n\nActiveState=deactivating\nMainPID=x\n";
	struct judge_unit_facts u[JUDGE_UNITS];

	judge_read_units(text, u);
	assert_true(u[0].active && !u[0].failed && u[0].pid == 12 && u[0].restarts == 3);
	assert_true(!u[1].active && u[1].failed && u[1].pid == 0);
	assert_true(!u[2].active && !u[2].failed && u[2].pid == 0);
	text[0] = '\0';
	judge_read_units(text, u);
	assert_false(u[0].active);
}

/* A pid that a taken-over workerd names must be in the unit's cgroup to count as work. */
static void
test_is_work(void **state)
{
	static const char own[] = "1:name=systemd:/x\n0::/system.slice/edgeward-workerd.service/launch\n";

	assert_true(judge_is_work("0::/system.slice/edgeward-workerd.service/w.a\n", own));
	assert_true(judge_is_work("5:pids:/\n0::/system.slice/edgeward-workerd.service/w.a/sub\n", own));
	assert_false(judge_is_work("0::/init.scope\n", own));
	assert_false(judge_is_work("0::/system.slice/edgeward-workerd.service2/w.a\n", own));
	assert_false(judge_is_work("0::/system.slice/dbus.service\n", own));
	assert_false(judge_is_work("", own));
	assert_false(judge_is_work("0::/x\n", ""));
	assert_true(judge_is_work("4:pids:/a\n", "4:pids:/b\n"));	/* no unified hierarchy: nobody can tell */
	assert_true(judge_is_work("0::/\n", "0::/\n"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_b95_device), cmocka_unit_test(test_b97_order), cmocka_unit_test(test_protocol), cmocka_unit_test(test_b100_program),
		cmocka_unit_test(test_history), cmocka_unit_test(test_settle), cmocka_unit_test(test_units), cmocka_unit_test(test_is_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
