/*
 * B86, first half: a name from outside becomes a path in ids_clean() and a descriptor in beneath_open() and beneath_make(), and
 * nowhere else in workerd and launcher. And: whose work a top-level directory is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/beneath.h"
#include "proto/ipc/work.h"
#include "tests/unit/unit.h"
#include "workerd/ids.h"

static char base[] = "/tmp/test_ids.XXXXXX";
static char root[64], outside[64];
static struct ids ids;

static void
clean_table(void **state)
{
	static const struct { const char *in, *out; } good[] = {
		{ "", "" }, { ".", "" }, { "./", "" }, { "a", "a" }, { "a/", "a" }, { "a//b", "a/b" }, { "./a/./b/.", "a/b" },
		{ "a/../b", "b" }, { "a/b/../..", "" }, { "a/b/../c", "a/c" }, { "..a", "..a" }, { "a/...", "a/..." },
		{ "a b", "a b" }, { "\xff", "\xff" },
	};
	static const char *const bad[] = { "..", "../x", "a/../..", "a/../../b", "./..", "/", "/etc", "/..", "//etc" };
	char path[WORK_DIR_SIZE], in[256];

	for (size_t i = 0; i < COUNT(good); i++) {
		assert_int_equal(ids_clean(&ids, good[i].in, path), 0);
		assert_string_equal(path, good[i].out);
		snprintf(in, sizeof(in), "%s/%s", root, good[i].in);	/* absolute, beneath the root */
		assert_int_equal(ids_clean(&ids, in, path), 0);
		assert_string_equal(path, good[i].out);
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(ids_clean(&ids, bad[i], path), -EXDEV);
	snprintf(in, sizeof(in), "%sX", root);		/* shares the prefix, is a sibling */
	assert_int_equal(ids_clean(&ids, in, path), -EXDEV);
	snprintf(in, sizeof(in), "%s/../x", root);
	assert_int_equal(ids_clean(&ids, in, path), -EXDEV);
}

static void
long_names(void **state)
{
	char in[WORK_DIR_SIZE + 300], path[WORK_DIR_SIZE], top[IDS_TOP_SIZE];

	memset(in, 'a', 256);
	in[256] = '\0';
	assert_int_equal(ids_clean(&ids, in, path), -ENAMETOOLONG);
	in[255] = '\0';
	assert_int_equal(ids_clean(&ids, in, path), 0);
	assert_int_equal(ids_top(path, top), 0);
	for (size_t i = 0; i < sizeof(in) - 1; i++)
		in[i] = i % 2 == 0 ? 'a' : '/';
	in[sizeof(in) - 1] = '\0';
	assert_int_equal(ids_clean(&ids, in, path), -ENAMETOOLONG);
	in[WORK_DIR_SIZE - 1] = '\0';
	assert_int_equal(ids_clean(&ids, in, path), 0);
	assert_int_equal(ids_top("", top), 0);
	assert_string_equal(top, "");
	assert_int_equal(ids_top("one/two", top), 0);
	assert_string_equal(top, "one");
}

static bool
is_dir(const char *path)
{
	struct stat st;

	return fstatat(ids.root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static void
beneath_table(void **state)
{
	char p[64];
	int fd;

	assert_int_equal(symlinkat(outside, ids.root, "out"), 0);
	assert_int_equal(symlinkat("../outside", ids.root, "rel-out"), 0);
	assert_int_equal(symlinkat("inside/deep", ids.root, "in"), 0);
	assert_int_equal(symlinkat("nowhere", ids.root, "dangling"), 0);
	assert_int_equal(symlinkat("/proc/self/cwd", ids.root, "magic"), 0);
	assert_int_equal(symlinkat("loop", ids.root, "loop"), 0);
	assert_int_equal(close(openat(ids.root, "file", O_CREAT | O_WRONLY, 0600)), 0);

	strcpy(p, "inside/deep/er");
	fd = beneath_make(ids.root, p);
	assert_true(fd >= 0);
	assert_string_equal(p, "inside/deep/er");
	assert_true(is_dir("inside/deep/er"));
	close(fd);
	strcpy(p, "in/new");
	fd = beneath_make(ids.root, p);
	assert_true(fd >= 0);
	close(fd);
	assert_true(is_dir("inside/deep/new"));

	static const struct { const char *path; int err; } bad[] = {
		{ "out", -EXDEV }, { "out/new", -EXDEV }, { "rel-out", -EXDEV }, { "rel-out/a/b", -EXDEV },
		{ "inside/../../outside/x", -EXDEV }, { "magic", -ELOOP }, { "magic/x", -ELOOP }, { "loop/x", -ELOOP },
		{ "file", -ENOTDIR }, { "file/x", -ENOTDIR },
	};
	for (size_t i = 0; i < COUNT(bad); i++) {
		strcpy(p, bad[i].path);
		fd = beneath_make(ids.root, p);
		/* a magic link is refused as one or for where it leads */
		assert_true(fd == bad[i].err || (bad[i].err == -ELOOP && fd == -EXDEV));
	}
	strcpy(p, "dangling/x");
	assert_true(beneath_make(ids.root, p) < 0);
	assert_false(is_dir("nowhere"));
	assert_int_equal(rmdir(outside), 0);	/* nothing was made in it */
	assert_int_equal(mkdir(outside, 0755), 0);
}

/* Where chown is ours: who owns what decides. */
static void
slots(void **state)
{
	uint8_t taken[8] = { 0 };
	uint32_t slot, owner;

	ids.first = 64000;
	ids.count = 4;
	assert_int_equal(mkdirat(ids.root, "foreign", 0755), 0);
	assert_int_equal(ids_slot(&ids, "", taken, &slot, &owner), 0);
	assert_int_equal(slot, 0);
	assert_int_equal(ids_slot(&ids, "foreign", taken, &slot, &owner), -EACCES);
	assert_int_equal(owner, getuid());
	assert_int_equal(ids_slot(&ids, "new", taken, &slot, &owner), 0);
	assert_int_equal(slot, 1);
	taken[1] = 1;
	assert_int_equal(ids_slot(&ids, "new", taken, &slot, &owner), 0);
	assert_int_equal(slot, 2);
	taken[2] = taken[3] = 1;
	assert_int_equal(ids_slot(&ids, "new", taken, &slot, &owner), -EUSERS);
	if (getuid() == 0) {
		memset(taken, 0, sizeof(taken));
		for (uint32_t i = 1; i < 4; i++) {
			char name[8];

			snprintf(name, sizeof(name), "o%u", i);
			assert_int_equal(mkdirat(ids.root, name, 0700), 0);
			assert_int_equal(fchownat(ids.root, name, 64000 + i, 0, 0), 0);
			assert_int_equal(ids_slot(&ids, name, taken, &slot, &owner), 0);
			assert_int_equal(slot, i);
			assert_int_equal(ids_slot(&ids, "new", taken, &slot, &owner), i < 3 ? 0 : -EUSERS);
		}
		assert_int_equal(unlinkat(ids.root, "o2", AT_REMOVEDIR), 0);
		assert_int_equal(ids_slot(&ids, "new", taken, &slot, &owner), 0);
		assert_int_equal(slot, 2);
	}
	ids.count = 0;
	assert_int_equal(ids_slot(&ids, "foreign", taken, &slot, &owner), 0);
	assert_int_equal(slot, 0);
}

static void
bad_roots(void **state)
{
	struct ids bad;

	assert_int_equal(ids_init(&bad, "relative"), -EINVAL);
	assert_int_equal(ids_init(&bad, "/nonexistent/root"), -ENOENT);
	assert_int_equal(ids_init(&bad, "/dev/null"), -ENOTDIR);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clean_table),
		cmocka_unit_test(long_names),
		cmocka_unit_test(beneath_table),
		cmocka_unit_test(slots),
		cmocka_unit_test(bad_roots),
	};
	char cmd[64];
	int r;

	if (mkdtemp(base) == NULL)
		return 1;
	snprintf(root, sizeof(root), "%s/work", base);
	snprintf(outside, sizeof(outside), "%s/outside", base);
	if (mkdir(root, 0755) < 0 || mkdir(outside, 0755) < 0 || ids_init(&ids, root) < 0)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", base);
	return system(cmd) != 0 ? 1 : r;
}
