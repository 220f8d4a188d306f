/* What workinit does with secret files (cloop.md 14.11, 14.12, 14.14); where the workload may have put anything in its way. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "proto/ipc/secrets.h"
#include "tests/unit/unit.h"
#include "workerd/launcher/secretfs.h"

static char where[32];
static int base;

static int
setup(void **state)
{
	snprintf(where, sizeof(where), "/tmp/ewsecretfs.XXXXXX");
	if (mkdtemp(where) == NULL)
		return -1;
	base = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return base < 0 ? -1 : 0;
}

static int
teardown(void **state)
{
	char cmd[160];

	close(base);
	snprintf(cmd, sizeof(cmd), "chmod -R u+rwx %s; rm -rf %s", where, where);
	return system(cmd);
}

static size_t
items(uint8_t *buf, size_t size, const char *const names[], unsigned n)
{
	struct secret s = { .kind = SECRET_FILE, .mode = 0600, .dir = LAUNCH_SECRETS "/" LAUNCH_LEASE_DIR "1",
		.value = (const uint8_t *)"content", .len = 7 };
	struct wire_w w;
	size_t len;

	wire_w_init(&w, buf, size);
	for (unsigned i = 0; i < n; i++) {
		snprintf(s.name, sizeof(s.name), "%s", names[i]);
		s.mode = i == 1 ? 0400 : 0600;
		secret_put(&w, &s);
	}
	assert_int_equal(wire_w_done(&w, &len), 0);
	return len;
}

static void
place(void)
{
	static const char *const names[] = { "token", "key" };
	uint8_t buf[4096];
	const struct work_str list = { (const char *)buf, items(buf, sizeof(buf), names, 2) };

	assert_int_equal(secretfs_place(base, &list), 0);
}

static struct init_done
ask(enum init_secret_op op, const char *name, int fd)
{
	struct init_secret s = { .op = op, .mode = op == INIT_SECRET_REPLACE ? 0600 : 0 };

	snprintf(s.dir, sizeof(s.dir), LAUNCH_LEASE_DIR "1");
	snprintf(s.name, sizeof(s.name), "%s", name);
	assert_true(init_secret_ok(&s));
	return secretfs_do(base, &s, fd);
}

static bool
exists(const char *name)
{
	struct stat st;
	char path[128];

	snprintf(path, sizeof(path), LAUNCH_LEASE_DIR "1/%s", name);
	return fstatat(base, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void
content(int at, const char *path, const char *want)
{
	uint8_t *data;
	size_t len;

	assert_int_equal(fd_read_file(at, path, 4096, &data, &len), 0);
	assert_int_equal(len, strlen(want));
	assert_memory_equal(data, want, len);
	free(data);
}

static void
placed_exactly(void **state)
{
	struct stat st;

	place();
	assert_int_equal(fstatat(base, LAUNCH_LEASE_DIR "1", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(fstatat(base, LAUNCH_LEASE_DIR "1/key", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0400);
	content(base, LAUNCH_LEASE_DIR "1/token", "content");
	assert_int_equal(secretfs_wipe(base), 0);
	assert_int_equal(fstatat(base, LAUNCH_LEASE_DIR "1", &st, 0), -1);
	assert_int_equal(secretfs_wipe(base), 0);		/* again changes nothing */
}

static void
scrub_zeroes_before_it_unlinks(void **state)
{
	place();
	assert_int_equal(linkat(base, LAUNCH_LEASE_DIR "1/key", base, "second", 0), 0);
	assert_int_equal(ask(INIT_SECRET_SCRUB, "key", -1).files, 1);
	assert_false(exists("key"));
	assert_true(exists("token"));
	assert_int_equal(fchmodat(base, "second", 0600, 0), 0);
	uint8_t *data;
	size_t len;

	assert_int_equal(fd_read_file(base, "second", 64, &data, &len), 0);
	assert_int_equal(len, 7);
	assert_memory_equal(data, "\0\0\0\0\0\0\0", 7);
	free(data);
	const struct init_done again = ask(INIT_SECRET_SCRUB, "key", -1);

	assert_true(again.status == 0 && again.files == 0);
}

static void
links_are_not_followed(void **state)
{
	int fd = fd_sealed_memfd("new", "new", 3);

	place();
	assert_int_equal(unlinkat(base, LAUNCH_LEASE_DIR "1/token", 0), 0);
	assert_int_equal(fd_replace_file(base, "target", "target", 6, 0600), 0);
	assert_int_equal(symlinkat("../target", base, LAUNCH_LEASE_DIR "1/token"), 0);
	assert_int_equal(ask(INIT_SECRET_REPLACE, "token", fd).status, -ELOOP);
	content(base, "target", "target");
	assert_int_equal(ask(INIT_SECRET_SCRUB, "token", -1).status, 0);
	assert_false(exists("token"));
	content(base, "target", "target");
	/* a directory that is a link */
	assert_int_equal(renameat(base, LAUNCH_LEASE_DIR "1", base, "moved"), 0);
	assert_int_equal(symlinkat("moved", base, LAUNCH_LEASE_DIR "1"), 0);
	assert_true(ask(INIT_SECRET_SCRUB, "key", -1).status < 0);
	assert_true(ask(INIT_SECRET_CLEAR, "", -1).status < 0);
	assert_int_equal(fd_replace_file(base, "moved/token", "x", 1, 0600), 0);
	assert_true(ask(INIT_SECRET_REPLACE, "token", fd).status < 0);
	content(base, "moved/token", "x");
	close(fd);
}

static void
replaced_at_one_stroke(void **state)
{
	int fd = fd_sealed_memfd("new", "fresh content", 13), old, plain = memfd_create("plain", MFD_CLOEXEC);
	char buf[16];

	place();
	old = openat(base, LAUNCH_LEASE_DIR "1/token", O_RDONLY | O_CLOEXEC);
	assert_int_equal(ask(INIT_SECRET_REPLACE, "token", fd).files, 1);
	content(base, LAUNCH_LEASE_DIR "1/token", "fresh content");
	assert_int_equal(pread(old, buf, sizeof(buf), 0), 7);	/* who has it open goes on reading what it was */
	assert_memory_equal(buf, "content", 7);
	assert_int_equal(ask(INIT_SECRET_REPLACE, "nothing", fd).status, -ENOENT);
	assert_false(exists("nothing"));
	assert_int_equal(ask(INIT_SECRET_REPLACE, "token", plain).status, -EINVAL);
	assert_int_equal(ask(INIT_SECRET_REPLACE, "token", -1).status, -EINVAL);
	content(base, LAUNCH_LEASE_DIR "1/token", "fresh content");
	close(old);
	close(fd);
	close(plain);
}

/* With the last of its files a directory goes, with what else lies there; what cannot be wiped is told. */
static void
clearing(void **state)
{
	place();
	assert_int_equal(fd_replace_file(base, LAUNCH_LEASE_DIR "1/copy", "content", 7, 0600), 0);
	assert_int_equal(mkdirat(base, LAUNCH_LEASE_DIR "1/nested", 0700), 0);
	assert_int_equal(fd_replace_file(base, LAUNCH_LEASE_DIR "1/nested/f", "x", 1, 0600), 0);
	struct init_done done = ask(INIT_SECRET_CLEAR, "", -1);

	assert_int_equal(done.status, -EISDIR);
	assert_int_equal(done.files, 3);
	content(base, LAUNCH_LEASE_DIR "1/nested/f", "x");
	assert_int_equal(unlinkat(base, LAUNCH_LEASE_DIR "1/nested/f", 0), 0);
	assert_int_equal(unlinkat(base, LAUNCH_LEASE_DIR "1/nested", AT_REMOVEDIR), 0);
	done = ask(INIT_SECRET_CLEAR, "", -1);
	assert_true(done.status == 0 && done.files == 0);
	done = ask(INIT_SECRET_CLEAR, "", -1);
	assert_true(done.status == 0 && done.files == 0);
}

static void
requests_that_are_none(void **state)
{
	static const struct init_secret good = { .op = INIT_SECRET_SCRUB, .dir = LAUNCH_LEASE_DIR "1", .name = "n" };
	struct init_secret s;

#define REFUSED(change) do { s = good; change; assert_false(init_secret_ok(&s)); } while (0)
	assert_true(init_secret_ok(&good));
	REFUSED(s.op = 0);
	REFUSED(s.op = 4);
	REFUSED(s.mode = 0644);
	REFUSED(snprintf(s.dir, sizeof(s.dir), LAUNCH_LEASE_DIR));	/* the bare prefix is no such directory */
	REFUSED(snprintf(s.dir, sizeof(s.dir), LAUNCH_LEASE_DIR "1/.."));
	REFUSED(snprintf(s.dir, sizeof(s.dir), ".."));
	REFUSED(snprintf(s.name, sizeof(s.name), "../n"));
	REFUSED(s.name[0] = '\0');
	REFUSED(s.op = INIT_SECRET_CLEAR);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(placed_exactly, setup, teardown),
		cmocka_unit_test_setup_teardown(scrub_zeroes_before_it_unlinks, setup, teardown),
		cmocka_unit_test_setup_teardown(links_are_not_followed, setup, teardown),
		cmocka_unit_test_setup_teardown(replaced_at_one_stroke, setup, teardown),
		cmocka_unit_test_setup_teardown(clearing, setup, teardown),
		cmocka_unit_test(requests_that_are_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
