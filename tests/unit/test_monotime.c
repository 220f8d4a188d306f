#include "common/monotime.h"
#include "tests/unit/unit.h"

static void
arithmetic_saturates(void **state)
{
	monotime_t t = { 1000 };

	assert_true(monotime_add_ms(t, 1).ns == 1001000);
	assert_true(monotime_add_us(t, -1).ns == 0);
	assert_true(monotime_add_ms(t, INT64_MAX).ns == INT64_MAX);
	assert_true(monotime_add_ms(t, INT64_MIN).ns == INT64_MIN);
	assert_true(monotime_add_ms(MONOTIME_NEVER, -5).ns == INT64_MAX);
	assert_true(monotime_diff_ms((monotime_t){ 5000000 }, (monotime_t){ 1000000 }) == 4);
	assert_true(monotime_diff_ms(MONOTIME_NEVER, (monotime_t){ INT64_MIN }) == INT64_MAX / 1000000);
	assert_true(monotime_before(t, MONOTIME_NEVER));
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(arithmetic_saturates) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
