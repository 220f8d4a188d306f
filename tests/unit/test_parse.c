#include <errno.h>

#include "common/parse.h"
#include "tests/unit/unit.h"

static void
numbers(void **state)
{
	static const struct { const char *s; int r; uint64_t v; } t[] = {
		{ "0", 0, 0 }, { "18446744073709551615", 0, UINT64_MAX }, { "18446744073709551616", -ERANGE, 0 },
		{ "", -EINVAL, 0 }, { " 1", -EINVAL, 0 }, { "1 ", -EINVAL, 0 }, { "-1", -EINVAL, 0 }, { "+1", -EINVAL, 0 },
		{ "0x1", -EINVAL, 0 }, { "1e3", -EINVAL, 0 }, { "007", 0, 7 },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		uint64_t v = 42;

		assert_int_equal(parse_u64(t[i].s, 0, UINT64_MAX, &v), t[i].r);
		assert_true(v == (t[i].r == 0 ? t[i].v : 42));
	}
	uint32_t u = 42;

	assert_int_equal(parse_u32("4294967295", 0, UINT32_MAX, &u), 0);
	assert_int_equal(parse_u32("4294967296", 0, UINT32_MAX, &u), -ERANGE);
	assert_int_equal(parse_u32("4", 5, 9, &u), -ERANGE);
	assert_int_equal(parse_u32("10", 5, 9, &u), -ERANGE);
}

static void
units(void **state)
{
	int64_t ms = 0;
	uint64_t b = 0;
	int yes = -1;

	assert_int_equal(parse_duration_ms("90", 0, INT64_MAX, &ms), 0);
	assert_int_equal(ms, 90000);
	assert_int_equal(parse_duration_ms("2h", 0, INT64_MAX, &ms), 0);
	assert_int_equal(ms, 7200000);
	assert_int_equal(parse_duration_ms("9223372036854775807h", 0, INT64_MAX, &ms), -ERANGE);
	assert_int_equal(parse_duration_ms("5 m", 0, INT64_MAX, &ms), -EINVAL);
	assert_int_equal(parse_size("17179869184G", 0, UINT64_MAX, &b), -ERANGE);
	assert_int_equal(parse_size("3G", 0, UINT64_MAX, &b), 0);
	assert_true(b == 3ull << 30);
	assert_int_equal(parse_yes_no("yes", &yes), 0);
	assert_int_equal(yes, 1);
	assert_int_equal(parse_yes_no("true", &yes), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(numbers), cmocka_unit_test(units) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
