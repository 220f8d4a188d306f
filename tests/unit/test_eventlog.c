/*
 * The record of events: numbers go on over restarts, two files bound it, a line that was cut costs itself alone, hostile text stays one line.
 * B66 (a log without an end fills the disk): common/eventlog.c append().
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/eventlog.h"
#include "tests/unit/unit.h"

static char dir[64];
static int dirfd = -1;

static int
set_up(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/test_eventlog.XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd < 0 ? -1 : 0;
}

static int
tear_down(void **state)
{
	fchmod(dirfd, 0700);
	unlinkat(dirfd, EVENTLOG_FILE, 0);
	unlinkat(dirfd, EVENTLOG_OLD, 0);
	close(dirfd);
	return rmdir(dir);
}

struct seen {
	uint64_t first, last;
	size_t n;
	struct ctl_event e;
};

static int
see(const struct ctl_event *e, void *ctx)
{
	struct seen *s = ctx;

	assert_true(s->n == 0 || e->seq > s->last);
	if (s->n++ == 0)
		s->first = e->seq;
	s->last = e->seq;
	s->e = *e;
	return 0;
}

static struct seen
read_all(struct eventlog *log, uint64_t from, size_t max)
{
	struct seen s = { .n = 0 };

	assert_int_equal(eventlog_read(log, from, max, see, &s), 0);
	return s;
}

static void
goes_on_over_restarts(void **state)
{
	struct eventlog log;
	struct seen s;

	eventlog_open(&log, dirfd);
	eventlog_add(&log, "connected", "", "to %s", "10.0.0.1:443");
	eventlog_add(&log, "ended", "h-1", "exited %d", 7);
	eventlog_close(&log);
	eventlog_add(&log, "late", "", "nothing is open: it is not kept");
	eventlog_open(&log, dirfd);
	eventlog_add(&log, "start", "", "again");
	s = read_all(&log, 1, 100);
	assert_int_equal(s.n, 3);
	assert_int_equal(s.last, 3);
	assert_string_equal(s.e.text, "again");
	s = read_all(&log, 2, 1);
	assert_int_equal(s.first, 2);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.e.kind, "ended");
	assert_string_equal(s.e.subject, "h-1");
	assert_string_equal(s.e.text, "exited 7");
	assert_int_equal(read_all(&log, 4, 100).n, 0);
	eventlog_close(&log);
}

static void
is_bounded(void **state)
{
	struct eventlog log;
	struct stat st;
	struct seen s;

	eventlog_open(&log, dirfd);
	for (unsigned i = 0; i < 5000; i++)
		eventlog_add(&log, "ended", "handle", "number %u", i);
	assert_int_equal(fstatat(dirfd, EVENTLOG_FILE, &st, 0), 0);
	assert_true(st.st_size <= EVENTLOG_MAX);
	assert_int_equal(fstatat(dirfd, EVENTLOG_OLD, &st, 0), 0);
	assert_true(st.st_size <= EVENTLOG_MAX);
	s = read_all(&log, 1, SIZE_MAX);
	assert_int_equal(s.last, 5000);
	assert_int_equal(s.last - s.first + 1, s.n);	/* without a hole */
	assert_true(s.n > 300);
	eventlog_close(&log);
}

static int64_t now_ns;

static int64_t
mock_now(void)
{
	return now_ns;
}

/* A peer that does the same, or is refused, again and again costs a few lines a minute, and the count is told. */
static void
repetitions_are_counted(void **state)
{
	struct eventlog log;
	struct seen s;

	now_ns = 1000000000;
	monotime_set_source(mock_now, mock_now);
	eventlog_open(&log, dirfd);
	eventlog_add(&log, "start", "", "before all that");
	for (unsigned i = 0; i < 10000; i++) {
		eventlog_add(&log, "attach", "h", "ada: true");
		eventlog_add(&log, "attach-end", "h", "ada: command exited, exit code 0, 0 bytes shown");
		eventlog_add(&log, "attach-refused", "h", "ada: another reason each time, %u", i);
		eventlog_add(&log, "service", "10.0.0.1:80", "refused for user %u", i);
	}
	eventlog_add(&log, "attach", "other", "ada: true");
	s = read_all(&log, 1, SIZE_MAX);
	assert_int_equal(s.first, 1);
	assert_int_equal(s.n, 1 + 2 + 4 + 4 + 1);
	now_ns += EVENTLOG_SAME_MS * 1000000LL;
	s = read_all(&log, s.last + 1, SIZE_MAX);
	assert_int_equal(s.n, 4);
	s = read_all(&log, s.first, 1);
	assert_string_equal(s.e.kind, "attach");
	assert_string_equal(s.e.text, "9999 times more: ada: true");
	eventlog_add(&log, "attach", "h", "ada: true");		/* news again */
	s = read_all(&log, 1, SIZE_MAX);
	assert_int_equal(s.n, 1 + 2 + 4 + 4 + 1 + 4 + 1);
	eventlog_add(&log, "attach", "h", "ada: true");
	eventlog_close(&log);
	eventlog_open(&log, dirfd);
	s = read_all(&log, 1, SIZE_MAX);
	assert_string_equal(s.e.text, "1 times more: ada: true");
	eventlog_close(&log);
	monotime_set_source(NULL, NULL);
}

struct kept {
	unsigned files, attaches, others;
	uint64_t last_file, last_attach;
};

static int
count_kinds(const struct ctl_event *e, void *ctx)
{
	struct kept *k = ctx;

	if (strcmp(e->kind, "file-get") == 0) {
		assert_true(k->files++ == 0 || e->seq == k->last_file + 2);	/* the newest of it, none left out between two */
		k->last_file = e->seq;
	} else if (strcmp(e->kind, "attach") == 0) {
		k->attaches++;
		k->last_attach = e->seq;
	} else {
		k->others++;
	}
	return 0;
}

/* A hub that opens thousands of different files, or runs different commands, pushes out what was written of these, and nothing else. */
static void
a_flood_pushes_out_itself(void **state)
{
	static const char *const rare[] = { "start", "connected", "disconnected", "link", "policy", "upgrade", "refused" };
	struct kept k = { .files = 0 };
	struct eventlog log;
	struct stat st;

	eventlog_open(&log, dirfd);
	for (unsigned i = 0; i < 10 * COUNT(rare); i++)
		eventlog_add(&log, rare[i % COUNT(rare)], "s", "number %u, and a text as long as such texts are", i);
	for (unsigned i = 0; i < 20000; i++) {
		eventlog_add(&log, "file-get", "handle", "uid 0 at the hub: a/file/of/a/name/%u", i);
		eventlog_add(&log, "attach", "handle", "uid 0 at the hub: command %u", i);
	}
	assert_int_equal(eventlog_read(&log, 1, SIZE_MAX, count_kinds, &k), 0);
	assert_int_equal(k.others, 10 * COUNT(rare));
	assert_true(k.files > 150 && k.attaches > 150);
	assert_int_equal(k.last_attach, log.next - 1);
	assert_int_equal(fstatat(dirfd, EVENTLOG_OLD, &st, 0), 0);
	assert_true(st.st_size <= EVENTLOG_MAX);
	assert_int_equal(fstatat(dirfd, EVENTLOG_NEW, &st, 0), -1);
	eventlog_close(&log);
}

/* Ended between the two names: what stands in both files is told once. And with no room for the third file the newest stay all the same. */
static void
turning_over_can_fail(void **state)
{
	struct eventlog log;
	struct seen s;

	eventlog_open(&log, dirfd);
	for (unsigned i = 0; i < 100; i++)
		eventlog_add(&log, "start", "", "number %u", i);
	eventlog_close(&log);
	assert_int_equal(linkat(dirfd, EVENTLOG_FILE, dirfd, EVENTLOG_OLD, 0), 0);
	eventlog_open(&log, dirfd);
	s = read_all(&log, 1, SIZE_MAX);
	assert_int_equal(s.n, 100);
	assert_int_equal(s.last, 100);
	assert_int_equal(unlinkat(dirfd, EVENTLOG_OLD, 0), 0);
	assert_int_equal(mkdirat(dirfd, EVENTLOG_NEW, 0700), 0);
	for (unsigned i = 0; i < 5000; i++)
		eventlog_add(&log, "start", "", "number %u", i);
	s = read_all(&log, 1, SIZE_MAX);
	assert_int_equal(s.last, 5100);
	assert_int_equal(s.last - s.first + 1, s.n);
	assert_true(s.n > 300);
	assert_int_equal(unlinkat(dirfd, EVENTLOG_NEW, AT_REMOVEDIR), 0);
	eventlog_close(&log);
}

static enum { GOES, STAYS, STAYS_FULL } stubborn;	/* what the file "events" does when it shall go */

int
unlinkat(int at, const char *name, int flags)
{
	if (stubborn != GOES && strcmp(name, EVENTLOG_FILE) == 0) {
		errno = EBUSY;
		return -1;
	}
	return (int)syscall(SYS_unlinkat, at, name, flags);
}

int
openat(int at, const char *name, int flags, ...)
{
	mode_t mode = 0;
	va_list ap;

	if (stubborn == STAYS_FULL && strcmp(name, EVENTLOG_FILE) == 0 && (flags & O_TRUNC) != 0) {
		errno = EPERM;
		return -1;
	}
	if ((flags & O_CREAT) != 0) {
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		va_end(ap);
	}
	return (int)syscall(SYS_openat, at, name, flags, mode);
}

/* Where the full file cannot be removed, and perhaps not even emptied, its events are told once all the same, and after a restart. */
static void
a_file_that_cannot_go_is_told_once(void **state)
{
	struct eventlog log;
	struct stat st;
	struct seen s;
	uint64_t last;

	for (unsigned how = STAYS; how <= STAYS_FULL; how++) {
		eventlog_open(&log, dirfd);
		stubborn = how;
		for (unsigned i = 0; i < 3000; i++) {
			eventlog_add(&log, "start", "", "round %u, number %u", how, i);
			if (i % 10 == 0)
				(void)read_all(&log, 1, SIZE_MAX);	/* see() looks at the numbers */
		}
		last = log.next - 1;
		s = read_all(&log, 1, SIZE_MAX);
		assert_true(s.n > 300 && s.last <= last);
		assert_int_equal(s.last - s.first + 1, s.n);
		if (how == STAYS)
			assert_int_equal(s.last, last);
		eventlog_close(&log);
		eventlog_open(&log, dirfd);
		assert_int_equal(read_all(&log, 1, SIZE_MAX).n, s.n);
		assert_int_equal(fstatat(dirfd, EVENTLOG_FILE, &st, 0), 0);
		assert_true(st.st_size <= EVENTLOG_MAX);
		stubborn = GOES;
		eventlog_close(&log);
	}
	eventlog_open(&log, dirfd);
	eventlog_add(&log, "start", "", "it goes again");
	s = read_all(&log, 1, SIZE_MAX);
	assert_string_equal(s.e.text, "it goes again");
	eventlog_close(&log);
}

static void
a_cut_line_costs_itself(void **state)
{
	static const char cut[] = "1 5 start - one\n2 6 en";
	int fd = openat(dirfd, EVENTLOG_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	struct eventlog log;
	struct seen s;

	assert_int_equal(write(fd, cut, sizeof(cut) - 1), sizeof(cut) - 1);
	close(fd);
	eventlog_open(&log, dirfd);
	eventlog_add(&log, "start", "", "swallowed by the cut line");
	eventlog_add(&log, "start", "", "whole");
	s = read_all(&log, 1, 100);
	assert_int_equal(s.first, 1);
	assert_string_equal(s.e.text, "whole");
	eventlog_close(&log);
}

static int
count_one(const struct ctl_event *e, void *ctx)
{
	++*(size_t *)ctx;
	return 0;
}

static size_t
count_all(struct eventlog *log)
{
	size_t n = 0;

	assert_int_equal(eventlog_read(log, 1, SIZE_MAX, count_one, &n), 0);
	return n;
}

/* One whose number the disk has spoiled hides none of those behind it, now and after a restart. */
static void
a_spoiled_number_hides_nothing(void **state)
{
	static const char spoiled[] = "9999999 5 start - one\n";
	struct eventlog log;
	int fd;

	eventlog_open(&log, dirfd);
	eventlog_add(&log, "start", "", "before");
	fd = openat(dirfd, EVENTLOG_FILE, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_int_equal(write(fd, spoiled, sizeof(spoiled) - 1), sizeof(spoiled) - 1);
	close(fd);
	for (unsigned i = 0; i < 10; i++)
		eventlog_add(&log, "start", "", "behind it, number %u", i);
	assert_int_equal(count_all(&log), 12);
	eventlog_close(&log);
	eventlog_open(&log, dirfd);
	eventlog_add(&log, "start", "", "the last");
	assert_int_equal(count_all(&log), 13);
	eventlog_close(&log);
}

static void
hostile_text_stays_one_line(void **state)
{
	char text[1000];
	struct eventlog log;
	struct seen s;

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	memcpy(text, "a\nb\r\033[31m\x7f", 10);
	eventlog_open(&log, dirfd);
	eventlog_add(&log, "two words", "../\n", "%s", text);
	s = read_all(&log, 1, 100);
	assert_int_equal(s.n, 1);
	assert_string_equal(s.e.kind, "two?words");
	assert_string_equal(s.e.subject, "..??");
	assert_int_equal(strlen(s.e.text), sizeof(s.e.text) - 1);
	assert_null(strpbrk(s.e.text, "\n\r\033\x7f"));
	eventlog_close(&log);
}

static void
lines(void **state)
{
	static const char *const bad[] = { "", "1", "1 2 k s", "0 2 k s t", "x 2 k s t", "1 -2 k s t", "1 2 k! s t", "1 2 k s/ t", "1 2  s t",
		"1 2 k s \001", "18446744073709551615 2 k s t", "1 2 kkkkkkkkkkkkkkkkkkkkkkkkk s t" };
	struct ctl_event e;

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(eventlog_parse(bad[i], strlen(bad[i]), &e), -EBADMSG);
	assert_int_equal(eventlog_parse("9 7 k - ", 8, &e), 0);
	assert_int_equal(e.seq, 9);
	assert_int_equal(e.at, 7);
	assert_string_equal(e.subject, "");
	assert_string_equal(e.text, "");
}

static void
nothing_open_is_no_error(void **state)
{
	struct eventlog zero = { 0 }, none;
	int ro;

	eventlog_add(NULL, "a", "", "b");
	eventlog_add(&zero, "a", "", "b");
	assert_int_equal(eventlog_read(NULL, 1, 1, see, NULL), 0);
	eventlog_open(&none, -1);
	eventlog_add(&none, "a", "", "b");
	assert_int_equal(none.next, 2);
	assert_int_equal(read_all(&none, 1, 10).n, 0);
	/* A directory in which nothing can be made: the numbers go on. */
	ro = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	eventlog_open(&none, ro);
	eventlog_add(&none, "a", "", "b");
	assert_int_equal(none.next, 2);
	eventlog_close(&none);
	close(ro);
}

#define TEST(f)	cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int
main(void)
{
	const struct CMUnitTest tests[] = { TEST(goes_on_over_restarts), TEST(is_bounded), TEST(repetitions_are_counted), TEST(a_flood_pushes_out_itself),
		TEST(turning_over_can_fail), TEST(a_file_that_cannot_go_is_told_once), TEST(a_cut_line_costs_itself), TEST(a_spoiled_number_hides_nothing),
		TEST(hostile_text_stays_one_line), TEST(lines), TEST(nothing_open_is_no_error) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
