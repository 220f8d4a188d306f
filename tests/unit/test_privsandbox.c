/*
 * What is left to privhelper when it is narrowed, tried in a process of its own: where nothing is lent, neither sysfs of vhci_hcd nor a call of the
 * verbs.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "privhelper/sandbox.c"
#include "tests/unit/unit.h"

static char top[] = "/tmp/edgeward-unit-XXXXXX", sys[64], dev[64], attach[128], node[128];

static int
setup(void **state)
{
	static const char *const dirs[] = { "sys", "sys/devices", "sys/devices/platform", "sys/devices/platform/vhci_hcd.0", "dev", "dev/edgeward" };
	char path[160];
	int fd;

	assert_non_null(mkdtemp(top));
	for (size_t i = 0; i < COUNT(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", top, dirs[i]);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	snprintf(sys, sizeof(sys), "%s/sys", top);
	snprintf(dev, sizeof(dev), "%s/dev", top);
	snprintf(attach, sizeof(attach), "%s/sys/devices/platform/vhci_hcd.0/attach", top);
	snprintf(node, sizeof(node), "%s/dev/edgeward/0", top);
	fd = open(attach, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	return close(fd);
}

static int
teardown(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", top);
	return system(command);
}

/* How a narrowed process ends that tries to write to path, or to make a directory of that name: its exit code, or 128 and the signal. */
static int
try(const struct usb_conf *conf, const char *path, bool make, bool filter)
{
	pid_t pid = fork();
	int status, r;

	if (pid == 0) {
		r = sandbox_narrow(conf);
		r = r == 0 && filter ? sandbox_filter() : r;
		if (r < 0)
			_exit(100);
		r = make ? mkdirat(AT_FDCWD, path, 0755) : open(path, O_WRONLY | O_CLOEXEC);
		_exit(r < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void
nothing_is_lent(void **state)
{
	const struct usb_conf none = { .sysroot = sys, .devroot = dev }, some = { .sysroot = sys, .devroot = dev, .classes = "08", .used = true };

	assert_int_equal(try(&some, attach, false, true), 0);
	assert_int_equal(try(&none, attach, false, true), 128 + SIGSYS);
	assert_int_equal(try(&none, node, true, true), 128 + SIGSYS);
	if (sandbox_landlock_abi() == 0)
		skip();
	assert_int_equal(try(&none, attach, false, false), EACCES);
	assert_int_equal(try(&none, node, true, false), EACCES);
	assert_int_equal(try(&some, node, true, true), 0);
}

/* A ledger that is left: ports may be given back, no node is made. */
static void
what_was_lent_is_ended(void **state)
{
	const struct usb_conf left = { .sysroot = sys, .devroot = dev, .used = true };

	assert_int_equal(try(&left, attach, false, true), 0);
	assert_int_equal(rmdir(node) < 0 && errno != ENOENT, 0);
	if (sandbox_landlock_abi() == 0)
		skip();
	assert_int_equal(try(&left, node, true, true), EACCES);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(nothing_is_lent), cmocka_unit_test(what_was_lent_is_ended) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
