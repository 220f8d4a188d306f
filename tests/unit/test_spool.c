/*
 * B42, B32, B71: bounds over everything in the directory, gaps with reasons, files of an earlier life. Where it could go wrong:
 * spool.c (which segment holds an offset, what a removed or damaged one leaves behind), spooldir.c (what counts, what is kept
 * aside, what is removed).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proto/ipc/work.h"
#include "tests/unit/unit.h"
#include "workerd/spool.h"

#define M	(1u << 20)

static char base[] = "/dev/shm/test_spool.XXXXXX";
static int statefd;
static struct spooldir d;
static struct conf conf;
static uint8_t text[SEGMENT_WRITE];
static int fail_errno;			/* of each writev; 0 = none */

/* Stands before the C library's. */
ssize_t
writev(int fd, const struct iovec *iov, int n)
{
	errno = fail_errno;
	return fail_errno != 0 ? -1 : syscall(SYS_writev, fd, iov, n);
}

/* The byte that is at offset in every stream here. */
static uint8_t
byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 2654435761u >> 13);
}

static ssize_t
put(struct spool *sp, uint64_t from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		text[i] = byte_at(from + i);
	return spool_write(sp, from, text, len, WORK_GAP_DISK, from + len + 10);
}

/* Fills [from, to); the offset reached. */
static uint64_t
fill(struct spool *sp, uint64_t from, uint64_t to)
{
	while (from < to) {
		ssize_t n = put(sp, from, to - from < sizeof(text) ? (size_t)(to - from) : sizeof(text));

		if (n < 0)
			break;
		from += (uint64_t)n;
	}
	return from;
}

/* Reads [from, to): the bytes are right; returns the number of bytes that are gaps of reason. */
static uint64_t
gone(struct spool *sp, uint64_t from, uint64_t to, uint32_t reason)
{
	struct retained at;
	uint64_t lost = 0;
	bool damaged;

	while (from < to) {
		if (!spool_at(sp, from, &at, &damaged))
			return lost + to - from;
		if (at.len == 0) {
			assert_int_equal(at.reason, reason);
			assert_true(at.gap_to > from);
			lost += at.gap_to - from;
			from = at.gap_to;
			continue;
		}
		for (uint64_t i = 0; i < at.len; i += 97)
			assert_int_equal(at.data[i], byte_at(from + i));
		from += at.len;
	}
	return lost;
}

static uint64_t
on_disk(void)
{
	char cmd[160], line[32] = "";
	FILE *f;

	snprintf(cmd, sizeof(cmd), "find %s/spool -type f -printf '%%s\\n' | awk '{s+=$1} END {print s+0}'", base);
	f = popen(cmd, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	pclose(f);
	return strtoull(line, NULL, 10);
}

static void
damage(const char *handle, uint64_t seg, off_t pos)
{
	char name[SEGMENT_NAME];
	int fd;

	segment_name(name, handle, seg);
	fd = openat(d.fd, name, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, "damage", 6, pos), 6);
	close(fd);
}

static void
again(void)
{
	spooldir_close(&d);
	spooldir_open(&d, statefd, &conf);
}

static void
test_write_read_ack(void **state)
{
	struct spool *sp = spool_new(&d, "a");

	assert_int_equal(fill(sp, 0, M), M);
	assert_int_equal(spool_from(sp), 0);
	assert_int_equal(spool_end(sp), M);
	assert_int_equal(spool_produced(sp), M + 10);
	assert_int_equal(on_disk(), sp->used);
	assert_int_equal(gone(sp, 0, M, 0), 0);
	spool_ack(sp, M / 2);
	assert_true(spool_from(sp) > 0 && spool_from(sp) <= M / 2);
	assert_int_equal(on_disk(), sp->used);
	assert_int_equal(gone(sp, M / 2, M, 0), 0);
	spool_ack(sp, M);
	assert_int_equal(sp->n, 0);
	assert_int_equal(on_disk(), 0);
	assert_int_equal(d.used, 0);
	assert_int_equal(fill(sp, M, M + 5000), M + 5000);	/* and goes on */
	assert_int_equal(gone(sp, M, M + 5000, 0), 0);
	spool_delete(sp);
	assert_int_equal(on_disk() + d.used, 0);
}

/* A quota of the disk's is no bound of ours, for which the oldest would go. */
static void
test_a_quota_is_the_disks(void **state)
{
	struct spool *sp = spool_new(&d, "q");

	assert_int_equal(fill(sp, 0, M / 2), M / 2);
	fail_errno = EDQUOT;
	assert_int_equal(put(sp, M / 2, 1000), -EDQUOT);
	assert_int_equal(d.error, -EDQUOT);
	fail_errno = 0;
	d.retry = monotime_now();
	assert_int_equal(put(sp, M / 2, 1000), 1000);
	spool_delete(sp);
}

static void
test_bound_of_one(void **state)
{
	struct spool *sp = spool_new(&d, "b");
	uint64_t to = fill(sp, 0, 10 * M), from = 0, end = 0;

	assert_in_range(to, 2 * M - 2 * SEGMENT_BLOCK, 2 * M);
	assert_true(on_disk() <= 2 * M);
	assert_int_equal(put(sp, to, 1), -ENOBUFS);
	/* The oldest goes for what is new; a later life knows why, too. */
	assert_true(spool_drop(sp, WORK_GAP_SPOOL, &from, &end));
	assert_int_equal(from, 0);
	assert_int_equal(spool_from(sp), end);
	to = fill(sp, to, 10 * M);
	assert_true(on_disk() <= 2 * M);
	assert_int_equal(gone(sp, 0, to, WORK_GAP_SPOOL), end);
	spool_free(sp);
	again();
	sp = spool_adopt(&d, "b", UINT64_MAX);
	assert_int_equal(gone(sp, 0, to, WORK_GAP_SPOOL), end);
	spool_delete(sp);
}

static void
test_bound_of_all(void **state)
{
	struct spool *sp[4];
	uint64_t sum = 0;

	for (unsigned i = 0; i < 4; i++) {
		char handle[8];

		snprintf(handle, sizeof(handle), "all%u", i);
		sp[i] = spool_new(&d, handle);
		sum += fill(sp[i], 0, 3 * M);
	}
	assert_in_range(sum, 5 * M - 4 * SEGMENT_WRITE, 5 * M);
	assert_true(on_disk() <= 5 * M && d.used <= 5 * M);
	for (unsigned i = 0; i < 4; i++)
		spool_delete(sp[i]);
	assert_int_equal(d.used, 0);
}

static void
test_holes_and_reasons(void **state)
{
	struct spool *sp = spool_new(&d, "h");

	fill(sp, 1000, 5000);
	fill(sp, 9000, 12000);			/* put() says: the disk */
	assert_int_equal(spool_holes(sp), 1);
	assert_int_equal(gone(sp, 1000, 12000, WORK_GAP_DISK), 4000);
	spool_free(sp);
	again();
	sp = spool_adopt(&d, "h", UINT64_MAX);
	assert_int_equal(gone(sp, 1000, 12000, WORK_GAP_DISK), 4000);
	assert_int_equal(gone(sp, 12000, 12010, 0), 10);	/* nothing is there */
	spool_delete(sp);
}

static void
test_damage_in_the_middle(void **state)
{
	struct spool *sp = spool_new(&d, "dam");
	uint64_t to = fill(sp, 0, M), second = sp->seg[1].base, third = sp->seg[2].base;

	assert_true(sp->n >= 3);
	damage("dam", second, 1000);
	assert_int_equal(gone(sp, 0, to, WORK_GAP_LOST), third - second);
	assert_int_equal(on_disk(), d.used);
	assert_int_equal(faccessat(d.fd, "bad.0", F_OK, 0), 0);
	spool_delete(sp);
	assert_int_equal(d.used, d.aside[0]);
	again();
	assert_true(d.used > 0 && d.aside[0] > 0);	/* it counts in the next life, too */
}

/* workerd was killed while it wrote: what the last file lacks is still in memory, and nothing is damaged. */
static void
test_cut_while_it_was_written(void **state)
{
	static const struct {
		off_t size;
		uint64_t held;
		bool aside;
	} cases[] = { { 0, 0, false }, { 50, 0, false }, { sizeof(struct segment_head) + 20, 0, false },
		{ 90000, SEGMENT_BLOCK, false }, { 90000, SEGMENT_BLOCK + 1, true }, { 90000, UINT64_MAX, true }, { 0, 1, true } };

	unlinkat(d.fd, "bad.0", 0);
	again();
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct spool *sp = spool_new(&d, "cut");
		char name[SEGMENT_NAME];
		int fd;

		fill(sp, 0, 100000);
		spool_free(sp);
		segment_name(name, "cut", 0);
		fd = openat(d.fd, name, O_WRONLY | O_CLOEXEC);
		assert_true(fd >= 0 && ftruncate(fd, cases[i].size) == 0);
		close(fd);
		again();
		sp = spool_adopt(&d, "cut", cases[i].held);
		assert_int_equal(spool_end(sp), cases[i].size < 90000 ? 0 : SEGMENT_BLOCK);
		assert_int_equal(gone(sp, 0, spool_end(sp), 0), 0);
		spool_delete(sp);
		assert_int_equal(faccessat(d.fd, "bad.0", F_OK, 0), cases[i].aside ? 0 : -1);
		unlinkat(d.fd, "bad.0", 0);
		again();
		assert_int_equal(on_disk() + d.used, 0);
	}
}

static void
test_aside_is_bounded(void **state)
{
	for (unsigned i = 0; i < 12; i++) {
		struct spool *sp = spool_new(&d, "aside");

		assert_int_equal(fill(sp, 0, 300000), 300000);
		damage("aside", 0, 2);
		spool_free(sp);
		again();
		sp = spool_adopt(&d, "aside", UINT64_MAX);
		assert_non_null(sp);
		spool_delete(sp);
		assert_true(on_disk() <= 3 * 300000 && d.used <= 5 * M);
	}
	assert_int_equal(faccessat(d.fd, "bad.2", F_OK, 0), 0);
	assert_int_equal(faccessat(d.fd, "bad.3", F_OK, 0), -1);
	for (unsigned i = 0; i < 3; i++) {
		char name[8];

		snprintf(name, sizeof(name), "bad.%u", i);
		unlinkat(d.fd, name, 0);
	}
	again();
	assert_int_equal(d.used, 0);
}

static void
test_adopting_what_is_no_spool(void **state)
{
	struct spool *sp;
	int fd;

	assert_int_equal(mkfifoat(d.fd, "w.x.0000000000000000", 0600), 0);
	assert_int_equal(symlinkat("/etc/passwd", d.fd, "w.x.0000000000000001"), 0);
	assert_int_equal(mkdirat(d.fd, "w.x.0000000000000002", 0700), 0);
	fd = openat(d.fd, "w.x.0000000000000003", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, 4ll << 30), 0);	/* sparse */
	close(fd);
	close(openat(d.fd, "w.x.0000000000000004", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	close(openat(d.fd, "foreign", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	again();
	sp = spool_adopt(&d, "x", UINT64_MAX);
	assert_non_null(sp);
	assert_int_equal(sp->n, 0);
	assert_int_equal(fill(sp, 0, 5000), 5000);
	assert_int_equal(gone(sp, 0, 5000, 0), 0);
	spool_delete(sp);
	assert_false(spooldir_sweep(&d, 10));
	assert_int_equal(faccessat(d.fd, "foreign", F_OK, 0), 0);
	unlinkat(d.fd, "w.x.0000000000000000", 0);
	unlinkat(d.fd, "w.x.0000000000000001", 0);
	unlinkat(d.fd, "w.x.0000000000000002", AT_REMOVEDIR);
	unlinkat(d.fd, "foreign", 0);
	unlinkat(d.fd, "bad.0", 0);
	unlinkat(d.fd, "bad.1", 0);
}

static void
test_sweep_takes_what_nobody_knows(void **state)
{
	for (unsigned i = 0; i < 30; i++) {
		char handle[8];
		struct spool *sp;

		snprintf(handle, sizeof(handle), "s%u", i);
		sp = spool_new(&d, handle);
		fill(sp, 0, 100);
		spool_free(sp);
	}
	again();
	assert_int_equal(d.nfound, 30);
	spool_free(spool_adopt(&d, "s7", UINT64_MAX));
	assert_true(spooldir_sweep(&d, 10));
	while (spooldir_sweep(&d, 10))
		;
	assert_int_equal(d.nfound, 0);
	again();
	assert_int_equal(d.nfound, 1);
	assert_string_equal(d.found[0].handle, "s7");
	spool_delete(spool_adopt(&d, "s7", UINT64_MAX));
}

static void
test_a_directory_that_is_not_fit(void **state)
{
	struct spool *sp = spool_new(&d, "gone");

	assert_int_equal(fill(sp, 0, 1000), 1000);
	spool_free(sp);
	assert_int_equal(fchmod(d.fd, 0777), 0);
	again();
	assert_true(d.off && d.fd < 0);
	chmod("spool", 0700);
	again();
	assert_true(!d.off && d.fd >= 0);
	/* Taken away under us: an error, not the end; what lies in its place later is taken. */
	sp = spool_adopt(&d, "gone", UINT64_MAX);
	assert_int_equal(rename("spool", "elsewhere"), 0);
	assert_int_equal(system("rm -rf elsewhere"), 0);
	assert_int_equal(gone(sp, 0, 1000, 0), 1000);
	assert_int_equal(put(sp, 1000, 10), -ENOENT);
	assert_int_equal(put(sp, 1000, 10), -EAGAIN);
	assert_int_equal(mkdir("spool", 0700), 0);
	d.retry = monotime_now();
	assert_int_equal(put(sp, 1000, 10), -ENOENT);
	d.retry = monotime_now();
	assert_int_equal(put(sp, 1000, 10), 10);
	spool_delete(sp);
}

static void
test_low_water_mark(void **state)
{
	struct spool *sp = spool_new(&d, "low");

	d.low = UINT64_MAX / 2;
	assert_int_equal(put(sp, 0, 10), -ENOSPC);
	assert_int_equal(put(sp, 0, 10), -EAGAIN);
	d.low = 0;
	d.retry = monotime_now();
	assert_int_equal(put(sp, 0, 10), 10);
	assert_int_equal(d.error, 0);
	spool_delete(sp);
}

static int
setup(void **state)
{
	conf = (struct conf){ .work_spool = 2 * M, .work_spool_total = 5 * M };
	if (mkdtemp(base) == NULL || chdir(base) < 0)
		return -1;
	statefd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	spooldir_open(&d, statefd, &conf);
	return d.fd < 0 ? -1 : 0;
}

static int
teardown(void **state)
{
	char cmd[128];

	spooldir_close(&d);
	close(statefd);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", base);
	return system(cmd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_read_ack),
		cmocka_unit_test(test_a_quota_is_the_disks),
		cmocka_unit_test(test_bound_of_one),
		cmocka_unit_test(test_bound_of_all),
		cmocka_unit_test(test_holes_and_reasons),
		cmocka_unit_test(test_damage_in_the_middle),
		cmocka_unit_test(test_cut_while_it_was_written),
		cmocka_unit_test(test_aside_is_bounded),
		cmocka_unit_test(test_adopting_what_is_no_spool),
		cmocka_unit_test(test_sweep_takes_what_nobody_knows),
		cmocka_unit_test(test_a_directory_that_is_not_fit),
		cmocka_unit_test(test_low_water_mark),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
