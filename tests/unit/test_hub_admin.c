/* The records of the admin socket: the start request with its parts, the checks of the fixed ones. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "hub/admin.h"

static uint8_t buf[8192];
static const struct admin_limits limits = { 1500, 500, 64, 20, 7, WORK_OVERFLOW_DROP }, no_limits, bad_limits = { .timeout_ms = -1 },
	bad_overflow = { .overflow = WORK_OVERFLOWS };

static size_t
encode(char *const argv[], char *const env[])
{
	size_t len = 0;

	assert_int_equal(admin_start_encode(buf, sizeof(buf), &len, "handle", "dev", "src", &limits, NULL, 0, argv, env), 0);
	return len;
}

static void
test_start(void **state)
{
	char *argv[] = { "make", "", "-j2", NULL }, *env[] = { "A=1", "B=", NULL };
	struct admin_start s;
	const char *why, *p;
	size_t n, len = encode(argv, env);

	(void)state;
	assert_int_equal(admin_start_decode(&s, buf, len, &why), 0);
	assert_string_equal(s.handle, "handle");
	assert_string_equal(s.device, "dev");
	assert_string_equal(s.work_dir, "src");
	assert_int_equal(s.limits.timeout_ms, 1500);
	assert_int_equal(s.limits.cpu_millis, 500);
	assert_int_equal(s.limits.memory_mb, 64);
	assert_int_equal(s.limits.pids, 20);
	assert_int_equal(s.limits.disk_mb, 7);
	assert_int_equal(s.limits.overflow, WORK_OVERFLOW_DROP);
	assert_true(s.env_given);
	assert_int_equal(s.argc, 3);
	assert_int_equal(s.envc, 2);
	p = admin_start_next(&s, &n);
	assert_int_equal(n, 4);
	assert_memory_equal(p, "make", 4);
	(void)admin_start_next(&s, &n);
	assert_int_equal(n, 0);
	(void)admin_start_next(&s, &n);
	p = admin_start_next(&s, &n);
	assert_memory_equal(p, "A=1", 3);
	/* No env is not the same as an empty one. */
	len = encode(argv, NULL);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), 0);
	assert_false(s.env_given);
	/* Cut anywhere, or with something behind it, it is refused. */
	for (size_t i = 0; i < len; i++)
		assert_int_equal(admin_start_decode(&s, buf, i, &why), -EBADMSG);
	buf[len] = 0;
	assert_int_equal(admin_start_decode(&s, buf, len + 1, &why), -EBADMSG);
	assert_int_equal(admin_start_encode(buf, 20, &len, "handle", "dev", "", &no_limits, NULL, 0, argv, NULL), -ENOSPC);
}

/* What comes behind the arguments: secrets, devices, the network. */
static void
test_network(void **state)
{
	char *argv[] = { "a", NULL };
	struct firewall fw = { .public_internet = true, .nports = 1, .ports = { 443 } }, got;
	struct admin_start s;
	struct wire_r r;
	const char *why;
	size_t len = encode(argv, NULL), plain = len;

	(void)state;
	assert_int_equal(admin_start_more(buf, sizeof(buf), &len, NULL, 0, "", WORK_NETWORK_DEFAULT, &fw), 0);
	assert_int_equal(len, plain);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), 0);
	assert_int_equal(s.net.network, WORK_NETWORK_DEFAULT);
	assert_int_equal(admin_start_more(buf, sizeof(buf), &len, NULL, 0, "", WORK_NETWORK_NONE, &fw), 0);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), 0);
	assert_int_equal(s.net.network, WORK_NETWORK_NONE);
	len = plain;
	assert_int_equal(fw_cidr_parse("10.1.0.0/16", false, &fw.allow[fw.nallow++]), 0);
	assert_int_equal(admin_start_more(buf, sizeof(buf), &len, NULL, 0, "dev-1", WORK_NETWORK_FILTERED, &fw), 0);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), 0);
	assert_int_equal(s.net.network, WORK_NETWORK_FILTERED);
	assert_string_equal(s.devices, "dev-1");
	wire_r_init(&r, s.net.firewall, s.net.firewall_len);
	fw_get(&r, &got);
	assert_int_equal(wire_done(&r), 0);
	assert_true(got.public_internet && got.nallow == 1 && got.nports == 1 && got.ports[0] == 443);
	for (size_t i = plain + 1; i < len; i++)
		if (admin_start_decode(&s, buf, i, &why) == 0)
			assert_int_equal(s.net.network, WORK_NETWORK_DEFAULT);
	buf[plain + 4 + 4 + 5] = WORK_NETWORK_HOST + 1;
	assert_int_equal(admin_start_decode(&s, buf, len, &why), -EBADMSG);
}

static void
refused(char *const argv[], char *const env[], const char *part)
{
	struct admin_start s;
	const char *why = NULL;

	assert_int_equal(admin_start_decode(&s, buf, encode(argv, env), &why), -EBADMSG);
	assert_non_null(strstr(why, part));
}

static void
test_start_refused(void **state)
{
	char *none[] = { NULL }, *empty[] = { "", NULL }, *bad[] = { "a", "\xff", NULL }, *good[] = { "a", NULL };
	char *novalue[] = { "A", NULL }, *noname[] = { "=x", NULL };
	struct admin_start s;
	const char *why;
	size_t len;

	(void)state;
	refused(none, NULL, "no command");
	refused(empty, NULL, "empty");
	refused(bad, NULL, "UTF-8");
	refused(good, novalue, "K=V");
	refused(good, noname, "K=V");
	assert_int_equal(admin_start_encode(buf, sizeof(buf), &len, "bad handle", "d", "", &no_limits, NULL, 0, good, NULL), 0);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), -EBADMSG);
	assert_int_equal(admin_start_encode(buf, sizeof(buf), &len, "h", "d", "", &bad_limits, NULL, 0, good, NULL), 0);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), -EBADMSG);
	assert_int_equal(admin_start_encode(buf, sizeof(buf), &len, "h", "d", "", &bad_overflow, NULL, 0, good, NULL), 0);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), -EBADMSG);
	assert_int_equal(admin_start_encode(buf, sizeof(buf), &len, "h", "d", "\xc3", &no_limits, NULL, 0, good, NULL), 0);
	assert_int_equal(admin_start_decode(&s, buf, len, &why), -EBADMSG);
}

static void
test_fixed(void **state)
{
	struct admin_signal sig = { .handle = "h", .signal = "kill" };
	struct admin_follow follow = { .handle = "h", .flags = ADMIN_FOLLOW_WAIT };
	struct admin_runs_req runs = { .device = "d", .flags = ADMIN_RUNS_OPEN };
	struct admin_token_req token = { .name = "n" };
	struct admin_text text = { .text = "x" };
	struct admin_away away = { .state = ADMIN_AWAY, .device = "d", .why = "w" };

	(void)state;
	assert_true(admin_away_ok(&away));
	away.state = 3;
	assert_false(admin_away_ok(&away));
	away = (struct admin_away){ .device = "d" };
	memset(away.why, 'w', sizeof(away.why));
	assert_false(admin_away_ok(&away));
	assert_true(admin_signal_ok(&sig));
	snprintf(sig.signal, sizeof(sig.signal), "stop");
	assert_false(admin_signal_ok(&sig));
	assert_true(admin_follow_ok(&follow));
	follow.flags = 2;
	assert_false(admin_follow_ok(&follow));
	assert_true(admin_runs_req_ok(&runs));
	runs.device[40] = 'x';
	assert_false(admin_runs_req_ok(&runs));
	assert_true(admin_token_req_ok(&token));
	memset(token.name, 'a', sizeof(token.name));
	assert_false(admin_token_req_ok(&token));
	assert_true(admin_text_ok(&text));
	text.text[255] = 1;
	assert_false(admin_text_ok(&text));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_start), cmocka_unit_test(test_network),
		cmocka_unit_test(test_start_refused),
		cmocka_unit_test(test_fixed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
