/*
 * Log lines on stderr, one write(2) each. Where stderr is the journal (JOURNAL_STREAM names it) they begin with the <N> of
 * their priority, which journald reads and takes off; anywhere else they are for people and have none.
 *
 * debug is for developers, info is the life cycle, warn went on without something, error a request failed, fatal ends
 * the process. A stderr that is blocked or gone never blocks the caller: the line is dropped and counted, and the count
 * is told with the next line that gets through. More than a burst of lines a second is suppressed the same way.
 * Nothing a peer sent goes into a line except through log_quote().
 */
#ifndef EDGEWARD_LOG_H
#define EDGEWARD_LOG_H

#include <stddef.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };

/* First in each main(). ident is kept, not copied. Descriptors 0, 1 and 2 that are closed become /dev/null. */
void log_init(const char *ident, enum log_level level);
void log_set_level(enum log_level level);

/* "debug", "info", "warn", "error"; -EINVAL otherwise. */
int log_level_parse(const char *s, enum log_level *ret_level);

void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Logs and exits 1. */
_Noreturn void fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#define LOG_QUOTE_SIZE	68	/* 64 bytes of text, "..." and NUL */

/* Escapes len bytes of s into buf: printable ASCII stays, the rest is \xNN; cut with "..." at the end. Returns buf. */
const char *log_quote(char *buf, size_t size, const void *s, size_t len);

#endif
