/*
 * B69, B71, B72, B75 for the credential. State files of connectd: credential.json (cred.c) and clock (clock.c), both read
 * by statefile.c and written by fd_replace_file() alone.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "connectd/cred.h"
#include "connectd/statefile.h"
#include "tests/unit/unit.h"

#define TMP	CRED_FILE ".tmp"

static char dir[64];
static int dfd;
static const struct cred old_cred = { .server = "wss://hub.example/api/executors/connect", .agent_id = "q83vEjRWeJA_Zm9v",
	.name = "edge-1", .workdir_root = "/srv", .credential = "clac1.q83vEjRWeJA_Zm9v.S.M", .pin = "sha256:abc=", .enrolled_at = "2026-09-30T12:00:00Z" };
static const struct cred new_cred = { .server = "wss://hub.example/api/executors/connect", .agent_id = "zzzzzzzzzzzzzzzz",
	.name = "", .credential = "clac1.zzzzzzzzzzzzzzzz.SS.MM", .enrolled_at = "2026-10-30T12:00:00Z" };
static char old_text[8192], new_text[8192];
static size_t old_len, new_len;

static int
setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test_cred.XXXXXX");
	assert_non_null(mkdtemp(dir));
	dfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(cred_format(&old_cred, old_text, sizeof(old_text), &old_len), 0);
	assert_int_equal(cred_format(&new_cred, new_text, sizeof(new_text), &new_len), 0);
	return 0;
}

static int
teardown(void **state)
{
	char cmd[256];

	close(dfd);
	snprintf(cmd, sizeof(cmd), "chmod -R u+rwx %s; rm -rf %s", dir, dir);
	return system(cmd);
}

static void
put(const char *name, const void *data, size_t len)
{
	int fd = openat(dfd, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), len);
	close(fd);
}

static void
clean(void)
{
	char cmd[256];

	snprintf(cmd, sizeof(cmd), "rm -rf %s/*", dir);
	assert_int_equal(system(cmd), 0);
}

static const char *
loaded(enum cred_state want)
{
	static struct cred_store store;

	cred_load(&store, dfd);
	assert_int_equal(store.state, want);
	return store.cred.agent_id;
}

static bool
exists(const char *name)
{
	struct stat st;

	return fstatat(dfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void
round_trip(void **state)
{
	struct cred_store store = { 0 };
	struct stat st;

	cred_load(&store, dfd);
	assert_int_equal(store.state, CRED_NONE);
	assert_int_equal(cred_save(&store, &old_cred), 0);
	assert_int_equal(fstatat(dfd, CRED_FILE, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	cred_load(&store, dfd);
	assert_int_equal(store.state, CRED_GOOD);
	assert_memory_equal(&store.cred, &old_cred, sizeof(old_cred));
	assert_string_equal(store.note, "");
	/* Others can read it: a warning, and overwriting repairs it. */
	assert_int_equal(fchmodat(dfd, CRED_FILE, 0644, 0), 0);
	cred_load(&store, dfd);
	assert_int_equal(store.state, CRED_GOOD);
	assert_non_null(strstr(store.note, "0644"));
	assert_int_equal(cred_save(&store, &new_cred), 0);
	assert_int_equal(fstatat(dfd, CRED_FILE, &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

/* The file of the stock agent has no check; it is taken as it is. */
static void
stock_file(void **state)
{
	static const char text[] = "{\n  \"server\": \"wss://hub.example/x\",\n  \"agent_id\": \"abc\",\n"
	    "  \"credential\": \"clac1.abc.S.M\",\n  \"workdir_root\": \"/srv\",\n  \"future\": {\"a\": [1]}\n}\n";

	put(CRED_FILE, text, sizeof(text) - 1);
	assert_string_equal(loaded(CRED_GOOD), "abc");
}

/* B69: whatever prefix of the writes of a replacement reached the disk, it is the old or the new credential. */
static void
test_b69_every_prefix(void **state)
{
	/* The temporary is being written beside the old file: all of its prefixes. */
	for (size_t n = 0; n <= new_len; n++) {
		clean();
		put(CRED_FILE, old_text, old_len);
		put(TMP, new_text, n);
		assert_string_equal(loaded(CRED_GOOD), old_cred.agent_id);
	}
	/* First enrollment: no old file. Only the whole temporary counts. */
	for (size_t n = 0; n <= new_len; n++) {
		clean();
		put(TMP, new_text, n);
		if (n < new_len - 1)
			loaded(CRED_NONE);
		else
			assert_string_equal(loaded(CRED_GOOD), new_cred.agent_id);
	}
	/* The rename reached the disk before the data: an empty or cut main file with a complete temporary beside it. */
	for (size_t n = 0; n < new_len - 1; n++) {
		clean();
		put(CRED_FILE, new_text, n);
		put(TMP, new_text, new_len);
		assert_string_equal(loaded(CRED_GOOD), new_cred.agent_id);
		assert_true(exists(CRED_FILE ".bad-0"));
		assert_false(exists(TMP));
		assert_string_equal(loaded(CRED_GOOD), new_cred.agent_id);
	}
	/* Both damaged: named, the bad one kept. */
	clean();
	put(CRED_FILE, new_text, 10);
	put(TMP, new_text, 20);
	loaded(CRED_DAMAGED);
	assert_true(exists(CRED_FILE ".bad-0"));
	assert_true(exists(TMP));
}

/* B71: every bit flipped: never a wrong secret, never a crash; bad copies are kept, three at most. */
static void
test_b71_every_bit(void **state)
{
	unsigned good = 0;

	for (size_t i = 0; i < old_len * 8; i++) {
		char bad[8192];
		struct cred c;

		memcpy(bad, old_text, old_len);
		bad[i / 8] ^= (char)(1 << i % 8);
		if (cred_parse((uint8_t *)bad, old_len, &c) == 0) {
			good++;
			assert_memory_equal(&c, &old_cred, sizeof(c));
		}
	}
	/* White space that became other white space, nothing else. */
	assert_true(good < 4);
	for (int i = 0; i < 10; i++) {
		put(CRED_FILE, old_text, 30);
		loaded(CRED_DAMAGED);
		assert_false(exists(CRED_FILE));
	}
	assert_true(exists(CRED_FILE ".bad-2"));
	assert_false(exists(CRED_FILE ".bad-3"));
}

/* B71: other things in its place; nothing blocks. */
static void
test_b71_nonsense_in_its_place(void **state)
{
	int fd;

	assert_int_equal(mkfifoat(dfd, CRED_FILE, 0600), 0);
	loaded(CRED_DAMAGED);
	assert_int_equal(mkdirat(dfd, CRED_FILE, 0700), 0);
	loaded(CRED_DAMAGED);
	assert_int_equal(symlinkat("/etc/passwd", dfd, CRED_FILE), 0);
	loaded(CRED_DAMAGED);
	fd = openat(dfd, CRED_FILE, O_WRONLY | O_CREAT, 0600);
	assert_int_equal(ftruncate(fd, INT64_C(4) << 30), 0);
	close(fd);
	loaded(CRED_DAMAGED);
	put(CRED_FILE, "{\"agent_id\":\"x\",\"credential\":\"\"}", 32);
	loaded(CRED_DAMAGED);
	put(CRED_FILE, "{\"agent_id\":\"x\",\"credential\":\"a b\"}", 35);
	loaded(CRED_DAMAGED);
	put(CRED_FILE, "[]", 2);
	loaded(CRED_DAMAGED);
}

/* B72: unreadable is another thing than damaged: nothing is touched, and it heals by itself. */
static void
test_b72_unreadable(void **state)
{
	if (geteuid() != 0)
		skip();		/* needs a second user */
	put(CRED_FILE, old_text, old_len);
	assert_int_equal(fchmodat(dfd, CRED_FILE, 0, 0), 0);
	assert_int_equal(fchmodat(dfd, ".", 0777, 0), 0);
	assert_int_equal(seteuid(65534), 0);
	loaded(CRED_UNREADABLE);
	assert_int_equal(seteuid(0), 0);
	assert_true(exists(CRED_FILE));
	assert_false(exists(CRED_FILE ".bad-0"));
	assert_int_equal(fchmodat(dfd, CRED_FILE, 0600, 0), 0);
	assert_string_equal(loaded(CRED_GOOD), old_cred.agent_id);
}

/* B75: a replacement that cannot be written leaves the old one whole and in use. */
static void
test_b75_failed_replacement(void **state)
{
	struct cred_store store = { 0 };

	cred_load(&store, dfd);
	assert_int_equal(cred_save(&store, &old_cred), 0);
	/* A directory where the temporary should go stands for a full or read-only disk, also when we are root. */
	assert_int_equal(mkdirat(dfd, TMP, 0700), 0);
	put(TMP "/x", "", 0);
	assert_true(cred_save(&store, &new_cred) < 0);
	assert_string_equal(store.cred.agent_id, old_cred.agent_id);
	assert_string_equal(loaded(CRED_GOOD), old_cred.agent_id);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(round_trip, setup, teardown),
		cmocka_unit_test_setup_teardown(stock_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_b69_every_prefix, setup, teardown),
		cmocka_unit_test_setup_teardown(test_b71_every_bit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_b71_nonsense_in_its_place, setup, teardown),
		cmocka_unit_test_setup_teardown(test_b72_unreadable, setup, teardown),
		cmocka_unit_test_setup_teardown(test_b75_failed_replacement, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
