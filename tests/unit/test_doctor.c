/* edgectl doctor: each judgement on a faked root and a faked probe; its small parsers; the report's exit code. */
#include "unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "connectd/httpdate.h"
#include "edgectl/doctor/doctor.h"
#include "edgectl/doctor/redact.h"

#define MOST	64

static struct check seen[MOST];
static size_t nseen;
static struct doctor d;
static struct edgectl ctl;
static char root[64];

/* The executable's other parts, which the library calls. */
int
usage_error(const char *command, const char *fmt, ...)
{
	(void)fmt;
	return EXIT_USAGE;
}

void
status_look(struct edgectl *c, struct view *v)
{
	(void)c;
	(void)v;
}

const char *
client_error_code(const struct client *c)
{
	return c->error == -EACCES ? "denied" : "not-running";
}

void
client_error_text(const struct client *c, char *buf, size_t size)
{
	snprintf(buf, size, "%s is away", c->name);
}

static void
keep(const struct check *c, void *ctx)
{
	(void)ctx;
	assert_true(check_valid(c));
	assert_true(nseen < MOST);
	seen[nseen++] = *c;
}

static const struct check *
got(const char *name)
{
	for (size_t i = 0; i < nseen; i++)
		if (strcmp(seen[i].name, name) == 0)
			return &seen[i];
	fail_msg("no check %s", name);
	return NULL;
}

static void
says(const char *name, enum check_state state, const char *cause)
{
	const struct check *c = got(name);

	assert_int_equal(c->state, state);
	assert_string_equal(c->cause, cause);
	assert_true(c->detail[0] != '\0');
}

/* Writes a file below the root, with its directories. */
static void
put(const char *path, const char *text)
{
	char full[256];
	FILE *f;

	snprintf(full, sizeof(full), "%s%s", root, path);
	for (char *p = full + strlen(root) + 1; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		mkdir(full, 0755);
		*p = '/';
	}
	f = fopen(full, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int
set_up(void **state)
{
	char path[80];

	(void)state;
	snprintf(root, sizeof(root), "/tmp/edgeward-unit.XXXXXX");
	assert_non_null(mkdtemp(root));
	nseen = 0;
	ctl = (struct edgectl){ .rundir = "/run/edgeward" };
	memset(&d, 0, sizeof(d));
	d.root = root;
	d.emit = keep;
	d.proxy_from = "this test";
	d.view.connectd.name = "connectd";
	d.view.workerd.name = "workerd";
	d.net.magic = NETPROBE_MAGIC;
	doctor_find(&d, &ctl, &(struct doctor_options){ 0 });
	snprintf(path, sizeof(path), "%s/etc", root);
	mkdir(path, 0755);
	return 0;
}

static int
tear_down(void **state)
{
	const char *const argv[] = { "/bin/rm", "-rf", root, NULL };
	struct child c, *all[] = { &c };

	(void)state;
	child_start(&c, &(struct child_spec){ .argv = argv });
	child_wait(all, 1, monotime_add_ms(monotime_now(), 10000));
	return c.status;
}

/* ---- the way to the hub ---- */

static const char *const legs[] = { "dns", "connect", "proxy-connect", "tls", "tls-chain", "tls-name", "tls-dates", "tls-pin",
	"upgrade" };

static void
test_each_leg(void **state)
{
	static const struct {
		uint32_t stage;
		const char *code, *leg;
	} rows[] = {
		{ NETPROBE_DNS, "dns", "dns" }, { NETPROBE_DNS, "timeout", "dns" }, { NETPROBE_CONNECT, "refused", "connect" },
		{ NETPROBE_CONNECT, "no-route", "connect" }, { NETPROBE_CONNECT, "proxy", "connect" },
		{ NETPROBE_PROXY, "proxy-auth", "proxy-connect" }, { NETPROBE_TLS, "tls", "tls" }, { NETPROBE_TLS, "timeout", "tls" },
		{ NETPROBE_TLS, "tls-untrusted", "tls-chain" }, { NETPROBE_TLS, "tls-name", "tls-name" },
		{ NETPROBE_TLS, "tls-expired", "tls-dates" }, { NETPROBE_TLS, "tls-not-yet-valid", "tls-dates" },
		{ NETPROBE_TLS, "tls-pin", "tls-pin" }, { NETPROBE_UPGRADE, "http-bad", "upgrade" },
		{ NETPROBE_UPGRADE, "lost", "upgrade" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		bool behind = false;

		nseen = 0;
		d.net.stage = rows[i].stage;
		d.net.flags = NETPROBE_PROXIED;
		d.net.pins = 1;
		snprintf(d.net.code, sizeof(d.net.code), "%s", rows[i].code);
		snprintf(d.net.detail, sizeof(d.net.detail), "because");
		snprintf(d.net.hub, sizeof(d.net.hub), "hub.example:443");
		snprintf(d.net.proxy, sizeof(d.net.proxy), "http://proxy.example:8080");
		step_network(&d);
		for (size_t j = 0; j < COUNT(legs); j++) {
			bool here = strcmp(legs[j], rows[i].leg) == 0;

			says(legs[j], here ? CHECK_FAIL : behind ? CHECK_SKIPPED : CHECK_OK, here ? rows[i].code : "");
			behind = behind || here;
		}
		assert_true(behind);
		assert_true(strcmp(rows[i].code, "lost") == 0 || got(rows[i].leg)->command[0] != '\0');
		says("clock-hub", CHECK_SKIPPED, "");
	}
}

static void
test_answers(void **state)
{
	static const struct {
		uint32_t status;
		const char *code;
		enum check_state want;
	} rows[] = {
		{ 401, "http-401", CHECK_OK }, { 403, "http-403", CHECK_OK }, { 101, "", CHECK_OK }, { 101, "http-bad", CHECK_FAIL },
		{ 404, "http-bad", CHECK_FAIL }, { 429, "http-bad", CHECK_WARN }, { 503, "http-5xx", CHECK_FAIL },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(rows); i++) {
		nseen = 0;
		d.net.stage = NETPROBE_DONE;
		d.net.http_status = rows[i].status;
		snprintf(d.net.code, sizeof(d.net.code), "%s", rows[i].code);
		snprintf(d.net.detail, sizeof(d.net.detail), "because");
		step_network(&d);
		says("upgrade", rows[i].want, rows[i].want == CHECK_OK ? "" : rows[i].code);
		says("proxy-connect", CHECK_SKIPPED, "");
		says("tls-pin", CHECK_SKIPPED, "");
	}
}

static void
test_hub_clock(void **state)
{
	static const struct {
		int64_t offset_s;
		enum check_state want;
	} rows[] = { { 1, CHECK_OK }, { -300, CHECK_OK }, { 301, CHECK_WARN }, { -86400, CHECK_WARN } };

	(void)state;
	d.net.stage = NETPROBE_DONE;
	d.net.http_status = 401;
	d.net.wall = INT64_C(1800000000) * 1000000000;
	for (size_t i = 0; i < COUNT(rows); i++) {
		nseen = 0;
		d.net.hub_date = d.net.wall + rows[i].offset_s * 1000000000;
		step_network(&d);
		says("clock-hub", rows[i].want, rows[i].want == CHECK_OK ? "" : "clock-offset");
	}
}

static void
test_plaintext_is_told(void **state)
{
	(void)state;
	d.net.stage = NETPROBE_DONE;
	d.net.http_status = 401;
	d.net.flags = NETPROBE_PLAIN;
	step_network(&d);
	says("tls", CHECK_WARN, "insecure");
	says("tls-pin", CHECK_SKIPPED, "");
	nseen = 0;
	d.net.flags |= NETPROBE_LOOPBACK;
	step_network(&d);
	says("tls", CHECK_SKIPPED, "");
}

static void
test_no_probe(void **state)
{
	(void)state;
	d.net.magic = 0;
	step_network(&d);
	says("hub", CHECK_FAIL, "not-installed");
	for (size_t j = 0; j < COUNT(legs); j++)
		says(legs[j], CHECK_SKIPPED, "");
}

static void
test_routes(void **state)
{
	(void)state;
	step_route(&d);
	says("route", CHECK_FAIL, "no-route");
	nseen = 0;
	put("/proc/net/route", "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
	    "eth0\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n");
	put("/proc/net/ipv6_route", "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
	    "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n");
	step_route(&d);
	says("route", CHECK_FAIL, "no-route");
	nseen = 0;
	put("/proc/net/route", "Iface\tDestination\nenp3s0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n");
	step_route(&d);
	says("route", CHECK_OK, "");
}

/* ---- what is lent ---- */

static void
test_lent(void **state)
{
	char path[PATH_MAX];

	(void)state;
	snprintf(d.policy_path, sizeof(d.policy_path), "%s/policy", root);
	d.me = getuid();
	step_lent(&d);
	says("filter", CHECK_SKIPPED, "");
	says("engine", CHECK_SKIPPED, "");
	nseen = 0;
	put("/policy", "[work]\nnetwork = filtered\n[containers]\nengine-socket = /run/engine\n");
	step_lent(&d);
	says("filter", CHECK_FAIL, "no-filter");
	says("engine", CHECK_WARN, "no-engine");
	nseen = 0;
	put("/usr/sbin/nft", "");
	put("/usr/bin/pasta", "");
	put("/dev/net/tun", "");
	for (unsigned i = 0; i < 3; i++) {
		static const char *const there[] = { "/usr/sbin/nft", "/usr/bin/pasta", "/dev/net/tun" };

		snprintf(path, sizeof(path), "%s%s", root, there[i]);
		assert_int_equal(chmod(path, 0777), 0);
	}
	put("/run/engine", "no socket");
	step_lent(&d);
	says("filter", CHECK_OK, "");
	says("engine", CHECK_WARN, "no-engine");
	nseen = 0;
	put("/policy", "[work]\nnetwork = some\n");
	step_lent(&d);
	says("filter", CHECK_SKIPPED, "");
}

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
	says("vhci", CHECK_SKIPPED, "");
	nseen = 0;
	d.conf.work_sandbox = CONF_SANDBOX_BEST_EFFORT;
	put("/proc/sys/user/max_user_namespaces", "15000\n");
	put("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
	put("/proc/sys/kernel/seccomp/actions_avail", "kill_process kill_thread log allow\n");
	put("/sys/devices/platform/vhci_hcd.0/status", "");
	step_kernel(&d);
	says("namespaces", CHECK_WARN, "no-userns");
	says("seccomp", CHECK_OK, "");
	says("vhci", CHECK_OK, "");
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

/* ---- upgrades ---- */

#define STATE_TEXT "edgeward-upgrade-state 1\nphase trial\nattempt 1\nsource hub\nid u\nfrom /usr/lib/edgeward\nfrom-sequence 1\nsequence 2\n" \
	"version 2.0\nentries 1\nsettle 60\nunits 7\nconnected no\npeer -\ncode none\ndetail -\n"

static void
test_upgrades(void **state)
{
	(void)state;
	snprintf(d.state, sizeof(d.state), "%s/var/lib/edgeward", d.root);
	step_upgrade(&d);
	says("pending-upgrade", CHECK_SKIPPED, "");
	put("/var/lib/edgeward/upgrade/history", "edgeward-upgrade-history 1\n");
	put("/etc/edgeward/policy.conf", "[upgrade]\nremote = yes\n");
	snprintf(d.policy_path, sizeof(d.policy_path), "%s/etc/edgeward/policy.conf", d.root);
	nseen = 0;
	step_upgrade(&d);
	says("pending-upgrade", CHECK_OK, "");
	says("releases", CHECK_OK, "");
	says("remote-upgrade", CHECK_WARN, "no-updater");
	put("/var/lib/edgeward/upgrade/state", STATE_TEXT);
	put("/var/lib/edgeward/releases/results", "edgeward-upgrade-history 1\n"
	    "entry 1 1 hub a rolled-back 1 2 2.0 crashed it crashed\n");
	put("/var/lib/edgeward/updater/privupgrade", "x");
	nseen = 0;
	step_upgrade(&d);
	says("pending-upgrade", CHECK_WARN, "upgrade-open");
	says("releases", CHECK_WARN, "release-bad");
	says("remote-upgrade", CHECK_WARN, "no-mirror");
	/* One that is newer has been installed since: the bad one is of no interest. */
	put("/var/lib/edgeward/upgrade/state", "garbage\n");
	put("/var/lib/edgeward/releases/results", "edgeward-upgrade-history 1\n"
	    "entry 1 1 hub a rolled-back 1 2 2.0 crashed it crashed\nentry 2 2 hub b done 1 3 3.0 ok fine\n");
	d.conf_ok = true;
	snprintf(d.conf.upgrade_mirror, sizeof(d.conf.upgrade_mirror), "https://m.example/");
	nseen = 0;
	step_upgrade(&d);
	says("pending-upgrade", CHECK_FAIL, "upgrade-state");
	says("releases", CHECK_OK, "");
	says("remote-upgrade", CHECK_OK, "");
	put("/var/lib/edgeward/releases/results", "nonsense\n");
	nseen = 0;
	step_upgrade(&d);
	says("releases", CHECK_WARN, "upgrade-results");
}

/* ---- units ---- */

static void
show(const char *text)
{
	nseen = 0;
	snprintf(d.units_show.out, sizeof(d.units_show.out), "%s", text);
	d.units_show.status = 0;
	step_units(&d);
}

static void
test_units(void **state)
{
	(void)state;
	d.units_show.status = -1;
	step_units(&d);
	says("units", CHECK_SKIPPED, "");
	show("Id=edgeward-connectd.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n"
	    "DropInPaths=/etc/systemd/system/edgeward-connectd.service.d/x.conf\nNRestarts=0\n\n"
	    "Id=edgeward-workerd.service\nLoadState=loaded\nActiveState=active\nSubState=running\nDelegate=no\n\n"
	    "Id=edgeward-privhelper.service\nLoadState=not-found\nActiveState=inactive\n\n"
	    "Id=edgeward-introduce.socket\nLoadState=masked\nActiveState=inactive\n\n"
	    "Id=edgeward-connectd.socket\nLoadState=loaded\nActiveState=failed\nSubState=failed\n\n"
	    "Id=edgeward-workerd.socket\nLoadState=loaded\nActiveState=active\nNeedDaemonReload=yes\n");
	says("connectd.service", CHECK_OK, "");
	assert_non_null(strstr(got("connectd.service")->detail, "x.conf"));
	says("workerd.service", CHECK_FAIL, "no-delegation");
	says("privhelper.service", CHECK_FAIL, "not-installed");
	says("introduce.socket", CHECK_FAIL, "masked");
	says("connectd.socket", CHECK_FAIL, "not-running");
	says("workerd.socket", CHECK_WARN, "needs-reload");
	show("");
	says("units", CHECK_WARN, "systemctl");
}

static void
test_unit_text(void **state)
{
	char text[UNIT_VALUE * 3];
	const char *p = text;
	struct unit u;

	(void)state;
	snprintf(text, sizeof(text), "\n\nIdx=no\nId=a.service\nno equals sign\nSubState=%0200d\nActiveState=\n\n\nId=b\n", 7);
	assert_true(unit_next(&p, &u));
	assert_string_equal(u.id, "a.service");
	assert_int_equal(strlen(u.sub), sizeof(u.sub) - 1);
	assert_string_equal(u.active, "");
	assert_true(unit_next(&p, &u));
	assert_string_equal(u.id, "b");
	assert_false(unit_next(&p, &u));
	assert_false(unit_next(&p, &u));
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
#define T(name)	cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_each_leg), T(test_answers), T(test_hub_clock), T(test_plaintext_is_told), T(test_no_probe), T(test_routes),
		T(test_lent), T(test_namespaces), T(test_controllers), T(test_accounts), T(test_keys), T(test_upgrades), T(test_units), T(test_unit_text),
		T(test_redact), T(test_proxy_variables), T(test_dates), T(test_exit_code), T(test_long_texts_are_cut), T(test_children_are_ended),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
