/* Changes of the resolver file, by link and by replacement; at most one call a second; other files do not count. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "connectd/netwatch.h"
#include "tests/unit/netrig.h"
#include "tests/unit/unit.h"

static struct netrig rig;
static unsigned calls;
static char last[32];

static void
changed(const char *what, void *ctx)
{
	calls++;
	snprintf(last, sizeof(last), "%s", what);
}

static void
put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void
expect_call(void)
{
	calls = 0;
	assert_true(netrig_until_n(&rig, &calls, 3000));
	assert_string_equal(last, "resolver");
	netrig_advance(1500);
	netrig_turns(&rig, 60);
	assert_int_equal(calls, 1);
}

static void
resolver(void **state)
{
	char dir[] = "/tmp/edgeward-test-watch.XXXXXX", path[64], other[64], real[64], target[64];
	struct netwatch *watch;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/resolv.conf", dir);
	snprintf(other, sizeof(other), "%s/hosts", dir);
	snprintf(real, sizeof(real), "%s/run", dir);
	snprintf(target, sizeof(target), "%s/run/stub.conf", dir);
	assert_int_equal(mkdir(real, 0700), 0);
	assert_int_equal(netwatch_new(rig.loop, path, changed, NULL, &watch), 0);
	/* It did not exist; it comes, is written over, is replaced. */
	put(path, "a");
	expect_call();
	put(path, "b");
	expect_call();
	put(other, "c");
	netrig_turns(&rig, 100);
	assert_int_equal(calls, 1);
	assert_int_equal(rename(other, path), 0);
	expect_call();
	/* It becomes a link: from then on the file it leads to counts as well. */
	put(target, "d");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("run/stub.conf", path), 0);
	expect_call();
	put(target, "e");
	expect_call();
	/* Many changes, one call; the second not before a second has passed. */
	calls = 0;
	put(target, "1");
	assert_true(netrig_until_n(&rig, &calls, 3000));
	for (unsigned i = 0; i < 20; i++) {
		put(target, "2");
		netrig_turns(&rig, 5);
	}
	assert_int_equal(calls, 1);
	netrig_advance(1000);
	netrig_turns(&rig, 20);
	assert_int_equal(calls, 2);
	netwatch_free(watch);
	put(target, "3");
	netrig_turns(&rig, 100);
	assert_int_equal(calls, 2);
	unlink(target);
	unlink(path);
	rmdir(real);
	rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(resolver) };

	return netrig_run(&rig, NULL, tests, COUNT(tests));
}
