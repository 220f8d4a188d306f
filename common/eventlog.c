#include "common/eventlog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/monotime.h"
#include "common/parse.h"

/* ---- a line: NUMBER NANOSECONDS KIND SUBJECT TEXT; "-" for no subject ---- */

/* The next word, at most size - 1 bytes of it; false when there is none or it is longer. */
static bool
take_word(const char **p, const char *end, char *ret, size_t size)
{
	const char *space = memchr(*p, ' ', (size_t)(end - *p));
	size_t len = space != NULL ? (size_t)(space - *p) : 0;

	if (len == 0 || len >= size)
		return false;
	memcpy(ret, *p, len);
	ret[len] = '\0';
	*p = space + 1;
	return true;
}

static bool
is_word(const char *s)
{
	return s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-?")] == '\0';
}

static bool
is_text(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
			return false;
	return true;
}

int
eventlog_parse(const char *line, size_t len, struct ctl_event *ret_event)
{
	const char *p = line, *end = line + len;
	struct ctl_event e = { 0 };
	char seq[24], at[24];
	uint64_t ns;

	if (len >= EVENTLOG_LINE || memchr(line, '\0', len) != NULL || !take_word(&p, end, seq, sizeof(seq)) ||
	    !take_word(&p, end, at, sizeof(at)) || !take_word(&p, end, e.kind, sizeof(e.kind)) ||
	    !take_word(&p, end, e.subject, sizeof(e.subject)) || (size_t)(end - p) >= sizeof(e.text) || !is_text(p, (size_t)(end - p)) ||
	    !is_word(e.kind) || !is_word(e.subject) || parse_u64(seq, 1, UINT64_MAX - 1, &e.seq) < 0 || parse_u64(at, 0, INT64_MAX, &ns) < 0)
		return -EBADMSG;
	if (strcmp(e.subject, "-") == 0)
		memset(e.subject, 0, sizeof(e.subject));
	e.at = (int64_t)ns;
	memcpy(e.text, p, (size_t)(end - p));
	*ret_event = e;
	return 0;
}

/* What is read back must be one line of five fields. */
static void
clean(char *s, bool word)
{
	for (; *s != '\0'; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f || (word && !is_word((const char[]){ *s, '\0' })))
			*s = '?';
}

/* ---- the files ---- */

static int
each(const struct eventlog *log, const char *name, uint64_t from, size_t *max, int (*tell)(const struct ctl_event *e, void *ctx), void *ctx)
{
	_cleanup_free_ uint8_t *data = NULL;
	const char *p, *end, *nl;
	struct ctl_event e;
	size_t len;
	int r = 0;

	if (fd_read_file(log->dirfd, name, EVENTLOG_MAX + EVENTLOG_LINE, &data, &len) < 0)
		return 0;
	p = (const char *)data;
	for (end = p + len; r == 0 && *max > 0 && (nl = memchr(p, '\n', (size_t)(end - p))) != NULL; p = nl + 1) {
		if (eventlog_parse(p, (size_t)(nl - p), &e) < 0 || e.seq < from)
			continue;
		(*max)--;
		r = tell(&e, ctx);
	}
	return r;
}

int
eventlog_read(const struct eventlog *log, uint64_t from, size_t max, int (*tell)(const struct ctl_event *e, void *ctx), void *ctx)
{
	int r;

	if (log == NULL || log->dirfd < 0 || from >= log->next)
		return 0;
	r = each(log, EVENTLOG_OLD, from, &max, tell, ctx);
	return r != 0 ? r : each(log, EVENTLOG_FILE, from, &max, tell, ctx);
}

static int
take_last(const struct ctl_event *e, void *ctx)
{
	struct eventlog *log = ctx;

	if (e->seq >= log->next)
		log->next = e->seq + 1;
	return 0;
}

static void
open_file(struct eventlog *log)
{
	struct stat st;
	char last = '\n';

	log->fd = openat(log->dirfd, EVENTLOG_FILE, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (log->fd >= 0 && (fstat(log->fd, &st) < 0 || !S_ISREG(st.st_mode)))
		close(take_fd(&log->fd));
	/* What a power cut left of a line must not swallow the next one. */
	if (log->fd >= 0 && st.st_size > 0 && pread(log->fd, &last, 1, st.st_size - 1) == 1 && last != '\n')
		st.st_size += write(log->fd, "\n", 1) == 1;
	log->size = log->fd >= 0 && st.st_size < EVENTLOG_MAX ? (uint32_t)st.st_size : EVENTLOG_MAX;
}

void
eventlog_open(struct eventlog *log, int dirfd)
{
	size_t all = SIZE_MAX;

	*log = (struct eventlog){ .dirfd = dirfd, .fd = -1, .next = 1 };
	if (dirfd < 0)
		return;
	each(log, EVENTLOG_OLD, 0, &all, take_last, log);
	each(log, EVENTLOG_FILE, 0, &all, take_last, log);
	open_file(log);
}

void
eventlog_close(struct eventlog *log)
{
	if (log->fd >= 0)
		close(take_fd(&log->fd));
	log->dirfd = -1;
}

static void
append(struct eventlog *log, const char *line, size_t len)
{
	ssize_t n;

	if (log->dirfd < 0)
		return;
	if (log->fd >= 0 && log->size + len > EVENTLOG_MAX) {
		close(take_fd(&log->fd));
		renameat(log->dirfd, EVENTLOG_FILE, log->dirfd, EVENTLOG_OLD);
	}
	if (log->fd < 0)
		open_file(log);
	if (log->fd < 0)
		return;
	/* A line that was cut, for want of room, would swallow the next one. */
	n = write(log->fd, line, len);
	if (n > 0 && (size_t)n < len && ftruncate(log->fd, log->size) < 0)
		close(take_fd(&log->fd));
	else if (n > 0 && (size_t)n == len)
		log->size += (uint32_t)len;
}

void
eventlog_add(struct eventlog *log, const char *kind, const char *subject, const char *fmt, ...)
{
	char line[EVENTLOG_LINE], k[sizeof(((struct ctl_event *)0)->kind)], s[sizeof(((struct ctl_event *)0)->subject)];
	char text[sizeof(((struct ctl_event *)0)->text)];
	int64_t now = monotime_wall_ns();
	va_list ap;
	int n;

	if (log == NULL || log->next == 0)
		return;
	snprintf(k, sizeof(k), "%s", kind);
	snprintf(s, sizeof(s), "%s", subject[0] != '\0' ? subject : "-");
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	clean(k, true);
	clean(s, true);
	clean(text, false);
	n = snprintf(line, sizeof(line), "%" PRIu64 " %" PRId64 " %s %s %s\n", log->next, now > 0 ? now : 0, k, s, text);
	log->next++;
	if (n > 0 && (size_t)n < sizeof(line))
		append(log, line, (size_t)n);
}
