/* The hub's log files: places, gaps, what is found again after a crash, digests. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <signal.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

#include "hub/logfile.h"

static char dir[] = "/tmp/test-hub-logfile.XXXXXX";
static int dirfd_;

static int
set_up(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd_ < 0 ? -1 : 0;
}

static int
tear_down(void **state)
{
	(void)state;
	close(dirfd_);
	return rmdir(dir);
}

static struct logfile
open_log(const struct logfile_gap *gaps, size_t n)
{
	struct logfile log;

	assert_int_equal(logfile_open(dirfd_, "h", true, gaps, n, &log), 0);
	return log;
}

static void
remove_log(struct logfile *log)
{
	logfile_close(log);
	assert_int_equal(unlinkat(dirfd_, "w.h", 0), 0);
}

static void
test_place(void **state)
{
	static const struct {
		uint64_t next, offset;
		size_t len;
		enum logfile_place place;
		size_t skip;
	} rows[] = {
		{ 0, 0, 5, LOGFILE_NEW, 0 },
		{ 10, 10, 5, LOGFILE_NEW, 0 },
		{ 10, 5, 5, LOGFILE_DUPLICATE, 5 },
		{ 10, 0, 3, LOGFILE_DUPLICATE, 3 },
		{ 10, 5, 6, LOGFILE_OVERLAP, 5 },
		{ 10, 0, 100, LOGFILE_OVERLAP, 10 },
		{ 10, 11, 1, LOGFILE_JUMP, 0 },
		{ 10, UINT64_MAX, 1, LOGFILE_JUMP, 0 },
		{ UINT64_MAX, 0, 1, LOGFILE_DUPLICATE, 1 },
		{ 10, 10, 0, LOGFILE_DUPLICATE, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t skip = 99;

		assert_int_equal(logfile_place(rows[i].next, rows[i].offset, rows[i].len, &skip), rows[i].place);
		assert_int_equal(skip, rows[i].skip);
	}
}

static void
test_append_read(void **state)
{
	struct logfile log = open_log(NULL, 0);
	uint64_t gap_to;
	char buf[16];

	(void)state;
	assert_int_equal(log.next, 0);
	assert_int_equal(logfile_read(&log, 0, buf, sizeof(buf), &gap_to), 0);
	assert_int_equal(logfile_append(&log, "hello ", 6), 0);
	assert_int_equal(logfile_append(&log, "world", 5), 0);
	assert_int_equal(log.next, 11);
	assert_int_equal(logfile_read(&log, 0, buf, sizeof(buf), &gap_to), 11);
	assert_memory_equal(buf, "hello world", 11);
	assert_int_equal(logfile_read(&log, 6, buf, 3, &gap_to), 3);
	assert_memory_equal(buf, "wor", 3);
	assert_int_equal(logfile_read(&log, 11, buf, 3, &gap_to), 0);
	assert_int_equal(logfile_read(&log, UINT64_MAX, buf, 3, &gap_to), 0);
	remove_log(&log);
}

static void
test_gaps(void **state)
{
	struct logfile log = open_log(NULL, 0), again;
	struct logfile_gap gap, saved[2];
	uint64_t gap_to;
	char buf[16];

	(void)state;
	assert_int_equal(logfile_append(&log, "abc", 3), 0);
	assert_int_equal(logfile_gap(&log, 3, 1, &gap), -EINVAL);
	assert_int_equal(logfile_gap(&log, 10, 2, &gap), 0);
	assert_int_equal(gap.from, 3);
	assert_int_equal(gap.to, 10);
	/* One that follows at once is the same gap, longer. */
	assert_int_equal(logfile_gap(&log, 12, 1, &gap), 0);
	assert_int_equal(gap.from, 3);
	assert_int_equal(gap.to, 12);
	assert_int_equal(log.ngaps, 1);
	assert_int_equal(logfile_append(&log, "xyz", 3), 0);
	assert_int_equal(logfile_gap(&log, 20, 3, &gap), 0);
	assert_int_equal(log.ngaps, 2);
	assert_int_equal(log.next, 20);
	assert_int_equal(logfile_gap(&log, LOGFILE_MAX + 1, 3, &gap), -EFBIG);

	assert_int_equal(logfile_read(&log, 0, buf, sizeof(buf), &gap_to), 3);
	assert_int_equal(logfile_read(&log, 3, buf, sizeof(buf), &gap_to), 0);
	assert_int_equal(gap_to, 12);
	assert_int_equal(logfile_read(&log, 7, buf, sizeof(buf), &gap_to), 0);
	assert_int_equal(gap_to, 12);
	assert_int_equal(logfile_read(&log, 12, buf, sizeof(buf), &gap_to), 3);
	assert_memory_equal(buf, "xyz", 3);
	assert_int_equal(logfile_read(&log, 15, buf, sizeof(buf), &gap_to), 0);
	assert_int_equal(gap_to, 20);
	assert_int_equal(logfile_read(&log, 20, buf, sizeof(buf), &gap_to), 0);
	assert_int_equal(gap_to, 0);

	/* After a restart the place is found from the size and the last gap. */
	memcpy(saved, log.gaps, sizeof(saved));
	again = open_log(saved, 2);
	assert_int_equal(again.next, 20);
	assert_int_equal(again.durable, 20);
	logfile_close(&again);
	remove_log(&log);
}

/* A power cut may leave a shorter file than the gaps that were recorded: both come again. */
static void
test_torn_tail(void **state)
{
	static const struct logfile_gap gaps[] = { { 3, 10, 1 }, { 15, 20, 2 } };
	static const struct {
		off_t size;
		uint64_t next;
		size_t ngaps;
	} rows[] = {
		{ 15, 20, 2 },	/* nothing lost */
		{ 18, 20, 2 },
		{ 14, 14, 1 },	/* bytes before the second gap are missing: it will be told again */
		{ 11, 11, 1 },
		{ 3, 10, 1 },
		{ 2, 2, 0 },
		{ 0, 0, 0 },
		{ 25, 25, 2 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct logfile log = open_log(NULL, 0);
		struct logfile_gap gap;

		assert_int_equal(ftruncate(log.fd, rows[i].size), 0);
		logfile_close(&log);
		log = open_log(gaps, 2);
		assert_int_equal(log.next, rows[i].next);
		assert_int_equal(log.ngaps, rows[i].ngaps);
		/* and the same gap can be recorded again, in order */
		assert_int_equal(logfile_gap(&log, 30, 2, &gap), 0);
		assert_int_equal(gap.to, 30);
		remove_log(&log);
	}
}

static void
test_bad_gaps(void **state)
{
	static const struct logfile_gap bad[][2] = {
		{ { 3, 3, 1 }, { 5, 6, 1 } },
		{ { 3, 6, 1 }, { 6, 8, 1 } },
		{ { 5, 6, 1 }, { 1, 2, 1 } },
		{ { 1, LOGFILE_MAX + 1, 1 }, { 2, 3, 1 } },
	};
	struct logfile log = open_log(NULL, 0), other;

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(logfile_open(dirfd_, "h", true, bad[i], 2, &other), -EINVAL);
	assert_int_equal(logfile_open(dirfd_, "../h", true, NULL, 0, &other), -EINVAL);
	assert_int_equal(logfile_open(dirfd_, "missing", false, NULL, 0, &other), -ENOENT);
	assert_int_equal(symlinkat("w.h", dirfd_, "w.link"), 0);
	assert_int_equal(logfile_open(dirfd_, "link", true, NULL, 0, &other), -ELOOP);
	assert_int_equal(unlinkat(dirfd_, "w.link", 0), 0);
	remove_log(&log);
}

/* A write that finds no room leaves the file as it was: half a chunk never counts. */
static void
test_no_room(void **state)
{
	struct logfile log = open_log(NULL, 0);
	struct rlimit old, limit;
	char buf[8192];
	uint64_t gap_to;

	(void)state;
	memset(buf, 'x', sizeof(buf));
	assert_int_equal(logfile_append(&log, "before", 6), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(logfile_append(&log, buf, sizeof(buf)), -EFBIG);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(log.next, 6);
	assert_int_equal(lseek(log.fd, 0, SEEK_END), 6);
	assert_int_equal(logfile_append(&log, "after", 5), 0);
	assert_int_equal(logfile_read(&log, 0, buf, sizeof(buf), &gap_to), 11);
	assert_memory_equal(buf, "beforeafter", 11);
	remove_log(&log);
}

static void
test_trim_text(void **state)
{
	static const struct {
		const char *text;
		uint64_t left;
	} rows[] = {
		{ "", 0 }, { "abc", 3 }, { "ab\xc3\xa4", 4 }, { "ab\xc3", 2 }, { "a\xe2\x82\xac", 4 }, { "a\xe2\x82", 1 },
		{ "a\xe2", 1 }, { "\xf0\x9f\x98\x80", 4 }, { "x\xf0\x9f\x98", 1 }, { "x\xf0\x9f", 1 }, { "\xf0", 0 },
		{ "abcdef\xf0\x9f\x98\x80\xf0\x9f\x98", 10 }, { "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8", 6 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct logfile log = open_log(NULL, 0);

		assert_int_equal(logfile_append(&log, rows[i].text, strlen(rows[i].text)), 0);
		assert_int_equal(logfile_trim_text(&log), 0);
		assert_int_equal(log.next, rows[i].left);
		assert_int_equal(lseek(log.fd, 0, SEEK_END), (off_t)rows[i].left);
		remove_log(&log);
	}
}

static void
test_digest(void **state)
{
	static const size_t sizes[] = { 0, 1, 240, 241, 262144, 262145, 700000 };
	uint8_t *data = malloc(700000), got[16];
	struct logfile log = open_log(NULL, 0);
	XXH128_canonical_t want;

	(void)state;
	for (size_t i = 0; i < 700000; i++)
		data[i] = (uint8_t)(i * 7 + i / 256);
	assert_int_equal(logfile_append(&log, data, 700000), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		XXH128_canonicalFromHash(&want, XXH3_128bits(data, sizes[i]));
		assert_int_equal(logfile_digest(log.fd, sizes[i], got), 0);
		assert_memory_equal(got, want.digest, 16);
	}
	assert_int_equal(logfile_digest(log.fd, 700001, got), -EIO);
	free(data);
	remove_log(&log);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_place),
		cmocka_unit_test(test_append_read),
		cmocka_unit_test(test_gaps),
		cmocka_unit_test(test_torn_tail),
		cmocka_unit_test(test_bad_gaps),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_trim_text),
		cmocka_unit_test(test_digest),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
