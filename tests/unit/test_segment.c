/*
 * B71, B69: one file of the spool is not believed, and a write that fails leaves it as it was. Where it could go wrong:
 * segment_scan() and segment_read() over a file that was cut, flipped or swapped; segment_append() on a disk that is full
 * or breaks in the middle of a write.
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
#include "workerd/segment.h"

#define LEN	3000u

ssize_t writev(int fd, const struct iovec *iov, int n);

static char dir[] = "/dev/shm/test_segment.XXXXXX";
static int dirfd_;
static uint8_t text[SEGMENT_WRITE], buf[SEGMENT_BLOCK];
static int fail_errno;			/* of the next writev; -1 = it is short */

/* Stands before the C library's. */
ssize_t
writev(int fd, const struct iovec *iov, int n)
{
	int err = fail_errno;

	fail_errno = 0;
	if (err > 0) {
		errno = err;
		return -1;
	}
	return err < 0 ? write(fd, iov[0].iov_base, iov[0].iov_len) : syscall(SYS_writev, fd, iov, n);
}

/* Some blocks of different sizes from offset 100 on. */
static struct segment
make(const char *handle)
{
	static const size_t sizes[] = { 1, 700, 299, 2000 };
	struct segment seg;
	size_t done = 0;
	int fd = segment_create(dirfd_, handle, 100, WORK_GAP_DISK, &seg);

	assert_true(fd >= 0);
	for (size_t i = 0; i < COUNT(sizes); done += sizes[i++])
		assert_int_equal(segment_append(fd, &seg, text + done, sizes[i], 200 + done + sizes[i]), 0);
	close(fd);
	return seg;
}

static void
assert_same(const struct segment *a, const struct segment *b)
{
	assert_true(a->base == b->base && a->end == b->end && a->size == b->size && a->produced == b->produced &&
	    a->before == b->before && a->damaged == b->damaged);
}

static int
scan(const char *handle, uint64_t base, struct segment *seg)
{
	int fd = segment_open(dirfd_, handle, base), r = fd;

	if (fd >= 0) {
		r = segment_scan(fd, handle, base, seg);
		close(fd);
	}
	return r;
}

/* Every byte that can be had is the one that was written. Returns how many. */
static size_t
check_bytes(const char *handle, const struct segment *seg)
{
	struct segment_place place = { 0 };
	size_t got = 0;
	int fd = segment_open(dirfd_, handle, seg->base);

	for (uint64_t o = seg->base, at; o < seg->end; o++) {
		ssize_t n = segment_read(fd, seg, &place, o, buf, &at);

		if (n < 0)
			continue;
		assert_in_range(o, at, at + (uint64_t)n - 1);
		assert_memory_equal(buf + (o - at), text + (o - 100), 1);
		got++;
	}
	close(fd);
	return got;
}

static void
test_round_trip(void **state)
{
	struct segment made = make("a"), seg;

	assert_int_equal(scan("a", 100, &seg), 0);
	assert_same(&seg, &made);
	assert_int_equal(seg.end, 100 + LEN);
	assert_int_equal(seg.produced, 200 + LEN);
	assert_int_equal(seg.before, WORK_GAP_DISK);
	assert_int_equal(check_bytes("a", &seg), LEN);
	seg.before = WORK_GAP_SPOOL;
	assert_int_equal(segment_set_head(dirfd_, "a", &seg), 0);
	assert_int_equal(scan("a", 100, &made), 0);
	assert_int_equal(made.before, WORK_GAP_SPOOL);
	seg.produced = 1000000;
	assert_int_equal(segment_set_head(dirfd_, "a", &seg), 0);
	assert_int_equal(scan("a", 100, &made), 0);
	assert_int_equal(made.produced, 1000000);
	assert_int_equal(check_bytes("a", &made), LEN);
}

static void
test_most_in_one_write(void **state)
{
	struct segment seg, again;
	struct segment_place place = { 0 };
	uint64_t at;
	int fd = segment_create(dirfd_, "big", 0, 0, &seg);

	assert_int_equal(segment_append(fd, &seg, text, SEGMENT_WRITE, SEGMENT_WRITE), 0);
	assert_int_equal(seg.end, SEGMENT_WRITE);
	assert_int_equal(seg.size, sizeof(struct segment_head) + segment_cost(SEGMENT_WRITE));
	assert_int_equal(scan("big", 0, &again), 0);
	assert_same(&again, &seg);
	close(fd);
	fd = segment_open(dirfd_, "big", 0);
	assert_int_equal(segment_read(fd, &seg, &place, SEGMENT_WRITE - 1, buf, &at), SEGMENT_BLOCK);
	assert_memory_equal(buf, text + 3 * SEGMENT_BLOCK, SEGMENT_BLOCK);
	assert_int_equal(segment_read(fd, &seg, &place, 5, buf, &at), SEGMENT_BLOCK);	/* back to the front */
	assert_memory_equal(buf, text, SEGMENT_BLOCK);
	close(fd);
}

static void
test_wrong_name_or_base(void **state)
{
	struct segment seg;

	make("b");
	assert_int_equal(renameat(dirfd_, "w.b.0000000000000064", dirfd_, "w.c.0000000000000064"), 0);
	assert_int_equal(scan("c", 100, &seg), -EBADMSG);
	assert_int_equal(renameat(dirfd_, "w.c.0000000000000064", dirfd_, "w.b.0000000000000065"), 0);
	assert_int_equal(scan("b", 101, &seg), -EBADMSG);
	assert_int_equal(scan("b", 100, &seg), -ENOENT);
}

static void
test_cut_at_every_byte(void **state)
{
	struct segment made = make("cut"), seg;

	for (off_t size = (off_t)made.size; size >= 0; size--) {
		assert_int_equal(truncate("w.cut.0000000000000064", size), 0);
		if (scan("cut", 100, &seg) < 0) {
			assert_true(size < (off_t)sizeof(struct segment_head));
			continue;
		}
		assert_int_equal(seg.damaged, seg.size != (uint64_t)size);
		assert_int_equal(check_bytes("cut", &seg), seg.end - seg.base);
	}
}

static void
test_every_bit_flipped(void **state)
{
	struct segment made = make("flip"), seg;
	size_t lost = 0;

	for (uint64_t bit = 0; bit < made.size * 8; bit += 1 + bit % 3) {
		int fd = openat(dirfd_, "w.flip.0000000000000064", O_RDWR | O_CLOEXEC);
		uint8_t byte, bad;

		assert_int_equal(pread(fd, &byte, 1, (off_t)bit / 8), 1);
		bad = (uint8_t)(byte ^ 1u << bit % 8);
		assert_int_equal(pwrite(fd, &bad, 1, (off_t)bit / 8), 1);
		if (bit % 97 == 0 || bit / 8 < sizeof(struct segment_head) + sizeof(struct segment_block)) {
			if (scan("flip", 100, &seg) == 0)
				lost += LEN - check_bytes("flip", &seg);
			else
				lost += LEN;
			assert_true(lost > 0);
		}
		assert_int_equal(pwrite(fd, &byte, 1, (off_t)bit / 8), 1);
		close(fd);
	}
}

static void
test_a_failed_write_changes_nothing(void **state)
{
	static const int errors[] = { ENOSPC, EIO, EDQUOT, EROFS, -1 };

	for (size_t i = 0; i < COUNT(errors); i++) {
		struct segment seg, before, again;
		int fd = segment_create(dirfd_, "fail", 100, 0, &seg);

		assert_int_equal(segment_append(fd, &seg, text, 1000, 5000), 0);
		before = seg;
		fail_errno = errors[i];
		assert_int_equal(segment_append(fd, &seg, text + 1000, 1000, 5000), errors[i] > 0 ? -errors[i] : -ENOSPC);
		assert_same(&seg, &before);
		assert_int_equal(scan("fail", 100, &again), 0);
		assert_same(&again, &before);
		assert_int_equal(segment_append(fd, &seg, text + 1000, 2000, 5000), 0);
		assert_int_equal(check_bytes("fail", &seg), 3000);
		close(fd);
	}
}

static void
test_things_that_are_no_file(void **state)
{
	assert_int_equal(mkdirat(dirfd_, "w.d.0000000000000000", 0700), 0);
	assert_int_equal(mkfifoat(dirfd_, "w.f.0000000000000000", 0600), 0);
	assert_int_equal(symlinkat("/etc/passwd", dirfd_, "w.s.0000000000000000"), 0);
	assert_true(segment_open(dirfd_, "d", 0) < 0);
	assert_int_equal(segment_open(dirfd_, "f", 0), -EINVAL);	/* and does not block */
	assert_int_equal(segment_open(dirfd_, "s", 0), -ELOOP);
	unlinkat(dirfd_, "w.d.0000000000000000", AT_REMOVEDIR);
}

static void
test_names(void **state)
{
	static const char *const bad[] = { "", "w.", "w..0000000000000000", "w.a", "w.a.", "w.a.000000000000000", "journal",
		"w.a.000000000000000G", "w.a.000000000000000A", "x.a.0000000000000000", "w.a.b.0000000000000000",
		"w.a/b.0000000000000000", "w.a.00000000000000000", "bad.0" };
	char handle[HANDLE_SIZE], name[SEGMENT_NAME], longest[HANDLE_SIZE];
	uint64_t base;

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(segment_name_parse(bad[i], handle, &base), -EINVAL);
	memset(longest, 'x', HANDLE_MAX_LEN);
	longest[HANDLE_MAX_LEN] = '\0';
	segment_name(name, longest, 0xfedcba9876543210u);
	assert_int_equal(segment_name_parse(name, handle, &base), 0);
	assert_string_equal(handle, longest);
	assert_true(base == 0xfedcba9876543210u);
}

static int
setup(void **state)
{
	srand(1);
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)rand();
	if (mkdtemp(dir) == NULL || chdir(dir) < 0)
		return -1;
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd_ < 0 ? -1 : 0;
}

static int
teardown(void **state)
{
	char cmd[128];

	close(dirfd_);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", dir);
	return system(cmd);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_most_in_one_write),
		cmocka_unit_test(test_wrong_name_or_base),
		cmocka_unit_test(test_cut_at_every_byte),
		cmocka_unit_test(test_every_bit_flipped),
		cmocka_unit_test(test_a_failed_write_changes_nothing),
		cmocka_unit_test(test_things_that_are_no_file),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
