/*
 * The record of a workload: ring, gaps, digest, and taking it over from a process that was killed.
 *
 * Bytes could be lost or doubled (B31) between the read from the pipe and the new head in record_fill(), between hashing and
 * freeing in record_ack() and record_drop(), and in record_adopt(). b31_killed_anywhere() kills a reader around every system
 * call and compares.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/unit/unit.h"
#include "workerd/record.h"

#define RING	(16u * RECORD_PAGE)

static struct record_spares spares;

static uint8_t
byte_at(uint64_t offset)
{
	return (uint8_t)(offset * 2654435761u >> 13);
}

static void
put(int fd, uint64_t from, size_t len)
{
	static uint8_t buf[1 << 20];

	for (size_t i = 0; i < len; i++)
		buf[i] = byte_at(from + i);
	assert_int_equal(write(fd, buf, len), len);
}

static void
check_ring(const struct record *rec)
{
	for (uint64_t o = rec->h->tail; o < rec->h->head; o++)
		assert_int_equal(*record_at(rec, o), byte_at(o));
}

static void
check_digest(struct record *rec)
{
	_cleanup_free_ uint8_t *all = malloc(rec->h->head + 1);
	uint8_t got[16];
	XXH128_canonical_t want;

	for (uint64_t o = 0; o < rec->h->head; o++)
		all[o] = byte_at(o);
	XXH128_canonicalFromHash(&want, XXH3_128bits(all, rec->h->head));
	assert_true(record_digest(rec, got));
	assert_memory_equal(got, want.digest, 16);
}

static void
pipe_of(int p[2])
{
	assert_int_equal(pipe2(p, O_CLOEXEC | O_NONBLOCK), 0);
	assert_true(fcntl(p[0], F_SETPIPE_SZ, 1 << 18) > 0);
}

static struct record
fresh(void)
{
	struct record rec;

	assert_int_equal(record_new(&spares, "h1", RING, &rec), 0);
	return rec;
}

static void
fills_and_wraps(void **state)
{
	static const size_t sizes[] = { 1, 2, 15, 16, 17, 4095, 4096, 4097, 20000, 3, 65536, 9, 1 };
	struct record rec = fresh();
	uint64_t written = 0;
	int p[2];

	pipe_of(p);
	assert_int_equal(record_fill(&rec, p[0], 100), 0);
	for (size_t round = 0; round < 40; round++) {
		size_t n = sizes[round % COUNT(sizes)];

		put(p[1], written, n);
		written += n;
		while (rec.h->head < written) {
			if (record_room(&rec) == 0)
				record_ack(&rec, rec.h->head);
			assert_true(record_fill(&rec, p[0], 1 << 20) > 0);
			check_ring(&rec);
		}
		if (round % 3 == 0)
			record_ack(&rec, rec.h->head - rec.h->head % 7);
	}
	check_digest(&rec);
	record_free(NULL, &rec);
	close(p[0]);
	close(p[1]);
}

static void
full_ring_takes_nothing(void **state)
{
	struct record rec = fresh();
	int p[2], there = 0;

	pipe_of(p);
	put(p[1], 0, RING + 100);
	assert_int_equal(record_fill(&rec, p[0], 1 << 20), RING);
	assert_int_equal(record_room(&rec), 0);
	assert_int_equal(record_fill(&rec, p[0], 1 << 20), 0);
	assert_int_equal(ioctl(p[0], FIONREAD, &there), 0);
	assert_int_equal(there, 100);
	record_ack(&rec, 40);
	assert_int_equal(record_fill(&rec, p[0], 1 << 20), 40);
	check_ring(&rec);
	record_ack(&rec, UINT64_MAX);	/* clamped */
	assert_int_equal(rec.h->tail, RING + 40);
	record_ack(&rec, 5);		/* below what is gone: ignored */
	assert_int_equal(rec.h->tail, RING + 40);
	record_free(NULL, &rec);
	close(p[0]);
	close(p[1]);
}

/* B32: what is dropped is counted, once, and never what was sent. */
static void
gaps_are_counted(void **state)
{
	struct record rec = fresh();
	int p[2];

	pipe_of(p);
	put(p[1], 0, 1000);
	assert_int_equal(record_fill(&rec, p[0], 4096), 1000);
	record_drop(&rec, 100, 0);
	assert_int_equal(rec.h->tail, 100);
	assert_int_equal(rec.h->gaps, 1);
	assert_int_equal(rec.h->gap_bytes, 100);
	record_drop(&rec, 150, 0);	/* goes on where the last one ended: the same gap */
	assert_int_equal(rec.h->gaps, 1);
	assert_int_equal(rec.h->gap_bytes, 150);
	record_drop(&rec, 300, 300);	/* all of it was sent */
	assert_int_equal(rec.h->gaps, 1);
	record_drop(&rec, 500, 400);	/* half of it was */
	assert_int_equal(rec.h->gaps, 2);
	assert_int_equal(rec.h->gap_bytes, 250);
	record_count_gap(&rec, 60, 500);	/* the hub had got no more: what was sent is lost, the rest was counted */
	assert_int_equal(rec.h->gaps, 1);
	assert_int_equal(rec.h->gap_bytes, 500);
	record_count_gap(&rec, 20, 500);
	assert_int_equal(rec.h->gap_bytes, 500);
	record_ack(&rec, 700);
	record_count_gap(&rec, 0, 700);	/* a hub that has gone back: it had them */
	assert_int_equal(rec.h->gap_bytes, 500);
	record_drop(&rec, UINT64_MAX, 0);
	assert_int_equal(rec.h->gaps, 2);
	assert_int_equal(rec.h->gap_bytes, 800);
	assert_int_equal(rec.h->tail, 1000);
	check_digest(&rec);		/* of all bytes, dropped or not */
	record_free(NULL, &rec);
	close(p[0]);
	close(p[1]);
}

static void
spares_are_clean(void **state)
{
	struct record rec = fresh(), again;
	struct launch_report rep = { .flags = LAUNCH_REPORT_STARTED, .started.pid = 7 };
	int p[2], fd = rec.fd;

	pipe_of(p);
	put(p[1], 0, 30000);
	assert_int_equal(record_fill(&rec, p[0], 1 << 20), 30000);
	assert_int_equal(pwrite(rec.report, &rep, sizeof(rep), 0), sizeof(rep));
	record_free(&spares, &rec);
	assert_int_equal(rec.fd, -1);
	assert_int_equal(record_new(&spares, "h2", RING, &again), 0);
	assert_int_equal(again.fd, fd);
	assert_int_equal(again.h->head, 0);
	record_report(&again, &rep);
	assert_int_equal(rep.flags, 0);
	put(p[1], 0, 500);
	assert_int_equal(record_fill(&again, p[0], 1 << 20), 500);
	check_digest(&again);
	record_free(NULL, &again);
	close(p[0]);
	close(p[1]);
}

/* Takes over a copy of the descriptor, as a new workerd would. */
static struct record
adopt(const struct record *rec, int pipe)
{
	struct record next;

	assert_int_equal(record_adopt(fcntl(rec->fd, F_DUPFD_CLOEXEC, 3), fcntl(rec->report, F_DUPFD_CLOEXEC, 3), "h1", pipe, &next), 0);
	return next;
}

/* Lets a stopped child go on to its stop-th beginning or end of a system call, then so many instructions. True: it lives. */
static bool
advance(pid_t pid, int stops, int steps)
{
	int status = 0;

	for (int i = 0; i < stops + steps; i++) {
		assert_int_equal(ptrace(i < stops ? PTRACE_SYSCALL : PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status)) {
			assert_int_equal(WEXITSTATUS(status), 0);
			return false;
		}
		assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	}
	return true;
}

/*
 * One read of len bytes at ring position `at`, killed at that place; then more output comes, equal to what was there, and a
 * new process takes over. Returns false when the child had ended before.
 */
static bool
killed_at(uint64_t at, size_t len, int stops, int steps)
{
	struct record rec = fresh(), next;
	int p[2], status;
	pid_t pid;
	bool alive;

	pipe_of(p);
	while (rec.h->head < at) {	/* get there by ordinary reads */
		size_t n = at - rec.h->head < 30000 ? (size_t)(at - rec.h->head) : 30000;

		put(p[1], rec.h->head, n);
		assert_int_equal(record_fill(&rec, p[0], n), n);
		record_ack(&rec, rec.h->head);
	}
	put(p[1], at, len);
	pid = fork();
	if (pid == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
			_exit(9);
		raise(SIGSTOP);
		record_fill(&rec, p[0], len);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	alive = advance(pid, stops, steps);
	if (alive) {
		kill(pid, SIGKILL);
		assert_int_equal(waitpid(pid, &status, 0), pid);
	}
	put(p[1], at + len, len);	/* more came meanwhile: the number of waiting bytes alone says nothing */
	next = adopt(&rec, p[0]);
	assert_true(next.h->head >= at && next.h->head <= at + len);
	while (next.h->head < at + 2 * len)
		assert_true(record_fill(&next, p[0], 2 * len) > 0);
	check_ring(&next);
	check_digest(&next);
	assert_int_equal(record_fill(&next, p[0], 1), 0);
	record_free(NULL, &next);
	record_free(&spares, &rec);
	close(p[0]);
	close(p[1]);
	return alive;
}

/* Before and after every system call of a read, and at instructions between them. */
static void
b31_killed_anywhere(void **state)
{
	static const struct { uint64_t at; size_t len; } reads[] = {
		{ 0, 1 }, { 100, 15 }, { RING - 8, 16 }, { RING - 4, 12 }, { RING + RING / 2, RING / 2 },
	};
	static const int steps[] = { 0, 1, 3, 10, 20, 40, 60, 100, 150, 200, 400, 1000 };

	for (size_t r = 0; r < COUNT(reads); r++) {
		int stops = 0;

		while (killed_at(reads[r].at, reads[r].len, stops, 0)) {
			for (size_t s = 1; s < COUNT(steps); s++)
				killed_at(reads[r].at, reads[r].len, stops, steps[s]);
			assert_true(++stops < 50);
		}
		assert_true(stops >= 4);	/* two system calls at least */
	}
}

/* What is in the spool leaves the ring without being acknowledged or lost; the digest is of all of it, in a later life, too. */
static void
spooled_bytes_are_freed(void **state)
{
	struct record rec = fresh(), next;
	int p[2];

	pipe_of(p);
	put(p[1], 0, 1000);
	assert_int_equal(record_fill(&rec, p[0], 4096), 1000);
	record_release(&rec, 400);
	record_ack(&rec, 300);
	assert_int_equal(rec.h->tail, 400);
	assert_int_equal(rec.h->acked, 300);
	assert_int_equal(rec.h->gaps, 0);
	assert_int_equal(record_room(&rec), RING - 600);
	record_release(&rec, 100);		/* never back */
	assert_int_equal(rec.h->tail, 400);
	record_count_gap(&rec, 300, 350);	/* a block on the disk could not be read */
	record_count_gap(&rec, 350, 350);
	assert_int_equal(rec.h->gaps, 1);
	assert_int_equal(rec.h->gap_bytes, 50);
	record_release(&rec, UINT64_MAX);
	assert_int_equal(rec.h->tail, 1000);
	record_give_pages(&rec);
	next = adopt(&rec, p[0]);
	assert_int_equal(next.h->tail, 1000);
	assert_int_equal(next.h->hole, 0);
	check_digest(&next);
	record_free(NULL, &next);
	close(p[0]);
	close(p[1]);
}

static void
adoption_keeps_everything(void **state)
{
	struct record rec = fresh(), next;
	int p[2];

	pipe_of(p);
	put(p[1], 0, 50000);
	assert_int_equal(record_fill(&rec, p[0], 1 << 20), 50000);
	record_ack(&rec, 10);
	record_drop(&rec, 20, 15);
	rec.h->flags |= RECORD_F_CANCEL;
	rec.h->lost.at[0].to = 0;	/* killed while it was changed */
	next = adopt(&rec, p[0]);
	assert_int_equal(next.h->gap_bytes, 5);
	record_count_gap(&next, 10, 20);
	assert_int_equal(next.h->gap_bytes, 5);
	assert_int_equal(next.h->head, 50000);
	assert_int_equal(next.h->tail, 20);
	assert_int_equal(next.h->acked, 10);
	assert_int_equal(next.h->flags, RECORD_F_CANCEL);
	check_digest(&next);
	record_free(NULL, &next);
	record_free(NULL, &rec);
	close(p[0]);
	close(p[1]);
}

/* B71: nothing in it is believed. */
static void
damaged_records_are_refused(void **state)
{
	struct record rec = fresh(), next;
	struct record_head good = *rec.h;
	int p[2];

	pipe_of(p);
	put(p[1], 0, 5000);
	assert_int_equal(record_fill(&rec, p[0], 1 << 20), 5000);
	good = *rec.h;
#define BAD(change)							\
	do {								\
		*rec.h = good;						\
		change;							\
		assert_int_equal(record_adopt(rec.fd, rec.report, "h1", p[0], &next), -EBADMSG);	\
	} while (0)
	BAD(rec.h->magic++);
	BAD(rec.h->version++);
	BAD(rec.h->ring += RECORD_PAGE);
	BAD(rec.h->ring = 0);
	BAD(rec.h->ring = UINT64_MAX);
	BAD(rec.h->handle[0] = 'x');
	BAD(memset(rec.h->handle, 'x', sizeof(rec.h->handle)));
	BAD(rec.h->tail = rec.h->head + 1);
	BAD(rec.h->head += RING);
	BAD(rec.h->acked = 1);
	BAD(rec.h->digest_now = 2);
	BAD(rec.h->digest[rec.h->digest_now].offset = rec.h->head + 1);
	BAD((rec.h->tail = rec.h->acked = 10));
	BAD((rec.h->intent_head = rec.h->head, rec.h->intent_len = RING));
	BAD((rec.h->intent_head = rec.h->head, rec.h->intent_len = 5, lseek(rec.fd, 0, SEEK_SET)));
	BAD((rec.h->flags |= RECORD_F_TREE_GONE, rec.h->drain_to = rec.h->head - 1));
	*rec.h = good;
	assert_int_equal(record_adopt(rec.fd, rec.report, "other", p[0], &next), -EBADMSG);
	assert_int_equal(record_adopt(p[0], rec.report, "h1", p[0], &next), -EBADMSG);
	assert_int_equal(ftruncate(rec.fd, RECORD_PAGE), 0);
	assert_int_equal(record_adopt(rec.fd, rec.report, "h1", p[0], &next), -EBADMSG);
	assert_int_equal(ftruncate(rec.fd, RECORD_PAGE + RING), 0);
	record_free(NULL, &rec);
	close(p[0]);
	close(p[1]);
}

/* A digest that cannot be carried over is given up, the bytes are not. */
static void
damaged_digest_is_given_up(void **state)
{
	struct record rec = fresh();
	XXH3_state_t *st;
	int p[2];

	pipe_of(p);
	put(p[1], 0, 40000);
	assert_int_equal(record_fill(&rec, p[0], 1 << 20), 40000);
	st = &rec.h->digest[rec.h->digest_now].state;
	for (int i = 0; i < 7; i++) {
		XXH3_state_t good = *st;
		struct record next;
		uint8_t xxh3[16];

		switch (i) {
		case 0: st->bufferedSize = 257; break;
		case 1: st->nbStripesSoFar = 1 << 20; break;
		case 2: st->secretLimit++; break;
		case 3: st->totalLen++; break;
		case 4: st->useSeed = 1; break;
		case 5: st->nbStripesPerBlock++; break;
		default: rec.h->digest_version++;
		}
		next = adopt(&rec, p[0]);
		assert_false(record_digest(&next, xxh3));
		check_ring(&next);
		record_free(NULL, &next);
		rec.h->flags = 0;
		*st = good;
	}
	record_free(NULL, &rec);
	close(p[0]);
	close(p[1]);
}

static void
reports_are_checked(void **state)
{
	struct record rec = fresh();
	struct launch_report rep;

	for (uint32_t flags = 0; flags < 16; flags++) {
		bool good = flags == 0 || flags == LAUNCH_REPORT_STARTED || flags == LAUNCH_REPORT_FAILED ||
		    (flags & ~LAUNCH_REPORT_NETWORK) == (LAUNCH_REPORT_STARTED | LAUNCH_REPORT_EXITED) ||
		    flags == (LAUNCH_REPORT_STARTED | LAUNCH_REPORT_NETWORK);

		rep = (struct launch_report){ .flags = flags, .started.pid = 5 };
		assert_int_equal(pwrite(rec.report, &rep, sizeof(rep), 0), sizeof(rep));
		record_report(&rec, &rep);
		assert_int_equal(rep.flags, good ? flags : 0);
		assert_int_equal(rep.started.pid, good ? 5 : 0);
	}
	record_free(NULL, &rec);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fills_and_wraps),
		cmocka_unit_test(full_ring_takes_nothing),
		cmocka_unit_test(gaps_are_counted),
		cmocka_unit_test(spooled_bytes_are_freed),
		cmocka_unit_test(spares_are_clean),
		cmocka_unit_test(b31_killed_anywhere),
		cmocka_unit_test(adoption_keeps_everything),
		cmocka_unit_test(damaged_records_are_refused),
		cmocka_unit_test(damaged_digest_is_given_up),
		cmocka_unit_test(reports_are_checked),
	};
	int r = cmocka_run_group_tests(tests, NULL, NULL);

	record_spares_done(&spares);
	return r;
}
