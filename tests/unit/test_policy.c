/* B09: what is not a good value is refused with its line. The policy file and its owner; common/policy.c, common/keyvalue.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/policy.h"
#include "tests/unit/unit.h"

static struct policy policy;
static char err[KEYFILE_ERR];

static int
parse(const char *text)
{
	return policy_parse(&policy, "/x/policy.conf", text, strlen(text), err);
}

static const char *
value(enum policy_key key)
{
	static char buf[KEYFILE_LIST + 1];

	policy_value(&policy, key, buf, sizeof(buf));
	return buf;
}

static void
defaults_permit_what_is_harmless(void **state)
{
	static const struct { enum policy_key key; const char *value; } want[] = {
		{ POLICY_START, "yes" }, { POLICY_PROGRAMS, "any" }, { POLICY_NETWORK, "host" }, { POLICY_ATTACH, "no" },
		{ POLICY_NESTED_USERNS, "no" }, { POLICY_MEMORY, "none" }, { POLICY_TIMEOUT, "none" }, { POLICY_ENVIRONMENT, "1M" },
		{ POLICY_USB, "no" }, { POLICY_USB_CLASSES, "ff 07 08" }, { POLICY_SERVICES, "none" }, { POLICY_CHANNEL, "stable" },
		{ POLICY_REMOTE_UPGRADE, "no" }, { POLICY_ENGINE_SOCKET, "none" },
		{ POLICY_IMAGES, "any" }, { POLICY_FILTERED_NETWORK, "none" },
	};

	assert_int_equal(parse(""), 0);
	for (size_t i = 0; i < COUNT(want); i++)
		assert_string_equal(value(want[i].key), want[i].value);
	for (size_t i = 0; i < POLICY_KEYS; i++)
		assert_int_equal(policy.lines[i], 0);
	assert_string_equal(policy.problem, "");
	assert_false(policy.denied);
}

static void
every_key_knows_its_line(void **state)
{
	static struct firewall fw;
	char where[POLICY_WHERE];

	assert_int_equal(parse("[work]\n# c\nprograms = /bin/true /usr/bin/make\n\nprograms = /bin/echo\nattach = yes\n[limits]\n"
	    "memory = 512M\nmemory-default = 64M\ntimeout = 90m\ncpu = 1500\n[services]\nallow = 127.0.0.1:80 [::1]:8080 db:5432\n"
	    "[network]\npublic = yes\nallow = 10.0.0.0/8 fd00::1\ndeny = 0.0.0.0/0\nports = 80 443\nresolvers = 10.0.0.1 [fd00::1]:5353\n"
	    "[containers]\nengine-socket = /run/docker.sock\nimages = a/b:1 c@sha256:0\nfiltered-network = fenced\n"), 0);
	assert_string_equal(value(POLICY_PROGRAMS), "/bin/true /usr/bin/make /bin/echo");
	assert_string_equal(value(POLICY_MEMORY), "512M");
	assert_string_equal(value(POLICY_TIMEOUT), "5400s");
	assert_string_equal(value(POLICY_SERVICES), "127.0.0.1:80 [::1]:8080 db:5432");
	assert_string_equal(value(POLICY_ENGINE_SOCKET), "/run/docker.sock");
	assert_string_equal(value(POLICY_IMAGES), "a/b:1 c@sha256:0");
	assert_string_equal(value(POLICY_FILTERED_NETWORK), "fenced");
	assert_string_equal(value(POLICY_NET_RESOLVERS), "10.0.0.1 [fd00::1]:5353");
	policy_firewall(&policy, &fw);
	assert_true(fw.public_internet && fw.nallow == 2 && fw.ndeny == 1 && fw.nports == 2 && fw.nresolvers == 2);
	assert_true(fw.allow[1].family == FW_V6 && fw.deny[0].bits == 0 && fw.ports[1] == 443 && fw.resolvers[1].port == 5353);
	assert_string_equal(policy_where(&policy, POLICY_PROGRAMS, where), "policy.conf:3: programs");
	assert_string_equal(policy_where(&policy, POLICY_MEMORY, where), "policy.conf:8: memory");
	assert_string_equal(policy_where(&policy, POLICY_SERVICES, where), "policy.conf:13: services allow");
	assert_string_equal(policy_where(&policy, POLICY_START, where), "policy.conf (default): start");
}

static void
errors_name_the_line_and_leave_the_old_policy(void **state)
{
	static const struct { const char *text, *want; } bad[] = {
		{ "[work]\nprogrammes = any\n", ":2: unknown key: [work] programmes" },
		{ "[work]\nmax-timeout = 5\n", ":2: unknown key" },
		{ "[work]\nprograms = make\n", ":2: bad value, expected absolute paths" },
		{ "[work]\nprograms = /bin/../etc/x\n", ":2: bad value" }, { "[work]\nprograms = /bin/x/\n", ":2: bad value" },
		{ "[work]\nprograms = /bin//x\n", ":2: bad value" },
		{ "[containers]\nengine-socket = /a b\n", ":2: bad value" }, { "[work]\nprograms = /bin/\xff\n", ":2: bad value" }, { "[work]\nprograms =\n", ":2: bad value" },
		{ "[work]\nprograms = /bin/x\nprograms = any\n", ":3: bad value" },
		{ "[work]\nprograms = any\nprograms = /bin/x\n", ":3: bad value" },
		{ "[work]\nstart = yes\nstart = yes\n", ":3: key given twice" },
		{ "[work]\nnetwork = some\n", "expected one of none filtered host" },
		{ "[work]\nusers = Root\n", ":2: bad value, expected names" },
		{ "[limits]\nmemory = 0\n", ":2: bad value" }, { "[limits]\nmemory = 1K\n", ":2: bad value" },
		{ "[limits]\npids = 0\n", "or none" }, { "[limits]\ntimeout = 999ms\n", ":2: bad value" },
		{ "[limits]\nenvironment = 2M\n", ":2: bad value" },
		{ "[limits]\nmemory = 64M\nmemory-default = 65M\n", ":3: [limits] memory-default is above [limits] memory" },
		{ "[limits]\ntimeout = 1m\ntimeout-default = 2m\n", ":3: [limits] timeout-default is above" },
		{ "[devices]\nusb-classes = 3\n", ":2: bad value" }, { "[devices]\nusb-classes = FF\n", ":2: bad value" },
		{ "[services]\nallow = 127.0.0.1\n", ":2: bad value" }, { "[services]\nallow = h:0\n", ":2: bad value" },
		{ "[services]\nallow = h:65536\n", ":2: bad value" }, { "[services]\nallow = [x]:1\n", ":2: bad value" },
		{ "[network]\nallow = 0.0.0.0/0\n", ":2: bad value, expected ADDRESS or ADDRESS/PREFIX, PREFIX not 0" },
		{ "[network]\nallow = host\n", ":2: bad value" }, { "[network]\nallow = none 10.0.0.1\n", ":2: bad value" },
		{ "[network]\nports = 0\n", ":2: bad value" }, { "[network]\nports = 80 any\n", ":2: bad value" },
		{ "[network]\nresolvers = 127.0.0.53\n", ":2: bad value, expected ADDRESS or ADDRESS:PORT, not of this device's loopback" },
		{ "[containers]\nengine-socket = docker.sock\n", ":2: bad value, expected an absolute path or none" },
		{ "[containers]\nimages = -x\n", ":2: bad value, expected references of images" },
		{ "[containers]\nfiltered-network = a b\n", ":2: [containers] filtered-network has more than 1 item" },
	};

	assert_int_equal(parse("[limits]\npids = 7\n"), 0);
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(parse(bad[i].text), -EINVAL);
		if (strstr(err, bad[i].want) == NULL || strncmp(err, "/x/policy.conf:", 15) != 0)
			fail_msg("%s: got \"%s\"", bad[i].want, err);
		assert_int_equal(policy.pids, 7);
	}
}

static void
a_list_is_bounded(void **state)
{
	char text[8192] = "[work]\n";
	size_t n = strlen(text);
	int r = 0, i;

	for (i = 0; i < 40 && r == 0; i++) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, "programs = /usr/%0100d\n", i);
		r = parse(text);
	}
	assert_int_equal(r, -EINVAL);
	assert_in_range(i, 28, 30);
	assert_non_null(strstr(err, ":30: bad value"));
}

struct file {
	char dir[64], path[80];
};

static void
make(struct file *f, const char *text, mode_t mode)
{
	int fd;

	snprintf(f->dir, sizeof(f->dir), "/tmp/edgeward-policy.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	snprintf(f->path, sizeof(f->path), "%s/policy.conf", f->dir);
	fd = open(f->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	close(fd);
}

static void
drop_file(struct file *f)
{
	unlink(f->path);
	rmdir(f->dir);
}

static void
owner_and_mode(void **state)
{
	uid_t me = geteuid();
	struct file f;

	make(&f, "[work]\nstart = no\n", 0644);
	assert_int_equal(policy_load(&policy, f.path, me, err), 0);
	assert_false(policy.start);
	for (mode_t bad = 0020; bad >= 0002; bad >>= 3) {
		assert_int_equal(chmod(f.path, 0644 | bad), 0);
		assert_int_equal(policy_load(&policy, f.path, me, err), -EPERM);
		assert_non_null(strstr(err, "chmod go-w"));
	}
	assert_int_equal(chmod(f.path, 0644), 0);
	if (me == 0)	/* belongs to somebody who is neither root nor the owner of everything */
		assert_int_equal(chown(f.path, 4711, 0), 0);
	assert_int_equal(policy_load(&policy, f.path, me == 0 ? 4712 : me + 1, err), -EPERM);
	assert_non_null(strstr(err, "must belong to root or to uid"));
	assert_int_equal(policy_load(&policy, f.path, 0, err), -EPERM);
	assert_non_null(strstr(err, "must belong to root: chown root"));
	assert_int_equal(policy_owner(f.dir), me);
	assert_int_equal(policy_owner("/nonexistent"), me);
	drop_file(&f);
}

static void
a_bad_file_denies_at_start_and_keeps_at_reload(void **state)
{
	char text[256];
	struct file f;

	make(&f, "[work]\nstrat = no\n", 0644);
	assert_int_equal(policy_open(&policy, f.path, geteuid()), -EINVAL);
	assert_true(policy.denied);
	assert_false(policy.start);
	policy_no_start(&policy, text, sizeof(text));
	assert_non_null(strstr(text, "policy.conf:2: unknown key"));
	assert_non_null(strstr(text, "nothing is started"));
	drop_file(&f);
	assert_int_equal(policy_reload(&policy, f.path, geteuid()), 0);	/* none: the defaults */
	assert_true(policy.start);
	assert_false(policy.denied);
	assert_string_equal(policy.problem, "");
	make(&f, "junk\n", 0644);
	assert_int_equal(policy_reload(&policy, f.path, geteuid()), -EINVAL);
	assert_true(policy.start);
	assert_non_null(strstr(policy.problem, "policy.conf:1: not a section"));
	drop_file(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(defaults_permit_what_is_harmless),
		cmocka_unit_test(every_key_knows_its_line),
		cmocka_unit_test(errors_name_the_line_and_leave_the_old_policy),
		cmocka_unit_test(a_list_is_bounded),
		cmocka_unit_test(owner_and_mode),
		cmocka_unit_test(a_bad_file_denies_at_start_and_keeps_at_reload),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
