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
#include "common/eventkeep.h"
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

/* What is in both. While a file cannot go after its lines were put into the other one, they stand in both: then they count once. */
struct files {
	uint8_t *older, *newer;
	size_t nolder, nnewer;
	size_t skip;		/* of newer: what stands in older, or gave way there */
};

/* Behind the line of newer that is the last of older: that one always stays. */
static size_t
find_skip(const struct files *f)
{
	const uint8_t *last, *at, *p = f->newer, *end = f->newer + f->nnewer;
	struct ctl_event e;
	size_t len;

	if (f->nolder == 0 || f->older[f->nolder - 1] != '\n')
		return 0;
	last = memrchr(f->older, '\n', f->nolder - 1);
	last = last != NULL ? last + 1 : f->older;
	len = (size_t)(f->older + f->nolder - last);
	if (eventlog_parse((const char *)last, len - 1, &e) < 0)
		return 0;
	while (p < end && (at = memmem(p, (size_t)(end - p), last, len)) != NULL) {
		if (at == f->newer || at[-1] == '\n')
			return (size_t)(at + len - f->newer);
		p = at + 1;
	}
	return 0;
}

/* What cannot be read is empty; -EIO when that is the newer one. */
static int
read_files(const struct eventlog *log, struct files *f)
{
	int r;

	*f = (struct files){ .older = NULL };
	if (fd_read_file(log->dirfd, EVENTLOG_OLD, EVENTLOG_MAX + EVENTLOG_LINE, &f->older, &f->nolder) < 0)
		f->nolder = 0;
	r = fd_read_file(log->dirfd, EVENTLOG_FILE, EVENTLOG_MAX + EVENTLOG_LINE, &f->newer, &f->nnewer);
	if (r < 0)
		f->nnewer = 0;
	else
		f->skip = find_skip(f);
	return r < 0 ? -EIO : 0;
}

static void
free_files(struct files *f)
{
	free(f->older);
	free(f->newer);
}

static int
each(const uint8_t *data, size_t len, uint64_t from, size_t *max, int (*tell)(const struct ctl_event *e, void *ctx), void *ctx)
{
	const char *p = (const char *)data, *end = p + len, *nl;
	struct ctl_event e;
	int r = 0;

	for (; r == 0 && *max > 0 && p < end && (nl = memchr(p, '\n', (size_t)(end - p))) != NULL; p = nl + 1) {
		if (eventlog_parse(p, (size_t)(nl - p), &e) < 0 || e.seq < from)
			continue;
		(*max)--;
		r = tell(&e, ctx);
	}
	return r;
}

static int
take_number(const struct ctl_event *e, void *ctx)
{
	struct eventlog *log = ctx;

	if (e->seq >= log->next)
		log->next = e->seq + 1;
	return 0;
}

/* All of it stands in the other file. Where it cannot go it can be emptied; else it stays full, and what comes is not kept. */
static void
drop_file(const struct eventlog *log)
{
	int fd;

	if (unlinkat(log->dirfd, EVENTLOG_FILE, 0) == 0)
		return;
	fd = openat(log->dirfd, EVENTLOG_FILE, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
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
	struct files f;

	*log = (struct eventlog){ .dirfd = dirfd, .fd = -1, .next = 1 };
	if (dirfd < 0)
		return;
	read_files(log, &f);
	each(f.older, f.nolder, 0, &all, take_number, log);
	each(f.newer, f.nnewer, 0, &all, take_number, log);
	/* turn_over() was cut short by the end of the process. */
	if (f.skip > 0 && f.skip == f.nnewer)
		drop_file(log);
	free_files(&f);
	open_file(log);
}

/* Both files and no more than one: the fuller of its kinds give way. */
static int
merge(struct eventlog *log, char *out, size_t *ret_len)
{
	_cleanup_free_ char *all = NULL;
	struct files f;
	int r = read_files(log, &f);

	if (r == 0 && (all = malloc(f.nolder + f.nnewer + 1)) == NULL)
		r = -ENOMEM;
	if (r == 0) {
		if (f.nolder > 0)
			memcpy(all, f.older, f.nolder);
		memcpy(all + f.nolder, f.newer + f.skip, f.nnewer - f.skip);
		r = eventkeep(all, f.nolder + f.nnewer - f.skip, out, EVENTLOG_MAX, ret_len);
	}
	free_files(&f);
	return r;
}

/* The file is full. Between the two names an event stands in both: see struct files. */
static void
turn_over(struct eventlog *log)
{
	_cleanup_free_ char *kept = malloc(EVENTLOG_MAX);
	_cleanup_close_ int fd = -1;
	size_t len = 0;

	(void)unlinkat(log->dirfd, EVENTLOG_NEW, 0);
	if (kept != NULL && merge(log, kept, &len) == 0)
		fd = openat(log->dirfd, EVENTLOG_NEW, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd >= 0 && fd_write_all(fd, kept, len) == 0 && renameat(log->dirfd, EVENTLOG_NEW, log->dirfd, EVENTLOG_OLD) == 0) {
		drop_file(log);
		return;
	}
	/* No room for a third file: then the oldest go, whatever they are. */
	(void)unlinkat(log->dirfd, EVENTLOG_NEW, 0);
	renameat(log->dirfd, EVENTLOG_FILE, log->dirfd, EVENTLOG_OLD);
}

static void
append(struct eventlog *log, const char *line, size_t len)
{
	ssize_t n;

	if (log->dirfd < 0)
		return;
	if (log->fd >= 0 && log->size + len > EVENTLOG_MAX) {
		close(take_fd(&log->fd));
		turn_over(log);
	}
	if (log->fd < 0)
		open_file(log);
	if (log->fd < 0 || log->size + len > EVENTLOG_MAX)
		return;
	/* A line that was cut, for want of room, would swallow the next one. */
	n = write(log->fd, line, len);
	if (n > 0 && (size_t)n < len && ftruncate(log->fd, log->size) < 0)
		close(take_fd(&log->fd));
	else if (n > 0 && (size_t)n == len)
		log->size += (uint32_t)len;
}

static void
put(struct eventlog *log, const char *kind, const char *subject, const char *text)
{
	char line[EVENTLOG_LINE];
	int64_t now = monotime_wall_ns();
	int n = snprintf(line, sizeof(line), "%" PRIu64 " %" PRId64 " %s %s %s\n", log->next, now > 0 ? now : 0, kind, subject, text);

	log->next++;
	if (n > 0 && (size_t)n < sizeof(line))
		append(log, line, (size_t)n);
}

/* ---- what repeats ---- */

static bool
is_refusal(const struct eventlog_recent *e)
{
	size_t len = strlen(e->kind);

	return strncmp(e->text, "refused", 7) == 0 || (len >= 7 && strcmp(e->kind + len - 7, "refused") == 0);
}

static void
forget_first(struct eventlog *log)
{
	const struct eventlog_recent *e = &log->recent[0];
	char text[sizeof(e->text)];

	if (e->more > 0) {
		snprintf(text, sizeof(text), "%u times more: %.120s", e->more, e->text);
		put(log, e->kind, e->subject, text);
	}
	if (e->others > 0) {
		snprintf(text, sizeof(text), "%u others, which are not listed", e->others);
		put(log, e->kind, "-", text);
	}
	memmove(log->recent, log->recent + 1, --log->nrecent * sizeof(log->recent[0]));
}

static void
settle(struct eventlog *log, monotime_t now)
{
	while (log->nrecent > 0 && monotime_diff_ms(now, log->recent[0].at) >= EVENTLOG_SAME_MS)
		forget_first(log);
}

static bool
counted(struct eventlog *log, const struct eventlog_recent *e)
{
	struct eventlog_recent *last = NULL;
	unsigned refusals = 0;

	for (struct eventlog_recent *r = log->recent; r < log->recent + log->nrecent; r++) {
		if (strcmp(r->kind, e->kind) != 0)
			continue;
		if (strcmp(r->subject, e->subject) == 0 && strcmp(r->text, e->text) == 0) {
			r->more++;
			return true;
		}
		if (is_refusal(r) && is_refusal(e)) {
			last = r;
			refusals++;
		}
	}
	if (refusals < EVENTLOG_REFUSALS)
		return false;
	last->others++;
	return true;
}

void
eventlog_add(struct eventlog *log, const char *kind, const char *subject, const char *fmt, ...)
{
	struct eventlog_recent e = { .at = monotime_now() };
	va_list ap;

	if (log == NULL || log->next == 0)
		return;
	snprintf(e.kind, sizeof(e.kind), "%s", kind);
	snprintf(e.subject, sizeof(e.subject), "%s", subject[0] != '\0' ? subject : "-");
	va_start(ap, fmt);
	vsnprintf(e.text, sizeof(e.text), fmt, ap);
	va_end(ap);
	clean(e.kind, true);
	clean(e.subject, true);
	clean(e.text, false);
	settle(log, e.at);
	if (counted(log, &e))
		return;
	if (log->nrecent == EVENTLOG_RECENT)
		forget_first(log);
	log->recent[log->nrecent++] = e;
	put(log, e.kind, e.subject, e.text);
}

int
eventlog_read(struct eventlog *log, uint64_t from, size_t max, int (*tell)(const struct ctl_event *e, void *ctx), void *ctx)
{
	struct files f;
	int r;

	if (log == NULL || log->dirfd < 0)
		return 0;
	settle(log, monotime_now());
	if (from >= log->next)
		return 0;
	read_files(log, &f);
	r = each(f.older, f.nolder, from, &max, tell, ctx);
	if (r == 0)
		r = each(f.newer + f.skip, f.nnewer - f.skip, from, &max, tell, ctx);
	free_files(&f);
	return r;
}

void
eventlog_close(struct eventlog *log)
{
	while (log->nrecent > 0)
		forget_first(log);
	if (log->fd >= 0)
		close(take_fd(&log->fd));
	log->dirfd = -1;
}
