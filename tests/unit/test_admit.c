/*
 * B65: work is refused by the resource it needs, before anything is made. B73: sizes are 64 bits wide and saturate. Free space is
 * computed in admit_free() only (workerd's status and admission both use it).
 */
#include <string.h>

#include "tests/unit/unit.h"
#include "workerd/admit.h"

static struct conf conf;
static struct policy policy;
static struct launch_ready ready;
static struct work_str program;
static struct work_spec spec;

static void
text_policy(const char *text)
{
	char err[KEYFILE_ERR];

	assert_int_equal(policy_parse(&policy, "policy.conf", text, strlen(text), err), 0);
}

static struct admit_now
plenty(void)
{
	conf.work_disk_low = 64 << 20;
	conf.work_sandbox = CONF_SANDBOX_REQUIRE;
	text_policy("");
	ready = (struct launch_ready){ .tree = LAUNCH_TREE_CGROUP };
	program = (struct work_str){ "/bin/true", 9 };
	spec = (struct work_spec){ .argc = 1, .argv = &program };
	return (struct admit_now){ .conf = &conf, .policy = &policy, .ready = &ready, .slots = 2, .undelivered_max = 100,
		.disk_free = 1ull << 40, .inodes_free = 1 << 20 };
}

static enum work_refusal
ask(const struct admit_now *now, const char *text)
{
	char error[208];
	uint32_t flags;
	enum work_refusal r = admit(now, &spec, error, &flags);

	assert_true(strlen(error) < 208);
	if (text != NULL)
		assert_non_null(strstr(error, text));
	assert_int_equal(error[0] == '\0', r == WORK_OK);
	assert_int_equal(flags, now->draining ? WORK_F_DRAINING : 0);
	return r;
}

static void
refusals_have_reasons(void **state)
{
	struct admit_now now = plenty();

	assert_int_equal(ask(&now, NULL), WORK_OK);
	now.held = 2;
	assert_int_equal(ask(&now, "2 slots"), WORK_REFUSED_BUSY);
	now = plenty();
	now.draining = true;
	assert_int_equal(ask(&now, "drain"), WORK_REFUSED_BUSY);
	now = plenty();
	text_policy("[work]\nstart = no\n");
	assert_int_equal(ask(&now, "policy.conf:2: start = no"), WORK_REFUSED_POLICY);
	now = plenty();
	now.undelivered = now.undelivered_max;
	assert_int_equal(ask(&now, "confirmation"), WORK_REFUSED_MEMORY_LOW);
	now = plenty();
	now.retained = ADMIT_RETAINED_MAX + 1;
	assert_int_equal(ask(&now, "confirmation"), WORK_REFUSED_MEMORY_LOW);
	now = plenty();
	ready.tree = LAUNCH_TREE_NONE;
	assert_int_equal(ask(&now, "cgroup"), WORK_REFUSED_SANDBOX);
	conf.work_sandbox = CONF_SANDBOX_BEST_EFFORT;
	assert_int_equal(ask(&now, NULL), WORK_OK);
}

static void
b65_disk(void **state)
{
	struct admit_now now = plenty();

	now.disk_free = conf.work_disk_low;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	now.disk_free--;
	assert_int_equal(ask(&now, "disk-full"), WORK_REFUSED_DISK_LOW);
	/* once low, it takes an eighth more: no start, refusal, start on the edge */
	now.disk_was_low = true;
	now.disk_free = conf.work_disk_low + conf.work_disk_low / 8 - 1;
	assert_int_equal(ask(&now, "disk-full"), WORK_REFUSED_DISK_LOW);
	now.disk_free++;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	conf.work_disk_low = UINT64_MAX;
	assert_int_equal(ask(&now, "disk-full"), WORK_REFUSED_DISK_LOW);
	now = plenty();
	now.inodes_free = ADMIT_INODES_LOW - 1;
	assert_int_equal(ask(&now, "inodes-full"), WORK_REFUSED_DISK_LOW);
}

static void
limits_are_refused_by_name(void **state)
{
	struct admit_now now = plenty();

	spec.memory_bytes = 1;
	assert_int_equal(ask(&now, "memory"), WORK_REFUSED_UNSUPPORTED);
	ready.controllers = LAUNCH_CTL_MEMORY;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	spec.pids = 1;
	assert_int_equal(ask(&now, "pids"), WORK_REFUSED_UNSUPPORTED);
	ready.controllers |= LAUNCH_CTL_PIDS;
	spec.cpu_millis = 1;
	assert_int_equal(ask(&now, "cpu"), WORK_REFUSED_UNSUPPORTED);
	ready.controllers |= LAUNCH_CTL_CPU;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	policy.io_rate = 1 << 20;
	now.one_disk = true;
	assert_int_equal(ask(&now, "io is not delegated"), WORK_REFUSED_UNSUPPORTED);
	ready.controllers |= LAUNCH_CTL_IO;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	now.one_disk = false;
	assert_int_equal(ask(&now, "one disk"), WORK_REFUSED_UNSUPPORTED);
	policy.io_rate = 0;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	spec.disk_bytes = 1;
	assert_int_equal(ask(&now, "disk"), WORK_REFUSED_UNSUPPORTED);
}

/* A container's are the engine's to keep, whatever cgroup this device has; a process of the device's is refused what cannot be kept. */
static void
limits_of_a_container(void **state)
{
	struct admit_now now = plenty();

	spec.disk_bytes = 1 << 20;
	spec.memory_bytes = 64 << 20;
	assert_int_equal(ask(&now, "memory"), WORK_REFUSED_UNSUPPORTED);
	spec.contained = true;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	text_policy("[limits]\nmemory = 32M\n");
	assert_int_equal(ask(&now, "memory = 32M"), WORK_REFUSED_POLICY);
}

static void
timeouts_follow_policy(void **state)
{
	struct admit_now now = plenty();

	text_policy("[limits]\ntimeout = 60s\n");
	assert_int_equal(ask(&now, NULL), WORK_OK);
	assert_int_equal(spec.timeout_s, 60);
	spec.timeout_s = 30;
	assert_int_equal(ask(&now, NULL), WORK_OK);
	assert_int_equal(spec.timeout_s, 30);
	spec.timeout_s = 61;
	assert_int_equal(ask(&now, "policy.conf:2: timeout = 60s; this start asks for 61 s"), WORK_REFUSED_POLICY);
}

static void
b73_free_space(void **state)
{
	static const uint64_t units[] = { 1, 512, 4096, 1 << 20, 1ull << 31 };
	static const uint64_t blocks[] = { 0, 1, UINT32_MAX, 1ull << 32, 1ull << 52 };
	uint64_t bytes, inodes;

	for (size_t u = 0; u < COUNT(units); u++) {
		for (size_t b = 0; b < COUNT(blocks); b++) {
			struct statvfs st = { .f_frsize = units[u], .f_bsize = 7, .f_bavail = blocks[b], .f_blocks = 1ull << 53 };
			__uint128_t want = (__uint128_t)units[u] * blocks[b];

			admit_free(&st, &bytes, &inodes);
			assert_true(bytes == (want > UINT64_MAX ? UINT64_MAX : (uint64_t)want));
			assert_true(inodes == UINT64_MAX);
		}
	}
	/* more free than there is: nothing is free */
	admit_free(&(struct statvfs){ .f_frsize = 4096, .f_blocks = 10, .f_bavail = 11, .f_files = 5, .f_favail = 6 },
	    &bytes, &inodes);
	assert_int_equal(bytes, 0);
	assert_int_equal(inodes, 0);
	admit_free(&(struct statvfs){ .f_bsize = 4096, .f_blocks = 10, .f_bavail = 10, .f_files = 5, .f_favail = 5 },
	    &bytes, &inodes);
	assert_int_equal(bytes, 40960);
	assert_int_equal(inodes, 5);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refusals_have_reasons),
		cmocka_unit_test(b65_disk),
		cmocka_unit_test(limits_are_refused_by_name),
		cmocka_unit_test(limits_of_a_container),
		cmocka_unit_test(timeouts_follow_policy),
		cmocka_unit_test(b73_free_space),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
