#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ipc/work.h"
#include "tests/unit/unit.h"

static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
static uint8_t buf[WORK_SPEC_MAX];

static struct work_spec
sample(void)
{
	struct work_spec s = { .handle = "Qk3vT0x9mZ2dLr8A", .work_dir = "proj-1", .timeout_s = 60, .env_given = true,
		.memory_bytes = 1 << 20, .argc = 2, .envc = 1, .argv = argv, .env = env };

	argv[0] = (struct work_str){ "make", 4 };
	argv[1] = (struct work_str){ "", 0 };
	env[0] = (struct work_str){ "A=", 2 };
	return s;
}

static void
round_trip(void **state)
{
	static struct work_str argv2[WORK_ARGV_MAX], env2[WORK_ENV_MAX];
	struct work_spec s = sample(), d = { .argv = argv2, .env = env2 };
	size_t len;

	s.overflow = WORK_OVERFLOW_DROP;
	s.asked_s = 61;
	assert_int_equal(work_spec_encode(&s, buf, sizeof(buf), &len), 0);
	assert_int_equal(work_spec_decode(&d, buf, len), 0);
	assert_int_equal(d.overflow, WORK_OVERFLOW_DROP);
	assert_int_equal(d.asked_s, 61);
	assert_string_equal(d.handle, s.handle);
	assert_string_equal(d.work_dir, s.work_dir);
	assert_int_equal(d.timeout_s, 60);
	assert_true(d.env_given);
	assert_int_equal(d.argc, 2);
	assert_int_equal(d.argv[0].len, 4);
	assert_memory_equal(d.argv[0].s, "make", 4);
	assert_int_equal(d.argv[1].len, 0);
	assert_memory_equal(d.env[0].s, "A=", 2);
	for (size_t cut = 0; cut < len; cut++)
		assert_int_equal(work_spec_decode(&d, buf, cut), -EBADMSG);
	assert_int_equal(work_spec_decode(&d, buf, len + 1), -EBADMSG);
}

static void
refuses(void **state)
{
	struct work_spec s;
	size_t len;

#define REFUSED(change) do { s = sample(); change; assert_int_equal(work_spec_encode(&s, buf, sizeof(buf), &len), -EINVAL); } while (0)
	REFUSED(s.handle[0] = '/');
	REFUSED(s.argc = 0);
	REFUSED(argv[0].len = 0);
	REFUSED(argv[1] = ((struct work_str){ "a\0b", 3 }));
	REFUSED(env[0] = ((struct work_str){ "=x", 2 }));
	REFUSED(env[0] = ((struct work_str){ "x", 1 }));
	REFUSED(s.env_given = false);
	REFUSED(s.argc = WORK_ARGV_MAX + 1);
	REFUSED(s.overflow = WORK_OVERFLOWS);
	s = sample();
	assert_int_equal(work_spec_encode(&s, buf, 20, &len), -ENOSPC);
}

static void
workload_records(void **state)
{
	struct work_workload good = { .wid = 1, .state = WORK_RUNNING, .handle = "h" }, w;

	assert_true(work_workload_ok(&good));
#define BAD(change) do { w = good; change; assert_false(work_workload_ok(&w)); } while (0)
	BAD(w.wid = 0);
	BAD(w.state = 0);
	BAD(w.state = 4);
	BAD(w.state = WORK_ENDED);
	BAD(w.outcome = WORK_OUTCOME_EXITED);
	BAD(w.flags = 0x80);
	BAD(w.handle[0] = '\0');
	BAD(memset(w.handle, 'a', sizeof(w.handle)));
	BAD(w.handle[3] = 'x');
	BAD(memset(w.error, 'a', sizeof(w.error)));
	BAD(w.retained_from = 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(refuses),
		cmocka_unit_test(workload_records),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
