/* edgectl doctor on a faked root: the machine; what may leave in a bundle; small parsers, children, the report's exit code. */
#include "tests/unit/doctorrig.h"

#include "connectd/httpdate.h"
#include "edgectl/doctor/redact.h"

/* ---- the machine ---- */

static void
test_namespaces(void **state)
{
	(void)state;
	put("/proc/sys/user/max_user_namespaces", "0\n");
	d.conf_ok = true;
	step_kernel(&d);
	says("namespaces", CHECK_FAIL, "no-userns");
	says("seccomp", CHECK_FAIL, "no-seccomp");
	nseen = 0;
	d.conf.work_sandbox = CONF_SANDBOX_BEST_EFFORT;
	put("/proc/sys/user/max_user_namespaces", "15000\n");
	put("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
	put("/proc/sys/kernel/seccomp/actions_avail", "kill_process kill_thread log allow\n");
	step_kernel(&d);
	says("namespaces", CHECK_WARN, "no-userns");
	says("seccomp", CHECK_OK, "");
}

static void
test_controllers(void **state)
{
	(void)state;
	step_cgroup(&d);
	says("cgroup", CHECK_WARN, "no-cgroup");
	nseen = 0;
	put("/sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
	d.view.work_up = true;
	d.view.work.launcher_up = 1;
	d.view.work.launcher_pid = 77;
	d.view.work.cgroup = 2;
	put("/proc/77/cgroup", "1:name=systemd:/x\n0::/system.slice/edgeward-workerd.service/launch\n");
	put("/sys/fs/cgroup/system.slice/edgeward-workerd.service/cgroup.controllers", "cpuset memory pids\n");
	step_cgroup(&d);
	says("cgroup", CHECK_OK, "");
	says("controllers", CHECK_WARN, "no-controller");
	assert_non_null(strstr(got("controllers")->detail, "no controller cpu in"));
	nseen = 0;
	d.view.work.cgroup = 0;
	put("/sys/fs/cgroup/system.slice/edgeward-workerd.service/cgroup.controllers", "cpu memory pids\n");
	step_cgroup(&d);
	says("cgroup", CHECK_WARN, "no-delegation");
	says("controllers", CHECK_OK, "");
}

static void
test_accounts(void **state)
{
	(void)state;
	step_accounts(&d);
	says("accounts", CHECK_FAIL, "missing");
	put("/etc/passwd", "root:x:0:0::/root:/bin/sh\nedgeward-net:x:990:990::/:/bin/false\nedgeward-work:x:991:991::/:/bin/false\n");
	put("/etc/group", "edgeward:x:980:alice,edgeward-net\nedgeward-ipc:x:981:edgeward-net\nedgeward-run:x:982:\n");
	nseen = 0;
	step_accounts(&d);
	says("accounts", CHECK_FAIL, "operator-daemon");
	put("/etc/group", "edgeward:x:980:alice\nedgeward-ipc:x:981:edgeward-net\nedgeward-run:x:982:\n");
	nseen = 0;
	step_accounts(&d);
	says("accounts", CHECK_OK, "");
	put("/etc/passwd", "edgeward-net:x:990:990::/:/bin/false\nedgeward-work:x:990:991::/:/bin/false\n");
	nseen = 0;
	step_accounts(&d);
	says("accounts", CHECK_FAIL, "not-separated");
}

static void
test_keys(void **state)
{
	static const char good[] = "untrusted comment: signify public key\nRWQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n";

	(void)state;
	step_keys(&d);
	says("keys", CHECK_SKIPPED, "");
	put("/etc/edgeward/keys/a.pub", good);
	nseen = 0;
	step_keys(&d);
	says("keys", CHECK_OK, "");
	put("/etc/edgeward/keys/b.pub", "ssh-ed25519 AAAA\n");
	nseen = 0;
	step_keys(&d);
	says("keys", CHECK_FAIL, "key");
}

/* ---- what may leave ---- */

static void
test_redact(void **state)
{
	static const char *const keys[] = { "hub.url", "work.root", NULL };
	static const char conf[] = "# a comment with s3cret\n[hub]\nurl = wss://u:p%40ss@hub.example/x\ntoken = clet1.abc\n root = 1\n"
	    "[work]\nroot = /srv\nurl = no\nbroken line\n";
	char out[512], text[] = "dial https://user:pass@h/ with Bearer abcdef, \"clet1.abc\" and c3VwZXJzZWNyZXQ= supersecret u@h //x@y";
	struct redact r = { 0 };

	(void)state;
	redact_conf(conf, keys, out, sizeof(out));
	assert_string_equal(out, "[hub]\nurl = wss://u:p%40ss@hub.example/x\ntoken = (withheld)\n root = (withheld)\n[work]\n"
	    "root = /srv\nurl = (withheld)\n");
	redact_text(&r, out);
	assert_non_null(strstr(out, "wss://xxxxxxxx@hub.example/x"));
	redact_conf(conf, keys, out, 20);
	assert_string_equal(out, "[hub]\n");
	redact_add(&r, "abc", 3);	/* too short to be looked for */
	redact_add(&r, "supersecret", 11);
	redact_text(&r, text);
	assert_string_equal(text, "dial https://xxxxxxxxx@h/ with Bearer xxxxxx, \"xxxxxxxxx\" and xxxxxxxxxxxxZXQ= xxxxxxxxxxx u@h //x@y");
	redact_wipe(&r);
	redact_add_url(&r, "http://alice:wonder@proxy:1");
	snprintf(out, sizeof(out), "alice wonder alice:wonder d29uZGVy http://proxy:1");
	redact_text(&r, out);
	assert_string_equal(out, "xxxxx xxxxxx xxxxxxxxxxxx xxxxxxxx http://proxy:1");
}

/* ---- small parsers ---- */

static void
test_proxy_variables(void **state)
{
	const char *env[PROXYENV_MAX + 1];
	char file[] = "# comment\nhttps_proxy=\"http://u:p@h:1\"\n  no_proxy='a,b'\nPATH=/bin\nhttps_proxy\nNO_PROXY=";
	char block[] = "HOME=/\0HTTPS_PROXY=http://h:2\0all_proxyx=no\0";

	(void)state;
	assert_int_equal(proxyenv_pick(file, sizeof(file) - 1, '\n', env), 3);
	assert_string_equal(env[0], "https_proxy=http://u:p@h:1");
	assert_string_equal(env[1], "no_proxy=a,b");
	assert_string_equal(env[2], "NO_PROXY=");
	assert_null(env[3]);
	assert_int_equal(proxyenv_pick(block, sizeof(block) - 1, '\0', env), 1);
	assert_string_equal(env[0], "HTTPS_PROXY=http://h:2");
	assert_int_equal(proxyenv_pick(block, 0, '\n', env), 0);
}

static void
test_dates(void **state)
{
	static const char *const bad[] = { "", "Sun, 06 Nov 1994 08:49:37", "Mon, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET",
		"Sun,  6 Nov 1994 08:49:37 GMT", "Sun, 31 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1894 08:49:37 GMT",
		"sun, 06 nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT" };

	(void)state;
	assert_true(httpdate_parse("Sun, 06 Nov 1994 08:49:37 GMT") == INT64_C(784111777) * 1000000000);
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_true(httpdate_parse(bad[i]) < 0);
}

static void
test_exit_code(void **state)
{
	static const struct {
		unsigned count[CHECK_STATES];
		int code;
	} rows[] = {
		{ { 3, 0, 0, 2 }, EXIT_OK }, { { 0, 0, 0, 9 }, EXIT_OK }, { { 3, 1, 0, 0 }, EXIT_DEGRADED }, { { 3, 1, 1, 0 }, EXIT_FAILED },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct report r = { 0 };

		memcpy(r.count, rows[i].count, sizeof(r.count));
		assert_int_equal(report_end(&r), rows[i].code);
	}
}

static void
test_long_texts_are_cut(void **state)
{
	(void)state;
	check_bad(&d, "x", CHECK_FAIL, "y", NULL, "%0400d", 1);
	assert_int_equal(strlen(seen[0].detail), sizeof(seen[0].detail) - 1);
	assert_string_equal(seen[0].detail + sizeof(seen[0].detail) - 4, "...");
}

static void
test_children_are_ended(void **state)
{
	const char *const sleeper[] = { "/bin/sleep", "100", NULL }, *const none[] = { "/nonexistent", NULL };
	struct child a, b, *all[] = { &a, &b };

	(void)state;
	child_start(&a, &(struct child_spec){ .argv = sleeper });
	child_start(&b, &(struct child_spec){ .argv = none });
	child_wait(all, 2, monotime_add_ms(monotime_now(), 100));
	assert_true(a.timeout);
	assert_int_equal(a.status, -1);
	assert_int_equal(b.status, -1);
	assert_false(b.timeout);
	assert_int_equal(a.pid, 0);
}

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		T(test_namespaces), T(test_controllers), T(test_accounts), T(test_keys), T(test_redact),
		T(test_proxy_variables), T(test_dates), T(test_exit_code), T(test_long_texts_are_cut),
		T(test_children_are_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
