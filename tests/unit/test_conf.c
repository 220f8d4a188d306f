/* B09: every time and size from the configuration is range-checked at load and refused with its line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"
#include "tests/unit/unit.h"

static struct conf conf;
static char err[CONF_ERR_SIZE];

static int
parse(const char *text)
{
	return conf_parse(&conf, "t.conf", text, strlen(text), err);
}

static void
defaults_and_values(void **state)
{
	assert_int_equal(parse(""), 0);
	assert_int_equal(conf.heartbeat, 15000);
	assert_int_equal(conf.work_retain, 1 << 20);
	assert_string_equal(conf.work_root, "/var/lib/edgeward/work");
	assert_int_equal(parse("# c\n[hub]\nurl = wss://h/p\ninsecure-transport = yes\n; c\n\n[link]\nheartbeat = 2s\n"
	    "[work]\noverflow = wait-forever\nretain = 4M\nslots=7\n[log]\nlevel = debug\n"), 0);
	assert_string_equal(conf.hub_url, "wss://h/p");
	assert_true(conf.hub_insecure);
	assert_int_equal(conf.heartbeat, 2000);
	assert_int_equal(conf.work_overflow, CONF_OVERFLOW_WAIT_FOREVER);
	assert_int_equal(conf.work_retain, 4 << 20);
	assert_int_equal(conf.work_slots, 7);
	assert_int_equal(conf.work_spool, 0);
	assert_int_equal(conf.work_spool_total, 256 << 20);
	assert_int_equal(conf.log_level, LOG_LEVEL_DEBUG);
}

static void
errors_name_file_and_line(void **state)
{
	static const struct { const char *text, *want; } bad[] = {
		{ "[hub]\nurll = x\n", "t.conf:2: unknown key: [hub] urll (did you mean url?)" },
		{ "[hubb]\nurl = x\n", "t.conf:2: unknown key: [hubb] url (did you mean [hub]?)" },
		{ "[work]\nurl = x\n", "t.conf:2: unknown key: [work] url (it belongs below [hub])" },
		{ "[nothing-like]\nof-the-kind = x\n", "t.conf:2: unknown key: [nothing-like] of-the-kind" },
		{ "url = x\n", "t.conf:1: key above the first section: [] url (it belongs below [hub])" },
		{ "[hub]\nurl = a\n\nurl = b\n", "t.conf:4: key given twice: [hub] url" },
		{ "[hub]\nurl = a\n[work]\n[hub]\nurl = b\n", "t.conf:5: key given twice: [hub] url" },
		{ "[hub]\nurl = a\n  b\n", "t.conf:3: line begins with white space" },
		{ "[hub\nurl = a\n", "t.conf:1: not a section" },
		{ "[hub]\njunk\n", "t.conf:2: not a section, a key or a comment" },
		{ "[hub]\ninsecure-transport = maybe\n", "t.conf:2: bad value, expected yes or no" },
		{ "[work]\noverflow = sometimes\n", "expected one of wait wait-forever drop" },
		{ "[link]\nheartbeat = 20s\ndead-after = 10s\n", "dead-after must not be shorter" },
		{ "[link]\nretry-min = 20s\n", "retry-min <= retry-max-local" },
		{ "[work]\nspool = 64K\n", "spool must be 0, or at least 1M and not more than spool-total" },
		{ "[work]\nspool = 2M\nspool-total = 1M\n", "not more than spool-total" },
		{ "[work]\nspool-total = 0\n", "expected a size of at least 1048576 bytes" },
	};

	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(parse(bad[i].text), -EINVAL);
		if (strstr(err, bad[i].want) == NULL)
			fail_msg("%s: got \"%s\"", bad[i].want, err);
	}
}

static void
b09_times_are_range_checked(void **state)
{
	static const char *const refused[] = { "-1", "0", "99ms", "301s", "1e3", "5 m", "", "18446744073709551616", "10h", "1.5s" };
	static const char *const accepted[] = { "100ms", "1", "300s", "5m" };
	char text[128];

	for (size_t i = 0; i < COUNT(refused); i++) {
		snprintf(text, sizeof(text), "[link]\ndead-after = 10m\nheartbeat = %s\n", refused[i]);
		assert_int_equal(parse(text), -EINVAL);
		assert_non_null(strstr(err, "t.conf:3: bad value, expected a time"));
	}
	for (size_t i = 0; i < COUNT(accepted); i++) {
		snprintf(text, sizeof(text), "[link]\ndead-after = 10m\nheartbeat = %s\n", accepted[i]);
		assert_int_equal(parse(text), 0);
	}
}

static void
lines_and_bytes(void **state)
{
	char text[400] = "[hub]\nurl = ";
	size_t n = strlen(text);

	memset(text + n, 'x', 198 - 6);
	assert_int_equal(parse(text), 0);
	text[n + 198 - 6] = 'x';
	assert_int_equal(parse(text), -EINVAL);
	assert_non_null(strstr(err, "t.conf:2: line longer than 198 bytes"));
	assert_int_equal(conf_parse(&conf, "t.conf", "[hub]\n\0", 7, err), -EINVAL);
	assert_int_equal(parse("[hub]\nurl = a\x01" "b\n"), -EINVAL);
	assert_null(strchr(err, '\x01'));
	assert_int_equal(conf_load(&conf, "/nonexistent/x.conf", err), -ENOENT);
	assert_string_equal(err, "/nonexistent/x.conf: No such file or directory");
	assert_int_equal(conf_load(&conf, "/dev/null", err), -EINVAL);
}

/* Where the units have it, it may be missing: a device whose /etc is not made yet starts, and says that it knows no hub. */
static void
b125_missing_is_defaults(void **state)
{
	struct conf other;

	if (access(CONF_FILE, F_OK) == 0)
		skip();
	assert_int_equal(conf_parse(&other, "t.conf", "", 0, err), 0);
	assert_false(other.missing);
	memset(&conf, 0xff, sizeof(conf));
	assert_int_equal(conf_load(&conf, CONF_FILE, err), 0);
	assert_true(conf.missing);
	assert_string_equal(conf.hub_url, "");
	assert_int_equal(conf.heartbeat, other.heartbeat);
	assert_string_equal(conf.work_root, other.work_root);
	assert_int_equal(parse(""), 0);
	assert_false(conf.missing);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_and_values),
		cmocka_unit_test(errors_name_file_and_line),
		cmocka_unit_test(b09_times_are_range_checked),
		cmocka_unit_test(lines_and_bytes),
		cmocka_unit_test(b125_missing_is_defaults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
