#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "tests/unit/unit.h"

static char dir[] = "/tmp/edgeward-unit-XXXXXX";
static int dirfd_;

static int
setup(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	assert_non_null(mkdtemp(dir));
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	return dirfd_ < 0;
}

static int
teardown(void **state)
{
	static const char *const names[] = { "f", "f.tmp", "fifo", "link" };

	for (size_t i = 0; i < COUNT(names); i++)
		unlinkat(dirfd_, names[i], 0);
	close(dirfd_);
	return rmdir(dir);
}

static void
replace_and_read(void **state)
{
	uint8_t *data = NULL;
	struct stat st;
	size_t len;

	assert_int_equal(fd_replace_file(dirfd_, "f", "long content", 12, 0600), 0);
	assert_int_equal(fd_replace_file(dirfd_, "f", "new", 3, 0600), 0);
	assert_int_equal(fstatat(dirfd_, "f", &st, 0), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(fd_read_file(dirfd_, "f", 100, &data, &len), 0);
	assert_int_equal(len, 3);
	assert_string_equal((char *)data, "new");
	free(data);
	assert_int_equal(fd_read_file(dirfd_, "f", 2, &data, &len), -EFBIG);
	/* a stale temporary file is no obstacle */
	assert_int_equal(close(openat(dirfd_, "f.tmp", O_CREAT | O_WRONLY, 0644)), 0);
	assert_int_equal(fd_replace_file(dirfd_, "f", "x", 1, 0600), 0);
	assert_int_equal(faccessat(dirfd_, "f.tmp", F_OK, 0), -1);
}

static void
only_regular_files(void **state)
{
	uint8_t *data = NULL;
	size_t len;

	assert_int_equal(mkfifoat(dirfd_, "fifo", 0600), 0);
	assert_int_equal(symlinkat("/etc/passwd", dirfd_, "link"), 0);
	assert_int_equal(fd_read_file(dirfd_, "fifo", 100, &data, &len), -EINVAL);
	assert_int_equal(fd_read_file(dirfd_, "link", 100, &data, &len), -ELOOP);
	assert_int_equal(fd_read_file(dirfd_, ".", 100, &data, &len), -EINVAL);
	assert_int_equal(fd_read_file(dirfd_, "none", 100, &data, &len), -ENOENT);
}

/* What root alone trusts: the file's owner and mode decide, not its content. */
static void
own_files(void **state)
{
	uint8_t *data = NULL;
	size_t len;

	assert_int_equal(fd_read_own_file(dirfd_, "f", 10, &data, &len), -ENOENT);
	assert_int_equal(fd_replace_file(dirfd_, "f", "own", 3, 0644), 0);
	assert_int_equal(fd_read_own_file(dirfd_, "f", 10, &data, &len), 0);
	assert_true(len == 3 && memcmp(data, "own", 3) == 0);
	free(data);
	assert_int_equal(fd_read_own_file(dirfd_, "f", 2, &data, &len), -EPERM);
	assert_int_equal(fchmodat(dirfd_, "f", 0664, 0), 0);
	assert_int_equal(fd_read_own_file(dirfd_, "f", 10, &data, &len), -EPERM);
	assert_int_equal(symlinkat("f", dirfd_, "link"), 0);
	assert_int_equal(fd_read_own_file(dirfd_, "link", 10, &data, &len), -EPERM);
	assert_int_equal(mkfifoat(dirfd_, "fifo", 0600), 0);
	assert_int_equal(fd_read_own_file(dirfd_, "fifo", 10, &data, &len), -EPERM);
}

static void
links(void **state)
{
	char target[64] = { 0 };

	assert_int_equal(fd_replace_link(dirfd_, "link", "one"), 0);
	assert_int_equal(symlinkat("left over", dirfd_, "link.new"), 0);
	assert_int_equal(fd_replace_link(dirfd_, "link", "two"), 0);
	assert_int_equal(readlinkat(dirfd_, "link", target, sizeof(target)), 3);
	assert_string_equal(target, "two");
	assert_int_equal(fd_replace_link(dirfd_, "link", "two"), 0);
	assert_int_equal(faccessat(dirfd_, "link.new", F_OK, AT_SYMLINK_NOFOLLOW), -1);
}

static void
flat_dirs(void **state)
{
	assert_int_equal(fd_remove_flat_dir(dirfd_, "f"), 0);
	assert_int_equal(mkdirat(dirfd_, "f", 0700), 0);
	assert_int_equal(symlinkat("/etc", dirfd_, "f/link"), 0);
	assert_int_equal(close(openat(dirfd_, "f/file", O_CREAT | O_WRONLY, 0600)), 0);
	assert_int_equal(mkdirat(dirfd_, "f/dir", 0700), 0);
	assert_int_equal(fd_remove_flat_dir(dirfd_, "f"), -ENOTEMPTY);	/* never deeper */
	assert_int_equal(unlinkat(dirfd_, "f/dir", AT_REMOVEDIR), 0);
	assert_int_equal(fd_remove_flat_dir(dirfd_, "f"), 0);
	assert_int_equal(faccessat(dirfd_, "f", F_OK, 0), -1);
	assert_int_equal(symlinkat("/tmp", dirfd_, "link"), 0);
	assert_true(fd_remove_flat_dir(dirfd_, "link") < 0);
	assert_true(fd_free_space(dirfd_) > 0);
	assert_int_equal(fd_free_space(-1), 0);
}

static void
sealed(void **state)
{
	size_t len = 0;
	int fd = fd_sealed_memfd("t", "abc", 3);

	assert_true(fd >= 0);
	assert_int_equal(fd_is_sealed_memfd(fd, 3, &len), 1);
	assert_int_equal(len, 3);
	assert_int_equal(fd_is_sealed_memfd(fd, 2, &len), 0);
	assert_int_equal(write(fd, "x", 1), -1);
	close(fd);
	fd = open("/dev/null", O_RDONLY);
	assert_true(fd_is_sealed_memfd(fd, 3, &len) <= 0);
	close(fd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(replace_and_read, setup, teardown),
		cmocka_unit_test_setup_teardown(only_regular_files, setup, teardown),
		cmocka_unit_test_setup_teardown(own_files, setup, teardown),
		cmocka_unit_test_setup_teardown(links, setup, teardown),
		cmocka_unit_test_setup_teardown(flat_dirs, setup, teardown),
		cmocka_unit_test(sealed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
