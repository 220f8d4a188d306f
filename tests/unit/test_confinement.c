/* Which parts of the sandbox a start gets, for every machine there may be; and what the launcher takes in a start. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/unit.h"
#include "workerd/confinement.h"

static struct conf conf;
static struct policy policy;
static struct launch_ready ready;
static char error[208];

static void
reset(uint32_t parts, uint32_t pool, enum launch_tree tree)
{
	conf = (struct conf){ .work_sandbox = CONF_SANDBOX_REQUIRE };
	policy = (struct policy){ .start = true };
	ready = (struct launch_ready){ .parts = parts, .pool_count = pool, .tree = (uint8_t)tree };
}

static enum work_refusal
decide(bool no_network, uint32_t *ret_parts)
{
	*ret_parts = 0xdead;
	error[0] = '\0';
	enum work_refusal r = confinement_decide(&conf, &policy, &ready, no_network ? WORK_NETWORK_NONE : WORK_NETWORK_HOST, ret_parts, error);

	assert_int_equal(error[0] == '\0', r == WORK_OK);
	return r;
}

/* Require: all or nothing, and what is missing by name. Best effort: what there is, never a part without what it needs. */
static void
every_machine(void **state)
{
	for (uint32_t parts = 0; parts <= LAUNCH_PARTS_ALL; parts++) {
		uint32_t got, missing = LAUNCH_PARTS_NAMESPACES & ~parts;
		struct launch_start s = { .handle = "h" };
		char names[160];

		reset(parts, 8, LAUNCH_TREE_CGROUP);
		launch_parts_text(missing, names, sizeof(names));
		assert_int_equal(decide(false, &got), missing == 0 ? WORK_OK : WORK_REFUSED_SANDBOX);
		if (missing == 0)
			assert_int_equal(got, LAUNCH_PARTS_NAMESPACES);
		else
			assert_non_null(strstr(error, names));
		conf.work_sandbox = CONF_SANDBOX_BEST_EFFORT;
		assert_int_equal(decide(false, &got), WORK_OK);
		assert_int_equal(got & ~(parts & LAUNCH_PARTS_NAMESPACES), 0);
		s.parts = got;
		assert_true(launch_start_ok(&s, &ready));
		if ((parts & LAUNCH_PART_USER) != 0 && (parts & LAUNCH_PART_PID) != 0)
			assert_int_equal(got, parts & LAUNCH_PARTS_NAMESPACES);
		/* less network than asked for is never given */
		assert_int_equal(decide(true, &got), (parts & LAUNCH_PART_USER) != 0 && (parts & LAUNCH_PART_NET) != 0 ? WORK_OK :
		    WORK_REFUSED_SANDBOX);
	}
}

static void
level_uid(void **state)
{
	uint32_t got;

	reset(LAUNCH_PARTS_UID, 8, LAUNCH_TREE_CGROUP);
	assert_int_equal(decide(false, &got), WORK_REFUSED_SANDBOX);
	assert_non_null(strstr(error, "user namespaces"));
	assert_non_null(strstr(error, "sandbox-level = uid"));
	policy.sandbox_level = POLICY_SANDBOX_UID;
	assert_int_equal(decide(false, &got), WORK_OK);
	assert_int_equal(got, LAUNCH_PARTS_UID);
	ready.parts = LAUNCH_PART_SECCOMP;
	assert_int_equal(decide(false, &got), WORK_REFUSED_SANDBOX);
	assert_non_null(strstr(error, "Landlock"));
	reset(LAUNCH_PARTS_ALL, 0, LAUNCH_TREE_CGROUP);
	policy.sandbox_level = POLICY_SANDBOX_UID;
	assert_int_equal(decide(false, &got), WORK_REFUSED_SANDBOX);
	assert_non_null(strstr(error, "pool"));
	conf.work_sandbox = CONF_SANDBOX_BEST_EFFORT;
	assert_int_equal(decide(false, &got), WORK_OK);
	/* without a cgroup the pid namespace ends the work, whatever the level */
	reset(LAUNCH_PARTS_ALL, 8, LAUNCH_TREE_PIDNS);
	policy.sandbox_level = POLICY_SANDBOX_UID;
	assert_int_equal(decide(false, &got), WORK_OK);
	assert_int_equal(got, LAUNCH_PARTS_UID | LAUNCH_PART_USER | LAUNCH_PART_PID);
}

static void
shown_directories(void **state)
{
	static const char *const good[] = { "", "/a", "/a/b.c /..d", "/usr/share /opt/x" };
	static const char *const bad[] = { "a", "/", "/a/", "//a", "/a//b", "/a/..", "/../a", "/a/./b", "/.", " /a", "/a ", "/a  /b", "/a\t/b/.." };
	char list[LAUNCH_SHOW_SIZE] = "/b /a/b/c /a/b-c /a/b /a";
	uint32_t got;

	for (size_t i = 0; i < COUNT(good); i++)
		assert_true(launch_show_ok(good[i]));
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_false(launch_show_ok(bad[i]));
	launch_show_order(list);
	assert_string_equal(list, "/a /a/b /a/b-c /a/b/c /b");
	reset(LAUNCH_PARTS_ALL, 8, LAUNCH_TREE_CGROUP);
	snprintf(conf.work_show, sizeof(conf.work_show), "/usr /tmp");
	assert_int_equal(decide(false, &got), WORK_OK);
	snprintf(conf.work_show, sizeof(conf.work_show), "/usr /nonexistent /tmp");
	assert_int_equal(decide(false, &got), WORK_REFUSED_SANDBOX);
	assert_non_null(strstr(error, "/nonexistent"));
	snprintf(conf.work_show, sizeof(conf.work_show), "/etc/passwd");
	assert_int_equal(decide(false, &got), WORK_REFUSED_SANDBOX);
}

static void
names_are_cut(void **state)
{
	char buf[20];

	launch_parts_text(0, buf, sizeof(buf));
	assert_string_equal(buf, "");
	launch_parts_text(LAUNCH_PART_LANDLOCK | LAUNCH_PART_SECCOMP, buf, sizeof(buf));
	assert_string_equal(buf, "Landlock, seccomp");
	launch_parts_text(LAUNCH_PARTS_ALL, buf, sizeof(buf));
	assert_int_equal(strlen(buf), sizeof(buf) - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_machine),
		cmocka_unit_test(level_uid),
		cmocka_unit_test(shown_directories),
		cmocka_unit_test(names_are_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
