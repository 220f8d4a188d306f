/*
 * The audit record: every change of a line is seen, a power cut costs the line that was being written, a full disk none that was there,
 * and a link or a file of another is not written to.
 * B88 (root writes through what was planted): a symbolic link, a second name, a file others may write.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>

#include "common/audit.h"
#include "tests/unit/unit.h"

static char dir[64], path[96], old[96];
static int dirfd = -1;

static int
setup(void **state)
{
	snprintf(dir, sizeof(dir), "/tmp/edgeward-unit-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/audit", dir);
	snprintf(old, sizeof(old), "%s/audit.old", dir);
	dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return dirfd < 0;
}

static int
teardown(void **state)
{
	unlink(path);
	unlink(old);
	close(dirfd);
	return rmdir(dir);
}

static size_t
content(const char *file, char *buf, size_t size)
{
	FILE *f = fopen(file, "re");
	size_t n = f == NULL ? 0 : fread(buf, 1, size - 1, f);

	if (f != NULL)
		fclose(f);
	buf[n] = '\0';
	return n;
}

/* The line from which on the chain is broken, 0 = none. */
static unsigned
broken(const char *text, struct audit_head *head)
{
	*head = audit_first;
	for (unsigned n = 1; *text != '\0'; n++) {
		size_t len = strcspn(text, "\n");

		if (text[len] != '\n' || audit_check(head, text, len) < 0)
			return n;
		text += len + 1;
	}
	return 0;
}

static struct audit
make(unsigned lines)
{
	struct audit a;

	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &a), 0);
	for (unsigned i = 0; i < lines; i++)
		assert_int_equal(audit_append(&a, "verb number=%u", i), 0);
	return a;
}

/* Ended between the two steps of a rotation, the new file is empty: what comes then continues the old one all the same. */
static void
test_interrupted_rotation(void **state)
{
	struct audit a = make(3), b;

	close(a.fd);
	assert_int_equal(renameat(dirfd, "audit", dirfd, "audit.old"), 0);
	for (int empty = 0; empty < 2; empty++) {	/* before it is made, and after */
		if (empty)
			assert_int_equal(close(openat(dirfd, "audit", O_WRONLY | O_CREAT | O_TRUNC, 0640)), 0);
		assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &b), 0);
		assert_int_equal(b.head.seq, 4);
		close(b.fd);
	}
	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &b), 0);
	assert_int_equal(b.head.seq, 4);	/* told once */
	close(b.fd);
}

static void
test_chain(void **state)
{
	struct audit a = make(3), b;
	struct audit_head head;
	char text[4096], changed[4096];
	size_t n = content(path, text, sizeof(text));

	close(a.fd);
	assert_int_equal(broken(text, &head), 0);
	assert_int_equal(head.seq, 3);
	assert_string_equal(head.digest, a.head.digest);
	/* Any byte changed is seen, at its line or the next. */
	for (size_t i = 0; i < n; i++) {
		memcpy(changed, text, n + 1);
		changed[i] ^= 1;
		assert_int_not_equal(broken(changed, &head), 0);
	}
	/* A line taken out; two exchanged. */
	snprintf(changed, sizeof(changed), "%s", strchr(text, '\n') + 1);
	assert_int_equal(broken(changed, &head), 1);
	/* The next process goes on where this one ended. */
	b = make(1);
	assert_int_equal(b.head.seq, 4);
	close(b.fd);
	content(path, text, sizeof(text));
	assert_int_equal(broken(text, &head), 0);
	assert_int_equal(head.seq, 4);
}

static void
test_power_cut(void **state)
{
	struct audit a = make(2);
	struct audit_head head;
	char text[4096];
	size_t n = content(path, text, sizeof(text));

	/* Whatever of the last line is there, what comes next stands behind the last whole one. */
	for (size_t cut = strcspn(text, "\n") + 1; cut < n; cut++) {
		char now[4096];
		struct audit b;

		assert_int_equal(ftruncate(a.fd, 0), 0);
		assert_int_equal(pwrite(a.fd, text, cut, 0), (ssize_t)cut);
		assert_int_equal(ftruncate(a.fd, (off_t)cut), 0);
		b = make(1);
		assert_int_equal(b.head.seq, 2);
		close(b.fd);
		content(path, now, sizeof(now));
		assert_int_equal(broken(now, &head), 0);
	}
	close(a.fd);
}

static void
test_foreign_content(void **state)
{
	struct audit a;
	char line[5 * AUDIT_LINE];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);

	assert_int_equal(write(fd, "something else\n", 15), 15);
	close(fd);
	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &a), -EBADMSG);
	/* Nor is anything cut off what has no line at all. */
	memset(line, 'x', sizeof(line));
	fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
	assert_int_equal(write(fd, line, sizeof(line)), sizeof(line));
	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &a), -EBADMSG);
	assert_int_equal(lseek(fd, 0, SEEK_END), sizeof(line));
	close(fd);
}

static void
test_full_disk(void **state)
{
	struct audit a = make(2);
	struct rlimit was, limit;
	struct audit_head head, before = a.head;
	char text[4096], after[4096];

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	limit = (struct rlimit){ content(path, text, sizeof(text)) + 20, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(audit_append(&a, "one too many") < 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	content(path, after, sizeof(after));
	assert_string_equal(after, text);
	assert_memory_equal(&a.head, &before, sizeof(before));
	assert_int_equal(audit_append(&a, "there is room again"), 0);
	content(path, text, sizeof(text));
	assert_int_equal(broken(text, &head), 0);
	assert_int_equal(head.seq, 3);
	close(a.fd);
}

/* Half a line that cannot be taken away again: nothing is written behind it, and once it can be, the chain is whole. */
static void
test_full_disk_that_keeps_it(void **state)
{
	struct audit a = { .fd = memfd_create("audit", MFD_CLOEXEC | MFD_ALLOW_SEALING), .head = audit_first };
	struct rlimit was, limit;
	struct audit_head head;
	char text[4096];
	off_t size;
	int sealed = a.fd, whole;

	assert_int_equal(audit_append(&a, "first"), 0);
	assert_int_equal(fcntl(a.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	limit = (struct rlimit){ (rlim_t)lseek(a.fd, 0, SEEK_END) + 20, was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(audit_append(&a, "half of this") < 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	size = lseek(a.fd, 0, SEEK_END);
	assert_int_equal(size, limit.rlim_cur);
	assert_true(audit_append(&a, "behind it") < 0);
	assert_int_equal(lseek(a.fd, 0, SEEK_END), size);
	/* The same content where it can be cut off. */
	assert_int_equal(pread(sealed, text, sizeof(text), 0), size);
	whole = a.fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
	assert_int_equal(write(whole, text, (size_t)size), size);
	assert_int_equal(audit_append(&a, "second"), 0);
	text[content(path, text, sizeof(text))] = '\0';
	assert_int_equal(broken(text, &head), 0);
	assert_int_equal(head.seq, 2);
	close(whole);
	close(sealed);
}

static void
test_new_file(void **state)
{
	struct audit a = make(3), b;
	struct audit_head head;
	char text[4096];

	close(a.fd);
	assert_int_equal(audit_open(dirfd, "audit", 100, &b), 0);
	assert_int_equal(audit_append(&b, "goes on"), 0);
	assert_int_equal(b.head.seq, 5);
	close(b.fd);
	content(path, text, sizeof(text));
	assert_non_null(strstr(text, a.head.digest));
	assert_int_equal(broken(text, &head), 0);
	assert_int_equal(head.seq, 5);
	content(old, text, sizeof(text));
	assert_int_equal(broken(text, &head), 0);
	assert_int_equal(head.seq, 3);
}

static void
test_b88_planted(void **state)
{
	struct audit a = make(1);
	char other[96];

	close(a.fd);
	snprintf(other, sizeof(other), "%s/other", dir);
	assert_int_equal(link(path, other), 0);
	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &a), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink(other, path), 0);
	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &a), -ELOOP);
	assert_int_equal(rename(other, path), 0);
	assert_int_equal(chmod(path, 0660), 0);
	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &a), -EPERM);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(audit_open(dirfd, "audit", 1 << 20, &a), -EPERM);
}

static void
test_text(void **state)
{
	struct audit_head head = audit_first;
	char buf[AUDIT_LINE], text[AUDIT_TEXT + 2];

	assert_int_equal(audit_compose(&head, "1.000", "two\nlines", buf), -EINVAL);
	assert_int_equal(audit_compose(&head, "1.000", "\x1b[31m", buf), -EINVAL);
	memset(text, 'x', sizeof(text));
	text[AUDIT_TEXT + 1] = '\0';
	assert_int_equal(audit_compose(&head, "1.000", text, buf), -EINVAL);
	text[AUDIT_TEXT] = '\0';
	assert_true(audit_compose(&head, "1.000", text, buf) > 0);
	assert_int_equal(head.seq, 1);
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = { T(test_chain), T(test_power_cut), T(test_foreign_content), T(test_full_disk), T(test_full_disk_that_keeps_it), T(test_new_file),
		T(test_interrupted_rotation), T(test_b88_planted), cmocka_unit_test(test_text) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
