/* The chain of audit records. Writers are root's; edgectl reads and verifies. See audit.h for the form. */
#include "common/audit.h"

#include <errno.h>
#include <fcntl.h>
#include <sha2.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/monotime.h"
#include "common/parse.h"

#define CONTINUES	"continues "

const struct audit_head audit_first = { 0, "0000000000000000000000000000000000000000000000000000000000000000" };

static bool
is_digest(const char *s)
{
	return strspn(s, "0123456789abcdef") >= AUDIT_HEX;
}

static void
digest_of(const char *before, const char *line, size_t len, char ret[AUDIT_HEX + 1])
{
	SHA2_CTX ctx;

	SHA256Init(&ctx);
	SHA256Update(&ctx, (const uint8_t *)before, AUDIT_HEX);
	SHA256Update(&ctx, (const uint8_t *)line, len);
	SHA256End(&ctx, ret);
}

int
audit_compose(struct audit_head *head, const char *time, const char *text, char buf[AUDIT_LINE])
{
	char digest[AUDIT_HEX + 1];
	int n;

	for (const char *p = text; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			return -EINVAL;
	n = snprintf(buf, AUDIT_LINE, "%llu %s %s", (unsigned long long)head->seq + 1, time, text);
	if (strlen(text) > AUDIT_TEXT || n < 0 || n + AUDIT_HEX + 2 >= AUDIT_LINE)
		return -EINVAL;
	digest_of(head->digest, buf, (size_t)n, digest);
	snprintf(buf + n, (size_t)(AUDIT_LINE - n), " %s\n", digest);
	head->seq++;
	memcpy(head->digest, digest, sizeof(digest));
	return n + AUDIT_HEX + 2;
}

int
audit_check(struct audit_head *head, const char *line, size_t len)
{
	char copy[AUDIT_LINE], *p = copy, *seq_text, digest[AUDIT_HEX + 1];
	const char *before = head->digest;
	size_t body = len - AUDIT_HEX - 1;
	uint64_t seq;

	if (len >= sizeof(copy) || len < AUDIT_HEX + 6 || memchr(line, '\0', len) != NULL || line[body] != ' ')
		return -EBADMSG;
	memcpy(copy, line, body);
	copy[body] = '\0';	/* the digest is none of the text */
	seq_text = strsep(&p, " ");
	if (!is_digest(line + body + 1) || parse_u64(seq_text, 1, UINT64_MAX, &seq) < 0 || strsep(&p, " ") == NULL || p == NULL)
		return -EBADMSG;
	if (head->seq == 0 && strncmp(p, CONTINUES, sizeof(CONTINUES) - 1) == 0) {
		before = p + sizeof(CONTINUES) - 1;
		if (strlen(before) != AUDIT_HEX || !is_digest(before))
			return -EBADMSG;
	} else if (seq != head->seq + 1) {
		return -EILSEQ;
	}
	digest_of(before, line, body, digest);
	if (memcmp(digest, line + body + 1, AUDIT_HEX) != 0)
		return -EILSEQ;
	head->seq = seq;
	memcpy(head->digest, digest, sizeof(digest));
	return 0;
}

/* The last whole line. What stands behind it, without a newline, was being written when the power went. */
static int
find_head(int fd, off_t size, struct audit_head *ret_head)
{
	char tail[2 * AUDIT_LINE];
	off_t from = size > (off_t)sizeof(tail) ? size - (off_t)sizeof(tail) : 0;
	ssize_t n = pread(fd, tail, sizeof(tail), from);
	const char *end = n < 0 ? NULL : memrchr(tail, '\n', (size_t)n), *begin;
	size_t len;
	uint64_t seq;

	if (n >= 0 && end == NULL && from > 0)
		return -EBADMSG;
	if (n < 0 || ftruncate(fd, end == NULL ? 0 : from + (end - tail) + 1) < 0)
		return -errno;
	if (end == NULL) {
		*ret_head = audit_first;
		return 0;
	}
	begin = memrchr(tail, '\n', (size_t)(end - tail));
	begin = begin == NULL ? tail : begin + 1;
	len = (size_t)(end - begin);
	if (len < AUDIT_HEX + 6 || !is_digest(end - AUDIT_HEX) || end[-AUDIT_HEX - 1] != ' ')
		return -EBADMSG;
	tail[end - tail] = '\0';
	memcpy(ret_head->digest, end - AUDIT_HEX, AUDIT_HEX + 1);
	tail[begin - tail + (ptrdiff_t)strcspn(begin, " ")] = '\0';
	if (parse_u64(begin, 1, UINT64_MAX - 1, &seq) < 0)
		return -EBADMSG;
	ret_head->seq = seq;
	return 0;
}

static int
open_file(int dirfd, const char *name, off_t *ret_size)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || st.st_uid != geteuid() || (st.st_mode & 022) != 0)
		return -EPERM;
	*ret_size = st.st_size;
	return take_fd(&fd);
}

/* An empty file goes on where the old one ended, if there is one: also when we were ended between these steps. */
static int
go_on(int dirfd, const char *old, struct audit *audit)
{
	off_t size;
	_cleanup_close_ int fd = faccessat(dirfd, old, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? open_file(dirfd, old, &size) : -1;
	int r = fd < 0 ? 0 : find_head(fd, size, &audit->head);

	return r < 0 || audit->head.seq == 0 ? r : audit_append(audit, CONTINUES "%s", audit->head.digest);
}

int
audit_open(int dirfd, const char *name, uint64_t max, struct audit *ret_audit)
{
	_cleanup_close_ int fd = -1;
	struct audit audit = { .head = audit_first };
	char old[64];
	off_t size;
	int r;

	snprintf(old, sizeof(old), "%s.old", name);
	fd = r = open_file(dirfd, name, &size);
	if (r >= 0)
		r = find_head(fd, size, &audit.head);
	if (r >= 0 && (uint64_t)size > max) {
		if (renameat(dirfd, name, dirfd, old) < 0)
			return -errno;
		close(fd);
		fd = r = open_file(dirfd, name, &size);
		audit.head = audit_first;
	}
	audit.fd = fd;
	if (r >= 0 && audit.head.seq == 0)
		r = go_on(dirfd, old, &audit);
	if (r < 0)
		return r;
	audit.fd = take_fd(&fd);
	audit.most = max * 16;
	*ret_audit = audit;
	return 0;
}

int
audit_append(struct audit *audit, const char *fmt, ...)
{
	struct audit_head next = audit->head;
	int64_t now = monotime_wall_ns() / 1000000;
	char line[AUDIT_LINE], stamp[32], text[AUDIT_TEXT];
	off_t before;
	va_list ap;
	int n, r;

	if (audit->torn && ftruncate(audit->fd, audit->whole) < 0)
		return -errno;
	audit->torn = false;
	before = lseek(audit->fd, 0, SEEK_END);
	if (audit->most != 0 && before > 0 && (uint64_t)before > audit->most)
		return -EFBIG;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(stamp, sizeof(stamp), "%lld.%03d", (long long)now / 1000, (int)(now % 1000));
	n = audit_compose(&next, stamp, text, line);
	if (n < 0 || before < 0)
		return n < 0 ? n : -errno;
	errno = EIO;	/* for a short write */
	if (write(audit->fd, line, (size_t)n) == n && fdatasync(audit->fd) == 0) {
		audit->head = next;
		return 0;
	}
	r = -errno;
	/* What is not whole would spoil the next line. If it cannot be taken away either, there is none until it can. */
	audit->whole = before;
	audit->torn = ftruncate(audit->fd, before) < 0;
	return r;
}
