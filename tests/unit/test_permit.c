/* The policy applied to a start: ceilings, defaults, programs. Every refusal names its line. */
#include <stdio.h>
#include <string.h>

#include "tests/unit/unit.h"
#include "workerd/permit.h"

static struct policy policy;
static struct work_str argv[2], env[3];
static struct work_spec spec;

static void
begin(const char *text, const char *program)
{
	char err[KEYFILE_ERR];

	assert_int_equal(policy_parse(&policy, "/etc/edgeward/policy.conf", text, strlen(text), err), 0);
	argv[0] = (struct work_str){ program, strlen(program) };
	argv[1] = (struct work_str){ "/bin/sh", 7 };
	spec = (struct work_spec){ .argc = 2, .argv = argv, .env = env };
}

static void
refused(const char *text)
{
	char error[PERMIT_ERROR];

	assert_int_equal(permit(&policy, &spec, error), WORK_REFUSED_POLICY);
	if (strstr(error, text) == NULL)
		fail_msg("\"%s\" is not in \"%s\"", text, error);
}

static void
allowed(void)
{
	char error[PERMIT_ERROR];

	assert_int_equal(permit(&policy, &spec, error), WORK_OK);
	assert_string_equal(error, "");
}

static void
programs(void **state)
{
	static const char text[] = "[work]\nstart = yes\nprograms = /usr/bin/make /opt/a/tool\n";

	begin(text, "/usr/bin/make");
	allowed();
	begin(text, "tool");	/* a bare name is that one program, not the first in some PATH */
	allowed();
	assert_int_equal(argv[0].len, strlen("/opt/a/tool"));
	assert_memory_equal(argv[0].s, "/opt/a/tool", argv[0].len);
	for (size_t i = 0; i < 8; i++) {
		static const char *const bad[] = { "/bin/sh", "sh", "/usr/bin/make/", "/usr/bin//make", "/usr/bin/../bin/make",
			"usr/bin/make", "./make", "/usr/bin/mak" };

		begin(text, bad[i]);
		refused("policy.conf:3: programs: ");
	}
	begin(text, "x\x1b[31m");	/* what the hub sent cannot act on a terminal */
	refused("x\\x1b[31m is not in the list");
	begin("", "anything at all");
	allowed();
}

static void
variables_that_load_code(void **state)
{
	static const char text[] = "[work]\nprograms = /usr/bin/make\n";
	static const char *const bad[] = { "LD_PRELOAD=/w/x.so", "LD_LIBRARY_PATH=", "LD_AUDIT=/w/x", "LD_FUTURE=1", "GCONV_PATH=/w" };
	static const char *const good[] = { "LDFLAGS=-s", "LD=ld", "ld_preload=x", "A=LD_PRELOAD=x", "GCONV_PATHS=/w", "" };

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		char want[80];

		begin(text, "/usr/bin/make");
		env[0] = (struct work_str){ "A=b", 3 };
		env[1] = (struct work_str){ bad[i], strlen(bad[i]) };
		spec.envc = 2;
		snprintf(want, sizeof(want), "policy.conf:2: programs: the variable %.*s can", (int)strcspn(bad[i], "="), bad[i]);
		refused(want);
		begin("", "/usr/bin/make");	/* where any program may run, so may any code */
		spec.envc = 2;
		allowed();
		begin(text, "/usr/bin/make");	/* container.c has a list of its own */
		spec.envc = 2;
		spec.contained = true;
		allowed();
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		begin(text, "/usr/bin/make");
		env[0] = (struct work_str){ good[i], strlen(good[i]) };
		spec.envc = 1;
		allowed();
	}
}

static void
ceilings_and_defaults(void **state)
{
	static const char text[] = "[limits]\nmemory = 64M\npids = 100\npids-default = 10\ncpu = 500\ntimeout = 60\n";

	begin(text, "true");
	allowed();
	assert_int_equal(spec.memory_bytes, 64 << 20);
	assert_int_equal(spec.pids, 10);
	assert_int_equal(spec.cpu_millis, 500);
	assert_int_equal(spec.timeout_s, 60);
	begin(text, "true");
	spec.memory_bytes = 1 << 20;
	spec.pids = 100;
	spec.cpu_millis = 1;
	spec.timeout_s = 1;
	allowed();
	assert_int_equal(spec.memory_bytes, 1 << 20);
	assert_int_equal(spec.pids, 100);
	begin(text, "true");
	spec.memory_bytes = 65 << 20;
	refused("policy.conf:2: memory = 64M; this start asks for 65 MiB");
	begin(text, "true");
	spec.pids = 101;
	refused("policy.conf:3: pids = 100");
	begin(text, "true");
	spec.cpu_millis = 501;
	refused("policy.conf:5: cpu = 500");
	begin(text, "true");
	spec.timeout_s = 61;
	refused("policy.conf:6: timeout = 60s; this start asks for 61 s");
	spec.timeout_s = 120;
	spec.asked_s = 61;
	refused("policy.conf:6: timeout = 60s; this start asks for 61 s");
	spec.asked_s = 60;
	allowed();
	assert_int_equal(spec.timeout_s, 60);
	begin("[limits]\ntimeout-default = 30s\n", "true");	/* no ceiling: a default and nothing else */
	allowed();
	assert_int_equal(spec.timeout_s, 30);
	spec.timeout_s = 100000;
	allowed();
	assert_int_equal(spec.timeout_s, 100000);
}

static void
environment(void **state)
{
	begin("[limits]\nenvironment = 8\n", "true");
	env[0] = (struct work_str){ "A=1", 3 };
	env[1] = (struct work_str){ "B=2", 3 };
	env[2] = (struct work_str){ "C=", 2 };
	spec.env_given = true;
	spec.envc = 2;
	allowed();
	spec.envc = 3;
	refused("policy.conf:2: environment = 8 bytes; the environment of this start has 11");
}

static void
off_and_less_network(void **state)
{
	begin("[work]\nstart = no\n", "true");
	refused("policy.conf:2: start = no");
	begin("", "true");
	policy.denied = true;
	policy.start = false;
	snprintf(policy.problem, sizeof(policy.problem), "/etc/edgeward/policy.conf:9: unknown key");
	refused("policy.conf:9: unknown key; nothing is started");
}

/* Never more than the policy's network; what is asked for is inside of it, or the refusal says what is not. */
static void
networks(void **state)
{
	static const char filtered[] = "[work]\nnetwork = filtered\n[network]\nallow = 10.0.0.0/8\ndeny = 10.9.0.0/16\nports = 80\n";
	static struct work_net net;

	begin("", "true");
	allowed();
	assert_int_equal(spec.network, WORK_NETWORK_HOST);
	begin("[work]\nnetwork = none\n", "true");
	allowed();
	assert_int_equal(spec.network, WORK_NETWORK_NONE);
	spec.network = WORK_NETWORK_HOST;
	refused("policy.conf:2: network");
	begin("[work]\nnetwork = filtered\n", "true");	/* to nowhere */
	allowed();
	assert_int_equal(spec.network, WORK_NETWORK_NONE);
	begin(filtered, "true");
	allowed();
	assert_int_equal(spec.network, WORK_NETWORK_FILTERED);
	assert_true(spec.net->rules.nallow == 1 && spec.net->rules.ndeny == 1 && spec.net->rules.nports == 1);
	begin(filtered, "true");
	spec.network = WORK_NETWORK_FILTERED;
	spec.net = &net;
	assert_int_equal(fw_cidr_parse("10.9.0.0/15", false, &net.rules.allow[net.rules.nallow++]), 0);
	refused("policy.conf:2: network = filtered; this start's egress_rules: port (every one)");
	net.rules.ports[net.rules.nports++] = 80;
	allowed();
	assert_int_equal(net.rules.ndeny, 1);	/* the device's holds for it, too */
	begin("[work]\nnetwork = none\n", "true");
	spec.network = WORK_NETWORK_FILTERED;
	spec.net = &net;
	refused("policy.conf:2: network = none; this start asks for some network");
	begin("", "true");
	spec.network = WORK_NETWORK_FILTERED;
	spec.net = &net;
	net.bounded = true;
	refused("egress_rules: address 10.8.0.0 is not inside what is permitted by egress_bound");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs),
		cmocka_unit_test(variables_that_load_code),
		cmocka_unit_test(ceilings_and_defaults),
		cmocka_unit_test(environment),
		cmocka_unit_test(off_and_less_network),
		cmocka_unit_test(networks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
