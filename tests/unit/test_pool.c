#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/pool.h"
#include "tests/unit/unit.h"

static void
lines(void **state)
{
	static const char *const bad[] = { "", "\n", "1", "1 2", "1 2 3 4", "1 2 3\n\n", " 1 2 3", "1  2 3", "0 2 3", "1 0 3", "1 2 0",
		"1 4097 3", "4294967294 2 3", "4294967295 1 3", "-1 2 3", "1 2 x", "1 2 3 ", "1,2,3", "1 2 3\nmore", "65534 1 3",
		"65400 135 3", "65535 1 3", "65535 9 3", "65000 4000 3", "1 2 65534", "1 2 65535" };
	static const char *const good[] = { "1 1 1", "60000 64 60064\n", "4294963000 64 5", "65536 64 5", "65400 134 5" };
	struct pool pool = { 9, 9, 9 };

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(pool_parse(bad[i], strlen(bad[i]), &pool), -EINVAL);
	assert_int_equal(pool_parse("1 2\0 3", 6, &pool), -EINVAL);
	assert_int_equal(pool.first, 9);	/* untouched */
	for (size_t i = 0; i < COUNT(good); i++)
		assert_int_equal(pool_parse(good[i], strlen(good[i]), &pool), 0);
	assert_int_equal(pool_parse(good[1], strlen(good[1]), &pool), 0);
	assert_int_equal(pool.first, 60000);
	assert_int_equal(pool.count, 64);
	assert_int_equal(pool.gid, 60064);
}

static void
files(void **state)
{
	char name[] = "/tmp/test_pool.XXXXXX";
	struct pool pool = { 9, 9, 9 };
	int fd = mkstemp(name);

	assert_int_equal(pool_load("/nonexistent/pool", &pool), 0);
	assert_int_equal(pool.count, 0);
	assert_int_equal(pool_load("/tmp", &pool), -EINVAL);
	assert_int_equal(write(fd, "60000 8 7\n", 10), 10);
	assert_int_equal(fchmod(fd, 0644), 0);
	assert_int_equal(pool_load(name, &pool), getuid() == 0 ? 0 : -EPERM);
	assert_int_equal(fchmod(fd, 0664), 0);
	assert_int_equal(pool_load(name, &pool), -EPERM);
	assert_int_equal(fchmod(fd, 0646), 0);
	assert_int_equal(pool_load(name, &pool), -EPERM);
	close(fd);
	unlink(name);
	assert_int_equal(mkfifo(name, 0600), 0);
	assert_int_equal(pool_load(name, &pool), -EINVAL);	/* and does not block */
	unlink(name);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(lines), cmocka_unit_test(files) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
