/*
 * What happened, for `edgectl events`: each daemon appends a line for each change worth knowing to a file in its state directory. Two
 * files of at most 32 KiB: when the first is full, what of both fits into one becomes the second, an equal share for each kind
 * (common/eventkeep.h): what is told most pushes out only itself. A first file that cannot be removed then is emptied, and what
 * still stands in both is told once. Nothing is synced: after a power cut the last lines may
 * be missing, and a line that was cut is passed over. A log that was never opened, or none at all (NULL), keeps nothing and is empty. Where nothing can be written the numbers go on, so that a gap is seen.
 */
#ifndef EDGEWARD_EVENTLOG_H
#define EDGEWARD_EVENTLOG_H

#include <stddef.h>
#include <stdint.h>

#include "common/monotime.h"
#include "proto/ipc/ctl.h"

#define EVENTLOG_FILE	"events"
#define EVENTLOG_OLD	"events.1"
#define EVENTLOG_NEW	"events.new"	/* a moment long */
#define EVENTLOG_MAX	32768u	/* bytes of a file */
#define EVENTLOG_LINE	512u	/* no line is longer */
#define EVENTLOG_RECENT	12u
#define EVENTLOG_SAME_MS 60000
#define EVENTLOG_REFUSALS 4u	/* different ones of a kind that are listed within that time */

/* A line that was written a moment ago, and how often the same has happened since. */
struct eventlog_recent {
	char kind[sizeof(((struct ctl_event *)0)->kind)], subject[sizeof(((struct ctl_event *)0)->subject)];
	char text[sizeof(((struct ctl_event *)0)->text)];
	monotime_t at;
	uint32_t more, others;		/* others: refusals of this kind beyond those that are listed */
};

struct eventlog {
	int dirfd;		/* the caller's; -1: nothing is kept. */
	int fd;
	uint32_t size;
	uint64_t next;		/* number of the next event; the first one is 1 */
	struct eventlog_recent recent[EVENTLOG_RECENT];
	unsigned nrecent;	/* the oldest is first */
};

/* Before the sandbox closes or after: it opens the file beneath dirfd. Never fails: what cannot be kept is not kept. */
void eventlog_open(struct eventlog *log, int dirfd);
void eventlog_close(struct eventlog *log);

/*
 * kind and subject: [A-Za-z0-9._:-], other bytes become '?'; subject may be empty. The text is cut at 151 bytes and made printable.
 *
 * What repeats a line of the last minute word for word is counted and told as one more line when that minute is over, and so is a refusal
 * (a kind that ends in "refused", or a text that begins with it) behind four of its kind: a peer that asks a thousand times shall not push
 * everything else out of the record.
 */
void eventlog_add(struct eventlog *log, const char *kind, const char *subject, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* Tells events from number `from` on, at most max, oldest first; tell() returns 0 to go on. What tell() returned last. */
int eventlog_read(struct eventlog *log, uint64_t from, size_t max, int (*tell)(const struct ctl_event *e, void *ctx), void *ctx);

/* One line, without its newline: 0 or -EBADMSG. */
int eventlog_parse(const char *line, size_t len, struct ctl_event *ret_event);

#endif
