/* edgectl doctor on a faked root and a faked probe: the way to the hub, what is lent, upgrades, and the units. */
#include <fcntl.h>
#include <time.h>

#include "tests/unit/doctorrig.h"

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
	says("route", CHECK_SKIPPED, "");	/* whether one is needed depends on where the hub is */
	nseen = 0;
	d.net.stage = NETPROBE_DNS;
	step_route(&d);
	says("route", CHECK_FAIL, "no-route");
	nseen = 0;
	snprintf(d.net.code, sizeof(d.net.code), "timeout");	/* a firewall, most likely: the packets went somewhere */
	step_route(&d);
	says("route", CHECK_OK, "");
	nseen = 0;
	d.net.code[0] = '\0';
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
	says("vhci", CHECK_SKIPPED, "");
	says("tun", CHECK_SKIPPED, "");
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

/* A module that policy.conf needs is missed; privhelper looks for it at its start. */
static void
test_modules(void **state)
{
	(void)state;
	snprintf(d.policy_path, sizeof(d.policy_path), "%s/policy", root);
	d.me = getuid();
	d.units = true;
	put("/policy", "[devices]\nusb = yes\n");
	step_lent(&d);
	says("vhci", CHECK_WARN, "no-module");
	assert_string_equal(got("vhci")->command, "modprobe vhci-hcd && systemctl restart edgeward-privhelper");
	says("tun", CHECK_SKIPPED, "");
	nseen = 0;
	put("/policy", "[work]\nnetwork = none\n[devices]\nl2 = yes\n");
	step_lent(&d);
	says("vhci", CHECK_SKIPPED, "");
	says("tun", CHECK_WARN, "no-module");
	nseen = 0;
	put("/policy", "[devices]\nusb = yes\n");
	put("/sys/devices/platform/vhci_hcd.0/status", "");
	step_lent(&d);
	says("vhci", CHECK_OK, "");
}

/* ---- ids ---- */

/* One account for all work: its group, or the mode, must let it into the work root. */
static void
test_one_account(void **state)
{
	static const struct {
		const char *pool;
		mode_t mode;
		const char *command;	/* NULL = all is well */
	} rows[] = {
		{ "1000 1 4711\n", 01770, NULL }, { "1000 1 4242\n", 01773, NULL },
		{ "999 1 4242\n", 01770, "usermod -g edgeward-run builder && systemctl restart edgeward-account && "
		    "systemctl restart edgeward-privhelper edgeward-workerd" },
		{ "1000 1 4711\n", 01700, "chmod 1770 " }, { "1000 1 4711\n", 01750, "chmod 1770 " },
	};

	(void)state;
	if (getuid() != 0)
		skip();		/* the pool is root's */
	d.units = d.conf_ok = true;
	put("/etc/passwd", "builder:x:999:4242::/nonexistent:/bin/false\n");
	put("/work/x", "");
	snprintf(d.pool, sizeof(d.pool), "%s/pool", root);
	snprintf(d.conf.work_root, sizeof(d.conf.work_root), "%s/work", root);
	assert_int_equal(chown(d.conf.work_root, 0, 4711), 0);
	for (size_t i = 0; i < COUNT(rows); i++) {
		put("/pool", rows[i].pool);
		assert_int_equal(chmod(d.conf.work_root, rows[i].mode), 0);
		nseen = 0;
		step_pool(&d);
		says("pool", rows[i].command == NULL ? CHECK_OK : CHECK_FAIL, rows[i].command == NULL ? "" : "pool-group");
		assert_true(rows[i].command == NULL || strncmp(got("pool")->command, rows[i].command, strlen(rows[i].command)) == 0);
	}
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
	says("remote-upgrade", CHECK_WARN, "no-key");
	put("/etc/edgeward/keys/a.pub", "whatever it is");
	nseen = 0;
	step_upgrade(&d);
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

static void
test_upgrade_conf(void **state)
{
	static const struct {
		const char *conf, *policy;
		mode_t mode;
		enum check_state want;
		const char *cause;
	} rows[] = {
		{ "channel edge\nsettle 60\nsettle-max 600\n", "[upgrade]\nremote = yes\nchannel = edge\n", 0644, CHECK_OK, "" },
		{ "channel edge\nsettle 60\nsettle-max 600\n", "[upgrade]\nremote = yes\n", 0644, CHECK_WARN, "channel" },
		{ "channel stable\nsettle 60\nsettle-max 600\n", "[upgrade]\nremote = yes\nchannel = edge\n", 0644, CHECK_WARN, "channel" },
		{ "channel edge\nsettle 60\nsettle-max 600\n", "[upgrade]\nremote = no\n", 0644, CHECK_OK, "" },	/* the operator's own */
		{ "channel edge\nsettle 60\nsettle-max 600\n", "nonsense\n", 0644, CHECK_OK, "" },
		{ "channel edge\nverify no\n", "[upgrade]\nremote = yes\n", 0644, CHECK_FAIL, "bad-conf" },
		{ "", "[upgrade]\nremote = yes\n", 0644, CHECK_FAIL, "bad-conf" },
		{ "channel stable\nsettle 60\nsettle-max 600\n", "[upgrade]\nremote = yes\n", 0666, CHECK_FAIL, "mode" },
	};
	char path[PATH_MAX];

	(void)state;
	snprintf(d.state, sizeof(d.state), "%s/var/lib/edgeward", d.root);
	snprintf(d.policy_path, sizeof(d.policy_path), "%s/etc/edgeward/policy.conf", d.root);
	put("/var/lib/edgeward/upgrade/history", "edgeward-upgrade-history 1\n");
	step_upgrade(&d);
	says("upgrade-conf", CHECK_OK, "");
	for (size_t i = 0; i < COUNT(rows); i++) {
		nseen = 0;
		put("/etc/edgeward/upgrade.conf", rows[i].conf);
		put("/etc/edgeward/policy.conf", rows[i].policy);
		assert_int_equal(chmod(doctor_path(&d, "/etc/edgeward/upgrade.conf", path), rows[i].mode), 0);
		step_upgrade(&d);
		says("upgrade-conf", rows[i].want, rows[i].cause);
	}
}

/* Queued, by whomever, and an hour later still there. */
static void
test_a_request_nobody_takes(void **state)
{
	static const char *const names[] = { "/var/lib/edgeward/connectd/upgrade-request", "/var/lib/edgeward/upgrade/queue/request" };
	struct timespec old[2] = { { .tv_sec = time(NULL) - 3600 }, { .tv_sec = time(NULL) - 3600 } };
	char path[PATH_MAX];

	(void)state;
	snprintf(d.state, sizeof(d.state), "%s/var/lib/edgeward", d.root);
	put("/var/lib/edgeward/upgrade/history", "edgeward-upgrade-history 1\n");
	for (size_t i = 0; i < COUNT(names); i++) {
		put(names[i], "x");
		nseen = 0;
		step_upgrade(&d);
		says("pending-upgrade", CHECK_OK, "");
		assert_int_equal(utimensat(AT_FDCWD, doctor_path(&d, names[i], path), old, 0), 0);
		nseen = 0;
		step_upgrade(&d);
		says("pending-upgrade", CHECK_FAIL, "not-taken");
		assert_int_equal(unlink(path), 0);
	}
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

int
main(void)
{
	static const struct CMUnitTest tests[] = {
		T(test_each_leg), T(test_answers), T(test_hub_clock), T(test_plaintext_is_told), T(test_no_probe),
		T(test_routes), T(test_lent), T(test_modules), T(test_one_account), T(test_upgrades), T(test_upgrade_conf), T(test_a_request_nobody_takes), T(test_units), T(test_unit_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
