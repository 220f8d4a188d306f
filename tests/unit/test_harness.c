/* Names of harnesses and what workerd says of an installation, as connectd checks it. */
#include <string.h>

#include "proto/ipc/harness.h"
#include "tests/unit/unit.h"

static void
test_names(void **state)
{
	char longest[66];

	memset(longest, 'a', sizeof(longest));
	longest[64] = '\0';
	assert_true(harness_name_ok("claude") && harness_name_ok("a_B-9") && harness_name_ok(longest));
	longest[64] = 'a';
	longest[65] = '\0';
	assert_false(harness_name_ok(longest));
	assert_false(harness_name_ok("") || harness_name_ok("../x") || harness_name_ok("a b") || harness_name_ok("a.b") || harness_name_ok("a/b"));
}

static void
test_answers(void **state)
{
	struct harness_done good = { .installed = 1, .path = "/w/.harnesses/.local/bin/claude", .version = "1.2", .reason = "two\nlines" }, d = good;

	assert_true(harness_done_ok(&d));
	d.installed = 2;
	assert_false(harness_done_ok(&d));
	d = good;
	d.reason[0] = '\t';
	assert_false(harness_done_ok(&d));
	d = good;
	d.version[1] = (char)0xc3;
	assert_false(harness_done_ok(&d));
	d = good;
	memset(d.reason, 'x', sizeof(d.reason));
	assert_false(harness_done_ok(&d));
	d = good;
	d.path[sizeof(d.path) - 1] = 'x';
	assert_false(harness_done_ok(&d));
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_names), cmocka_unit_test(test_answers) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
