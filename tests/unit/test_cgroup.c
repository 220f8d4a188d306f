#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cgroup.h"
#include "tests/unit/unit.h"

static char dir[] = "/tmp/test_cgroup.XXXXXX";
static int fd;

static void
put(const char *name, const char *text)
{
	int f = openat(fd, name, O_CREAT | O_WRONLY | O_TRUNC, 0600);

	assert_int_equal(write(f, text, strlen(text)), strlen(text));
	close(f);
}

static void
numbers(void **state)
{
	put("cpu.stat", "usage_usec 1234\nuser_usec 5\nsystem_usec 18446744073709551615\nbad x\nlast");
	assert_int_equal(cgroup_read(fd, "cpu.stat", "usage_usec"), 1234);
	assert_int_equal(cgroup_read(fd, "cpu.stat", "user_usec"), 5);
	assert_true(cgroup_read(fd, "cpu.stat", "system_usec") == UINT64_MAX);
	assert_int_equal(cgroup_read(fd, "cpu.stat", "usec"), 0);
	assert_int_equal(cgroup_read(fd, "cpu.stat", "bad"), 0);
	assert_int_equal(cgroup_read(fd, "cpu.stat", "last"), 0);
	put("memory.peak", "4096\n");
	assert_int_equal(cgroup_read(fd, "memory.peak", NULL), 4096);
	put("memory.max", "max\n");
	assert_int_equal(cgroup_read(fd, "memory.max", NULL), 0);
	put("io.stat", "8:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n253:1 rbytes=1 wbytes=x rios=1\n");
	assert_int_equal(cgroup_sum(fd, "io.stat", "rbytes="), 4097);
	assert_int_equal(cgroup_sum(fd, "io.stat", "wbytes="), 8192);
	assert_int_equal(cgroup_sum(fd, "missing", "rbytes="), 0);
	put("empty", "");
	assert_int_equal(cgroup_read(fd, "empty", NULL), 0);
	assert_int_equal(cgroup_read(fd, "missing", NULL), 0);
}

static void
writes(void **state)
{
	put("pids.max", "1");
	assert_int_equal(cgroup_write(fd, "pids.max", "77"), 0);
	assert_int_equal(cgroup_read(fd, "pids.max", NULL), 77);
	assert_int_equal(cgroup_write(fd, "missing", "1"), -ENOENT);
}

/* Ours, as the kernel says; where it is writable, a real one is made, filled, emptied and removed. */
static void
own_and_end(void **state)
{
	char path[512], child[600], nested[620], procs[640];
	int kind = cgroup_own(path, sizeof(path)), f;
	pid_t pid;

	assert_in_range(kind, 0, 2);
	if (kind == 0)
		return;
	assert_int_equal(access(path, F_OK), 0);
	snprintf(child, sizeof(child), "%s/ewtest-%d", path, getpid());
	snprintf(nested, sizeof(nested), "%s/a", child);
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", nested);
	assert_int_equal(cgroup_remove(child), 0);	/* there is none */
	if (mkdir(child, 0755) < 0)
		return;
	assert_int_equal(mkdir(nested, 0755), 0);
	pid = fork();
	if (pid == 0) {
		for (;;)
			pause();
	}
	f = open(procs, O_WRONLY);
	assert_true(f >= 0 && dprintf(f, "%d", pid) > 0);
	close(f);
	assert_int_equal(cgroup_remove(child), -EBUSY);
	assert_int_equal(cgroup_end(child, 100), 0);
	assert_int_equal(access(child, F_OK), -1);
	assert_int_equal(cgroup_end(child, 1), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(numbers), cmocka_unit_test(writes),
		cmocka_unit_test(own_and_end) };
	char cmd[64];
	int r;

	if (mkdtemp(dir) == NULL || (fd = open(dir, O_RDONLY | O_DIRECTORY)) < 0)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd) != 0 ? 1 : r;
}
