/* What an operator is shown of a command line: bounded, printable, and no secret in it. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "workerd/shown.h"

static struct work_str argv[4];
static char buf[64];

static const char *
show(uint32_t argc, const struct redact *redact)
{
	memset(buf, 'x', sizeof(buf));
	shown_command(argv, argc, redact, buf, sizeof(buf));
	assert_true(strlen(buf) < sizeof(buf));
	return buf;
}

static void
give(int i, const char *s)
{
	argv[i] = (struct work_str){ s, strlen(s) };
}

static void
plain(void **state)
{
	char longer[200];

	give(0, "make");
	give(1, "-j4");
	give(2, "a\nb\x1b[31m\x7f\xc3\xa4");
	assert_string_equal(show(2, NULL), "make -j4");
	assert_string_equal(show(3, NULL), "make -j4 a\\x0ab\\x1b[31m\\x7f\\xc3\\xa4");
	memset(longer, 'y', sizeof(longer));
	for (size_t len = 40; len < sizeof(longer); len++) {
		argv[1] = (struct work_str){ longer, len };
		show(2, NULL);
		assert_int_equal(strlen(buf), len + 5 < sizeof(buf) ? len + 5 : sizeof(buf) - 1);
		assert_true(len + 5 < sizeof(buf) || strcmp(buf + sizeof(buf) - 4, "...") == 0);
	}
	memset(longer, 1, sizeof(longer));
	for (size_t len = 0; len < sizeof(longer); len++) {
		argv[1] = (struct work_str){ longer, len };
		show(2, NULL);
	}
	assert_string_equal(show(0, NULL), "");
}

static void
secrets(void **state)
{
	static char big[5000];
	const struct redact_value values[] = { { (const uint8_t *)"hunter2hunter2", 14 }, { (const uint8_t *)big, sizeof(big) } };
	struct redact *redact;
	size_t dropped;

	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = (char)('a' + i * 7 % 26);
	assert_int_equal(redact_new(values, 2, &redact, &dropped), 0);
	give(0, "login");
	give(1, "--password=hunter2hunter2");
	give(2, "now");
	assert_string_equal(show(3, redact), "login --password=[redacted] now");
	/* One that is much longer than what is shown does not show how it begins; nor does one that is cut off. */
	argv[1] = (struct work_str){ big, sizeof(big) };
	assert_string_equal(show(3, redact), "login [redacted] now");
	argv[1] = (struct work_str){ big, sizeof(big) - 1 };
	assert_null(strstr(show(2, redact), "ahov"));
	give(1, "hunter2");
	assert_string_equal(show(3, redact), "login hunter2 now");
	redact_free(redact);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(plain), cmocka_unit_test(secrets) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
