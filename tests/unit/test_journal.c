/*
 * B71: the journal is not believed. It is workerd's only file (records live in memory): journal_open() and journal_parse() are
 * where a damaged one could do harm. B54: what it says of handles decides whether a start is a repetition.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "proto/ipc/work.h"
#include "tests/unit/unit.h"
#include "workerd/journal.h"

#define SIZE	sizeof(struct journal_record)

static char dir[] = "/dev/shm/test_journal.XXXXXX";	/* memory: every rewrite waits for its disk */
static int dirfd_;
static struct journal j;
static struct journal_record found[64];
static size_t nfound;

static void
live(const struct journal_record *rec, void *ctx)
{
	assert_true(nfound < COUNT(found));
	found[nfound++] = *rec;
}

static int
open_it(void)
{
	nfound = 0;
	return journal_open(&j, dirfd_, live, NULL);
}

static void
add(enum journal_type type, const char *handle, int exit_code)
{
	struct journal_record rec = { .type = (uint16_t)type, .instance = 5, .exit_code = exit_code,
		.outcome = type == JOURNAL_ENDED ? WORK_OUTCOME_EXITED : 0 };

	snprintf(rec.handle, sizeof(rec.handle), "%s", handle);
	assert_int_equal(journal_append(&j, &rec), 0);
}

static void
empty_dir(void)
{
	static const char *const names[] = { "journal", "journal.tmp", "journal.bad.0", "journal.bad.1", "journal.bad.2",
		"journal.bad.3" };

	for (size_t i = 0; i < COUNT(names); i++)
		if (unlinkat(dirfd_, names[i], 0) < 0 && errno == EISDIR)
			unlinkat(dirfd_, names[i], AT_REMOVEDIR);
}

static int
setup(void **state)
{
	empty_dir();
	assert_int_equal(open_it(), 0);
	assert_int_equal(nfound, 0);
	return 0;
}

static int
teardown(void **state)
{
	journal_close(&j);
	return 0;
}

static bool
exists(const char *name)
{
	return faccessat(dirfd_, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void
write_file(const void *data, size_t len)
{
	int fd = openat(dirfd_, "journal", O_WRONLY | O_CREAT | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(fd_write_all(fd, data, len), 0);
	close(fd);
}

static void
remembers_what_matters(void **state)
{
	add(JOURNAL_STARTED, "runs", 0);
	add(JOURNAL_STARTED, "ended", 0);
	add(JOURNAL_ENDED, "ended", 3);
	add(JOURNAL_STARTED, "done", 0);
	add(JOURNAL_ENDED, "done", 4);
	add(JOURNAL_DELIVERED, "done", 0);
	journal_append(&j, &(struct journal_record){ .type = JOURNAL_DRAIN, .outcome = 1 });
	teardown(NULL);
	assert_int_equal(open_it(), 0);
	assert_int_equal(nfound, 2);
	assert_string_equal(found[0].handle, "runs");
	assert_int_equal(found[0].type, JOURNAL_STARTED);
	assert_int_equal(found[0].instance, 5);
	assert_string_equal(found[1].handle, "ended");
	assert_int_equal(found[1].type, JOURNAL_ENDED);
	assert_int_equal(found[1].exit_code, 3);
	assert_true(journal_seen(&j, "done"));
	assert_false(journal_seen(&j, "ended") || journal_seen(&j, "runs") || journal_seen(&j, ""));
	assert_true(j.drain);
}

static void
rewriting_keeps_the_same(void **state)
{
	for (int i = 0; i < 10; i++) {
		char handle[16];

		snprintf(handle, sizeof(handle), "d%d", i);
		add(JOURNAL_STARTED, handle, 0);
		add(JOURNAL_DELIVERED, handle, 0);
	}
	add(JOURNAL_STARTED, "runs", 0);
	teardown(NULL);
	assert_int_equal(open_it(), 0);
	assert_int_equal(journal_rewrite(&j, found, nfound), 0);
	assert_int_equal(j.records, 12);	/* drain, ten seen, one live */
	add(JOURNAL_ENDED, "runs", 9);
	teardown(NULL);
	assert_int_equal(open_it(), 0);
	assert_int_equal(nfound, 1);
	assert_int_equal(found[0].exit_code, 9);
	assert_true(journal_seen(&j, "d0") && journal_seen(&j, "d9"));
	assert_false(j.drain);
}

static void
seen_handles_are_bounded(void **state)
{
	char handle[16];

	for (unsigned i = 0; i < JOURNAL_SEEN + 10; i++) {
		snprintf(handle, sizeof(handle), "s%u", i);
		add(JOURNAL_DELIVERED, handle, 0);
	}
	assert_false(journal_seen(&j, "s0") || journal_seen(&j, "s9"));
	assert_true(journal_seen(&j, "s10"));
	teardown(NULL);
	assert_int_equal(open_it(), 0);
	assert_false(journal_seen(&j, "s9"));
	assert_true(journal_seen(&j, "s10") && journal_seen(&j, handle));
}

static void
is_long_after_many(void **state)
{
	for (unsigned i = 0; i + 1 < JOURNAL_MAX; i++)
		add(JOURNAL_STARTED, "same", 0);
	assert_false(journal_is_long(&j));
	add(JOURNAL_STARTED, "same", 0);
	assert_true(journal_is_long(&j));
}

/* The good file of the tests below. */
static size_t
make_good(uint8_t **ret_data)
{
	size_t len;

	add(JOURNAL_STARTED, "a", 0);
	add(JOURNAL_STARTED, "b", 0);
	add(JOURNAL_ENDED, "a", 1);
	add(JOURNAL_DELIVERED, "a", 0);
	add(JOURNAL_STARTED, "c", 0);
	teardown(NULL);
	assert_int_equal(fd_read_file(dirfd_, "journal", 1 << 20, ret_data, &len), 0);
	return len;
}

static void
b71_cut_at_every_byte(void **state)
{
	static const unsigned alive[] = { 0, 1, 2, 2, 1, 2 };	/* after that many whole records */
	_cleanup_free_ uint8_t *data = NULL;
	size_t len = make_good(&data);

	assert_int_equal(len, 5 * SIZE);
	for (size_t cut = 0; cut <= len; cut++) {
		write_file(data, cut);
		assert_int_equal(open_it(), 0);
		assert_int_equal(nfound, alive[cut / SIZE]);
		assert_false(exists("journal.bad.0"));
		/* what is written next is read back: the cut record does not swallow it */
		add(JOURNAL_STARTED, "next", 0);
		teardown(NULL);
		assert_int_equal(open_it(), 0);
		assert_int_equal(nfound, alive[cut / SIZE] + 1);
		teardown(NULL);
	}
}

static void
b71_every_bit_flipped(void **state)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len = make_good(&data);

	for (size_t bit = 0; bit < 8 * len; bit += 5) {
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		write_file(data, len);
		assert_int_equal(open_it(), 1);
		assert_true(exists("journal.bad.0") && !exists("journal.bad.3"));
		/* the other records go on: c is known unless it is the damaged one */
		assert_true(nfound >= 1);
		assert_int_equal(strcmp(found[nfound - 1].handle, "c") == 0, bit / 8 < 4 * SIZE);
		teardown(NULL);
		assert_int_equal(open_it(), 0);	/* the file is whole again */
		teardown(NULL);
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}

static void
b71_unwritten_tail_is_no_damage(void **state)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len = make_good(&data);
	uint8_t zeros[4096] = { 0 };
	int fd;

	write_file(data, len);
	fd = openat(dirfd_, "journal", O_WRONLY | O_APPEND);
	assert_int_equal(fd_write_all(fd, zeros, sizeof(zeros)), 0);
	close(fd);
	assert_int_equal(open_it(), 0);
	assert_int_equal(nfound, 2);
	add(JOURNAL_STARTED, "next", 0);
	teardown(NULL);
	assert_int_equal(open_it(), 0);
	assert_int_equal(nfound, 3);
}

static void
b71_something_else_in_its_place(void **state)
{
	int fd;

	teardown(NULL);
	empty_dir();
	assert_int_equal(mkdirat(dirfd_, "journal", 0700), 0);
	assert_int_equal(open_it(), 1);
	add(JOURNAL_STARTED, "x", 0);
	teardown(NULL);

	empty_dir();
	assert_int_equal(mkfifoat(dirfd_, "journal", 0600), 0);
	assert_int_equal(open_it(), 1);
	teardown(NULL);

	empty_dir();
	assert_int_equal(symlinkat("/dev/zero", dirfd_, "journal"), 0);
	assert_int_equal(open_it(), 1);
	teardown(NULL);

	empty_dir();
	fd = openat(dirfd_, "journal", O_WRONLY | O_CREAT, 0600);
	assert_int_equal(ftruncate(fd, 4LL << 30), 0);
	close(fd);
	assert_int_equal(open_it(), 1);
	assert_int_equal(nfound, 0);
	teardown(NULL);
}

static void
only_three_copies_are_kept(void **state)
{
	for (int i = 0; i < 8; i++) {
		teardown(NULL);
		write_file("nonsense that is as long as a record, so that it is no cut tail ........................."
		    "............................................................................", SIZE);
		assert_int_equal(open_it(), 1);
	}
	assert_true(exists("journal.bad.0") && exists("journal.bad.1") && exists("journal.bad.2"));
	assert_false(exists("journal.bad.3"));
}

static void
full_disk_is_told(void **state)
{
	struct journal_record rec = { .type = JOURNAL_STARTED, .handle = "x" };

	journal_close(&j);
	j.fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_int_equal(journal_append(&j, &rec), -ENOSPC);
	assert_int_equal(j.records, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(remembers_what_matters, setup, teardown),
		cmocka_unit_test_setup_teardown(rewriting_keeps_the_same, setup, teardown),
		cmocka_unit_test_setup_teardown(seen_handles_are_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(is_long_after_many, setup, teardown),
		cmocka_unit_test_setup_teardown(b71_cut_at_every_byte, setup, teardown),
		cmocka_unit_test_setup_teardown(b71_every_bit_flipped, setup, teardown),
		cmocka_unit_test_setup_teardown(b71_unwritten_tail_is_no_damage, setup, teardown),
		cmocka_unit_test_setup_teardown(b71_something_else_in_its_place, setup, teardown),
		cmocka_unit_test_setup_teardown(only_three_copies_are_kept, setup, teardown),
		cmocka_unit_test_setup_teardown(full_disk_is_told, setup, teardown),
	};
	int r;

	if (mkdtemp(dir) == NULL || (dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	empty_dir();
	close(dirfd_);
	rmdir(dir);
	return r;
}
