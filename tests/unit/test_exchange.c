/*
 * B84: what others can write changes while root, or who acts for another uid, works on it. A process exchanges names (RENAME_EXCHANGE) as fast
 * as it can: below a directory of workloads a step of the path with a link that leads out, in the box of connectd a request and a release with
 * a link, a pipe, a directory and a second name of a file of root's. Where it could go wrong: common/beneath.c, which makes a step in what
 * another step was opened as, and privupgrade/inbox.c, which looks at what it has moved away. Each race lasts until it was both won and lost
 * often enough, half a second at least.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/beneath.h"
#include "common/cleanup.h"
#include "common/monotime.h"
#include "privupgrade/privupgrade.h"
#include "tests/unit/unit.h"

#define RACE_MS	500
#define OFTEN	50u	/* of each outcome */
#define TOO_LONG	60	/* seconds: somebody waits for a pipe */

static char base[] = "/tmp/test_exchange.XXXXXX";
static char outside[64], canary[96];
static const char good[] = "edgeward-upgrade-request 1\nsequence 2\nid good\nsettle 0\ndowngrade no\n";
static const char evil[] = "edgeward-upgrade-request 1\nsequence 2\nid evil\nsettle 0\ndowngrade no\n";

/* A process that does f again and again until it is killed. */
static pid_t
attacker(void (*f)(int dir, unsigned n), int dir)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned n = 0; ; n++)
		f(dir, n);
}

static void
end(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static int
make_dir(const char *name, mode_t mode)
{
	char path[96];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", base, name);
	assert_int_equal(mkdir(path, mode), 0);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	return fd;
}

static void
put(int dir, const char *name, const char *text)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
		abort();
}

static void
exchange_step(int dir, unsigned n)
{
	renameat2(dir, "a", dir, "link", RENAME_EXCHANGE);
	if (n % 64 < 2)		/* there and back */
		renameat2(dir, "a/b", dir, "deep", RENAME_EXCHANGE);
}

/* Takes what was made away again, so that there is something to make; only in what is ours. */
static void
unmake(int root)
{
	static const char *const names[] = { "a", "link" };

	unlinkat(root, "deep/c", AT_REMOVEDIR);
	for (size_t i = 0; i < COUNT(names); i++) {
		_cleanup_close_ int dir = openat(root, names[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		_cleanup_close_ int b = dir < 0 ? -1 : openat(dir, "b", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (b >= 0)
			unlinkat(b, "c", AT_REMOVEDIR);
		if (dir >= 0)
			unlinkat(dir, "b", AT_REMOVEDIR);
	}
}

static bool
is_inside(int fd)
{
	char name[64], path[256];
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	n = readlink(name, path, sizeof(path) - 1);
	path[n > 0 ? n : 0] = '\0';
	return strncmp(path, base, strlen(base)) == 0 && strncmp(path + strlen(base), "/work/", 6) == 0;
}

static void
b84_steps_of_a_path(void **state)
{
	_cleanup_close_ int root = make_dir("work", 0755);
	unsigned made = 0, refused = 0;
	monotime_t until;
	pid_t pid;

	assert_int_equal(mkdirat(root, "a", 0755), 0);
	assert_int_equal(symlinkat(outside, root, "link"), 0);
	assert_int_equal(symlinkat("../../outside", root, "deep"), 0);
	until = monotime_add_ms(monotime_now(), RACE_MS);
	pid = attacker(exchange_step, root);
	while (monotime_before(monotime_now(), until) || made < OFTEN || refused < OFTEN) {
		char path[] = "a/b/c";
		_cleanup_close_ int fd = beneath_make(root, path);

		assert_true(fd < 0 || is_inside(fd));
		made += fd >= 0;
		refused += fd < 0;
		unmake(root);
	}
	end(pid);
	assert_int_equal(rmdir(outside), 0);	/* nothing was made in it */
}

static void
exchange_in_box(int box, unsigned n)
{
	static const char *const names[] = { "upgrade-request", "upgrade-release" };

	for (size_t i = 0; i < COUNT(names); i++) {
		unlinkat(box, "evil", 0);
		unlinkat(box, "evil", AT_REMOVEDIR);
		switch (n % 4) {
		case 0: symlinkat(canary, box, "evil"); break;
		case 1: mkfifoat(box, "evil", 0600); break;
		case 2: mkdirat(box, "evil", 0700); break;
		default: linkat(AT_FDCWD, canary, box, "evil", 0);
		}
		unlinkat(box, "new", 0);
		put(box, "new", good);
		unlinkat(box, names[i], AT_REMOVEDIR);
		renameat(box, "new", box, names[i]);
	}
	for (unsigned i = 0; i < 8; i++)
		renameat2(box, names[i / 2 % 2], box, "evil", RENAME_EXCHANGE);
}

static void
is_good(int fd)
{
	char text[sizeof(good)] = "";

	assert_true(pread(fd, text, sizeof(text) - 1, 0) >= 0);
	assert_string_equal(text, good);
}

static void
b84_request_and_release(void **state)
{
	_cleanup_close_ int box = make_dir("connectd", 0700), up = make_dir("upgrade", 0700), taken = make_dir("upgrade/taken", 0700);
	struct updater u = { .base_path = base, .base = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .dir = up, .taken = taken };
	unsigned done = 0, refused = 0;
	monotime_t until = monotime_add_ms(monotime_now(), RACE_MS);
	pid_t pid = attacker(exchange_in_box, box);
	struct stat st;

	while (monotime_before(monotime_now(), until) || done < OFTEN || refused < OFTEN) {
		struct inbox in;
		int r = inbox_take(&u, UPGRADE_HUB, &in);

		/* A request that was read is the good one, whatever came of the release. */
		assert_true(in.request.id[0] == '\0' || strcmp(in.request.id, "good") == 0);
		assert_true(r == 0 || r == 1 || r == -ECANCELED);
		if (r == 1) {
			is_good(in.release);
			close(in.release);
		}
		done += r == 1;
		refused += r == -ECANCELED;
		inbox_forget(&u, UPGRADE_HUB);
	}
	end(pid);
	assert_int_equal(stat(canary, &st), 0);
	assert_int_equal(st.st_size, sizeof(evil) - 1);
	assert_int_equal(fstatat(taken, "hub-request", &st, AT_SYMLINK_NOFOLLOW), -1);
	close(u.base);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(b84_steps_of_a_path),
		cmocka_unit_test(b84_request_and_release),
	};
	char cmd[64];
	int r;

	if (mkdtemp(base) == NULL)
		return 1;
	snprintf(outside, sizeof(outside), "%s/outside", base);
	snprintf(canary, sizeof(canary), "%s/canary", base);
	if (mkdir(outside, 0755) < 0)
		return 1;
	put(AT_FDCWD, canary, evil);
	alarm(TOO_LONG);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", base);
	return system(cmd) != 0 ? 1 : r;
}
