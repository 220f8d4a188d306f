/*
 * What must be known after the launcher or the machine is gone: which handles were started, how they ended, which results
 * the hub has. One file of checksummed records of fixed size, appended to, rewritten when it has grown.
 *
 * A record that is cut off at the end is a crash in the middle of a write and is dropped. Anything else that is wrong: the
 * file is set aside (JOURNAL_ASIDE copies at most) and what is good in it goes on. Nothing waits for the disk here: what
 * a power cut takes of the last seconds, the hub's own record of its runs makes up for.
 */
#ifndef EDGEWARD_WORKERD_JOURNAL_H
#define EDGEWARD_WORKERD_JOURNAL_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOURNAL_ASIDE	3u
#define JOURNAL_SEEN	4096u		/* delivered handles that are remembered */
#define JOURNAL_MAX	8192u		/* records in the file before it is rewritten */
#define JOURNAL_READ_MAX (8u << 20)	/* bytes of a file that is looked at at all */

enum journal_type {
	JOURNAL_STARTED = 1,
	JOURNAL_ENDED = 2,
	JOURNAL_DELIVERED = 3,		/* and forgotten */
	JOURNAL_DRAIN = 4,		/* outcome 1 = new starts are refused */
};

struct journal_record {			/* on disk, native order */
	uint32_t magic;
	uint16_t version, type;		/* enum journal_type */
	uint64_t instance;		/* of the launcher that holds or held it */
	uint64_t key;			/* journal_key() of the handle */
	char handle[72];		/* empty in DELIVERED */
	int64_t started_at, finished_at;
	uint64_t produced;
	uint8_t xxh3[16];
	int32_t exit_code, term_signal;
	uint8_t outcome, flags;		/* enum work_outcome; WORK_F_DIGEST, WORK_F_DISOWNED */
	uint8_t reserved[6];
	uint64_t sum;			/* XXH3-64 of everything before */
};
static_assert(sizeof(struct journal_record) == 160, "format on disk");

struct journal {
	int dirfd, fd;			/* fd -1: cannot be written now */
	size_t records;			/* in the file */
	bool drain;
	uint64_t seen[JOURNAL_SEEN];	/* ring of keys */
	uint32_t seen_next, seen_n;
};

uint64_t journal_key(const char *handle);

/*
 * The records of a file's bytes in order: live is told for each handle that was not delivered, once, with its last record.
 * Pure. Returns false when something other than the tail was bad. ret_good: bytes that are whole records.
 */
bool journal_parse(struct journal *j, const uint8_t *data, size_t len,
    void (*live)(const struct journal_record *rec, void *ctx), void *ctx, size_t *ret_good);

/*
 * Opens dirfd/journal and reads it. 0, 1 = something bad was set aside, -errno = it can be neither read nor made (nothing
 * is lost in memory; journal_append tries again).
 */
int journal_open(struct journal *j, int dirfd, void (*live)(const struct journal_record *rec, void *ctx), void *ctx);

/* Fills in magic, key and sum and appends. -errno: nothing was written. DELIVERED also makes the handle a seen one. */
int journal_append(struct journal *j, struct journal_record *rec);

/* True when it is time for journal_rewrite(). */
bool journal_is_long(const struct journal *j);

/* Replaces the file by these records, the drain mark and the seen handles. */
int journal_rewrite(struct journal *j, const struct journal_record *live, size_t n);

/* A handle whose result the hub has. */
bool journal_seen(const struct journal *j, const char *handle);

void journal_close(struct journal *j);

#endif
