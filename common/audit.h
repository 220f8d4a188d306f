/*
 * The record of what was done with root's power: a file of lines, each of which carries the digest of the line before, so that
 * none can be changed, taken out or put in between without all that follow. What no chain can show is that lines were cut off at
 * the end: for that compare the head with one that was noted elsewhere.
 *
 *   SEQUENCE TIME TEXT DIGEST
 *
 * TIME is seconds since 1970 with three decimals. DIGEST is SHA-256, in hexadecimal, of the digest before (64 zeros before the first line) and the line up to the space in front of
 * it. A file that goes on where another one ended begins with the text "continues DIGEST".
 */
#ifndef EDGEWARD_AUDIT_H
#define EDGEWARD_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define AUDIT_LINE	400	/* bytes with the newline, at most */
#define AUDIT_TEXT	200	/* of the text; printable ASCII */
#define AUDIT_HEX	64

struct audit_head {
	uint64_t seq;			/* of the last line, 0 = none yet */
	char digest[AUDIT_HEX + 1];
};

extern const struct audit_head audit_first;

/* The line that follows head, with its newline; moves head. Its length, or -EINVAL (text). */
int audit_compose(struct audit_head *head, const char *time, const char *text, char buf[AUDIT_LINE]);

/* Checks one line without its newline and moves head. -EBADMSG: not of this form; -EILSEQ: does not follow head. */
int audit_check(struct audit_head *head, const char *line, size_t len);

struct audit {
	int fd;				/* -1: none */
	uint64_t most;			/* bytes; 0 = no bound */
	bool torn;			/* what stands behind whole is to be cut off first */
	off_t whole;
	struct audit_head head;
};

/*
 * Opens dirfd/name for appending, makes it (0640) if there is none, checks that it is a file of root alone (one link, nobody else
 * writes), cuts off a last line without a newline (a power cut), and finds the head by its last line. One that has grown
 * beyond max is kept as NAME.old and a new one continues it. 0 or -errno; -EBADMSG: the last line is none of ours.
 */
int audit_open(int dirfd, const char *name, uint64_t max, struct audit *ret_audit);

/* Appends one line, of printf's form, and waits until it is on disk. On failure the file and head are what they were. -EFBIG:
 * 16 times max are written since the start, whoever asks for so much; the next start begins a new file. */
int audit_append(struct audit *audit, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
