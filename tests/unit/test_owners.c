/*
 * A runner id belongs to one top-level directory (B84: what work can write is not taken at its word). A name another runner has
 * made, moved or linked is refused; a fresh id, or one that was given to nobody, is given.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "tests/unit/unit.h"
#include "workerd/owners.h"

static const struct pool pool = { 61100, 16, 61003 };
static struct owners o;
static char dir[64];
static int dfd;

static int
setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test_owners.XXXXXX");
	assert_non_null(mkdtemp(dir));
	dfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	owners_init(&o, dfd);
	return 0;
}

static int
teardown(void **state)
{
	unlinkat(dfd, "owners", 0);
	unlinkat(dfd, "owners.bad", 0);
	unlinkat(dfd, "owners.bad", AT_REMOVEDIR);
	close(dfd);
	return rmdir(dir);
}

static int
claim(uint32_t slot, const char *top, bool fresh)
{
	return owners_claim(&o, &pool, slot, top, fresh);
}

static void
one_directory_a_runner(void **state)
{
	assert_int_equal(claim(1, "a", true), 0);
	assert_int_equal(claim(1, "a", false), 0);
	assert_int_equal(claim(1, "b", false), -EPERM);
	assert_int_equal(claim(1, "", false), -EPERM);
	assert_int_equal(claim(2, "b", false), 0);	/* an operator's directory, never used before */
	assert_int_equal(claim(2, "a", false), -EPERM);
	/* a's directory was removed and its id is free again */
	assert_int_equal(claim(1, "c", true), 0);
	assert_int_equal(claim(1, "a", false), -EPERM);
	assert_int_equal(claim(POOL_MAX, "c", true), -EINVAL);
}

static void
kept_over_a_restart(void **state)
{
	assert_int_equal(claim(3, "a", true), 0);
	owners_init(&o, dfd);
	assert_int_equal(claim(3, "b", false), -EPERM);
	assert_int_equal(claim(3, "a", false), 0);
}

static void
file_of_another_pool_or_damaged_is_empty(void **state)
{
	const struct pool other = { 70000, 16, 61003 };
	int fd;

	assert_int_equal(claim(3, "a", true), 0);
	owners_init(&o, dfd);
	assert_int_equal(owners_claim(&o, &other, 3, "b", false), 0);
	owners_init(&o, dfd);
	assert_int_equal(claim(3, "c", false), 0);
	assert_int_equal(faccessat(dfd, "owners.bad", F_OK, 0), -1);
	fd = openat(dfd, "owners", O_RDWR);
	assert_int_equal(pwrite(fd, "x", 1, 100), 1);
	close(fd);
	owners_init(&o, dfd);
	assert_int_equal(claim(3, "d", false), 0);
	assert_int_equal(faccessat(dfd, "owners.bad", F_OK, 0), 0);
}

static void
test_b71_something_else_in_its_place(void **state)
{
	assert_int_equal(mkdirat(dfd, "owners", 0700), 0);
	assert_int_equal(claim(1, "a", true), 0);
	assert_int_equal(unlinkat(dfd, "owners", 0), 0);
	assert_int_equal(symlinkat("/etc/passwd", dfd, "owners"), 0);
	owners_init(&o, dfd);
	assert_int_equal(claim(1, "b", true), 0);
	assert_int_equal(claim(1, "c", false), -EPERM);
}

static void
what_cannot_be_written_is_not_claimed(void **state)
{
	assert_int_equal(claim(4, "a", true), 0);
	assert_int_equal(mkdirat(dfd, "owners.tmp", 0700), 0);
	assert_int_equal(claim(5, "b", true), -EISDIR);
	assert_int_equal(unlinkat(dfd, "owners.tmp", AT_REMOVEDIR), 0);
	assert_int_equal(claim(5, "c", false), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(one_directory_a_runner, setup, teardown),
		cmocka_unit_test_setup_teardown(kept_over_a_restart, setup, teardown),
		cmocka_unit_test_setup_teardown(file_of_another_pool_or_damaged_is_empty, setup, teardown),
		cmocka_unit_test_setup_teardown(test_b71_something_else_in_its_place, setup, teardown),
		cmocka_unit_test_setup_teardown(what_cannot_be_written_is_not_claimed, setup, teardown) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
