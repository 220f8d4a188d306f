#include "common/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/monotime.h"

#define LINE_SIZE	1024
#define BURST		200	/* lines a second before the rest is counted only */

static const char *log_ident = "edgeward";
static enum log_level log_min = LOG_LEVEL_INFO;
static bool to_journal;
static uint64_t dropped;	/* lines not written since the last one that was */
static int64_t window_start;
static unsigned window_lines;

static const int priority[] = { 7, 6, 4, 3 };

/* Whoever starts us without standard descriptors must not have our lines written into what we open next. */
static void
keep_standard_fds(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 &&
		    (open("/dev/null", O_RDWR | O_CLOEXEC) != fd || fcntl(fd, F_SETFD, 0) < 0))
			_exit(1);
}

/* systemd names device and inode of the stream it gave us, so that a redirection is not taken for it. */
static bool
stderr_is_journal(void)
{
	const char *named = getenv("JOURNAL_STREAM");
	char ours[48];
	struct stat st;

	if (named == NULL || fstat(STDERR_FILENO, &st) < 0)
		return false;
	snprintf(ours, sizeof(ours), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	return strcmp(named, ours) == 0;
}

/* What a line begins with. Returns its length. */
static int
put_head(char *line, size_t size, int prio)
{
	return to_journal ? snprintf(line, size, "<%d>%s: ", prio, log_ident) : snprintf(line, size, "%s: ", log_ident);
}

void
log_init(const char *ident, enum log_level level)
{
	keep_standard_fds();
	log_ident = ident;
	log_min = level;
	to_journal = stderr_is_journal();
}

void
log_set_level(enum log_level level)
{
	log_min = level;
}

int
log_level_parse(const char *s, enum log_level *ret_level)
{
	static const char *const names[] = { "debug", "info", "warn", "error" };

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(s, names[i]) == 0) {
			*ret_level = (enum log_level)i;
			return 0;
		}
	}
	return -EINVAL;
}

/* Writes without ever blocking: sockets by MSG_DONTWAIT, everything else only when poll says there is room. */
static int
write_line(const char *line, size_t len)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	ssize_t n = send(STDERR_FILENO, line, len, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (n < 0 && errno == ENOTSOCK) {
		if (poll(&p, 1, 0) != 1 || (p.revents & POLLOUT) == 0)
			return -EAGAIN;
		n = write(STDERR_FILENO, line, len);
	}
	return n < 0 ? -errno : 0;
}

static int
admit(enum log_level level)
{
	int64_t now = monotime_now().ns / 1000000000;

	if (now != window_start) {
		window_start = now;
		window_lines = 0;
	}
	return level == LOG_LEVEL_ERROR || window_lines++ < BURST;
}

static void
tell_dropped(void)
{
	char line[128];
	int n = put_head(line, sizeof(line), priority[LOG_LEVEL_WARN]);

	n += snprintf(line + n, sizeof(line) - (size_t)n, "%llu log lines suppressed\n", (unsigned long long)dropped);
	if (write_line(line, (size_t)n) == 0)
		dropped = 0;
}

static void __attribute__((format(printf, 2, 0)))
vlog(enum log_level level, const char *fmt, va_list ap)
{
	char line[LINE_SIZE];
	int saved = errno, head, n;
	size_t len;

	if (level < log_min)
		return;
	if (!admit(level)) {
		dropped++;
		return;
	}
	if (dropped > 0)
		tell_dropped();
	head = put_head(line, sizeof(line), priority[level]);
	n = vsnprintf(line + head, sizeof(line) - (size_t)head - 1, fmt, ap);
	len = (size_t)head + (n < 0 ? 0 : (size_t)n);
	if (len > sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	if (write_line(line, len) < 0)
		dropped++;
	errno = saved;
}

#define LOG_FUNCTION(name, level)		\
	void					\
	name(const char *fmt, ...)		\
	{					\
		va_list ap;			\
						\
		va_start(ap, fmt);		\
		vlog(level, fmt, ap);		\
		va_end(ap);			\
	}

LOG_FUNCTION(log_debug, LOG_LEVEL_DEBUG)
LOG_FUNCTION(log_info, LOG_LEVEL_INFO)
LOG_FUNCTION(log_warn, LOG_LEVEL_WARN)
LOG_FUNCTION(log_error, LOG_LEVEL_ERROR)

void
fatal(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vlog(LOG_LEVEL_ERROR, fmt, ap);
	va_end(ap);
	exit(1);
}

const char *
log_quote(char *buf, size_t size, const void *s, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	const uint8_t *p = s;
	size_t o = 0;

	for (size_t i = 0; i < len; i++) {
		size_t need = p[i] >= 0x20 && p[i] < 0x7f && p[i] != '\\' ? 1 : 4;

		if (o + need + 4 > size) {
			memcpy(buf + o, "...", 3);
			o += 3;
			break;
		}
		if (need == 1) {
			buf[o++] = (char)p[i];
			continue;
		}
		buf[o++] = '\\';
		buf[o++] = 'x';
		buf[o++] = hex[p[i] >> 4];
		buf[o++] = hex[p[i] & 15];
	}
	buf[o] = '\0';
	return buf;
}
