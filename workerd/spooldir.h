/*
 * The directory of the spool: what may be written there at all, what lies there from an earlier life, what is kept aside.
 *
 * Everything in it counts against [work] spool-total, whosever it is: segments, copies set aside (at most SPOOLDIR_ASIDE,
 * the oldest goes), and files that are not ours, which are reported and never touched. Before each write the file system is
 * asked: [work] disk-low stays free. What cannot be written is told once, when it begins and when it is over; between, one
 * attempt is made a second.
 */
#ifndef EDGEWARD_WORKERD_SPOOLDIR_H
#define EDGEWARD_WORKERD_SPOOLDIR_H

#include "common/conf.h"
#include "common/monotime.h"
#include "workerd/segment.h"

#define SPOOLDIR_ASIDE	3u
#define SPOOLDIR_NAME	"spool"

struct spool;

struct spool_file {			/* found at start, not yet anybody's */
	char handle[HANDLE_SIZE];
	bool taken;
	uint64_t base, bytes;
};

struct spooldir {
	int statefd, fd;		/* the state directory; fd -1: there is no spool */
	bool off;			/* nothing is written: [work] spool = 0, or the directory is not fit */
	uint64_t each, total, low;	/* bytes: bounds, and what must stay free */
	uint64_t used;			/* by everything in the directory */
	uint64_t aside[SPOOLDIR_ASIDE];	/* bytes of bad.N */
	int error;			/* of the last write, 0 = it worked */
	monotime_t retry;		/* after an error: not before */
	struct spool_file *found;	/* in order of handle and base */
	size_t nfound, swept;
	/* the block read last, of one segment */
	const struct spool *reader;
	int read_fd;
	uint64_t read_base;
	struct segment_place place;
	uint64_t block_at;
	size_t block_len;
	uint8_t *block;			/* SEGMENT_BLOCK, allocated when first used */
};

/*
 * Makes and opens statefd/spool, and looks what is there. Before the sandbox closes: a directory cannot be made later. Says what
 * is wrong; nothing here ends the process.
 */
void spooldir_open(struct spooldir *dir, int statefd, const struct conf *conf);
void spooldir_close(struct spooldir *dir);

/* 0 = len bytes may be written now; -ENOBUFS: spool-total; -ENOSPC: disk-low; -EAGAIN: an error was seen a moment ago. */
int spooldir_may_write(struct spooldir *dir, uint64_t len);

/* The outcome of a write: 0 or -errno, which is returned. Tells of a change. */
int spooldir_outcome(struct spooldir *dir, int err);

/* Takes a file away: removed, or kept as bad.0 when it was damaged. bytes: what it was counted with. */
void spooldir_remove(struct spooldir *dir, const char *handle, uint64_t base, uint64_t bytes, bool damaged);

/* The first file that was found and is not taken, or of one handle; NULL = none. */
struct spool_file *spooldir_found(struct spooldir *dir, const char *handle);

/* Removes what nobody took, at most max files. True when there is more. */
bool spooldir_sweep(struct spooldir *dir, unsigned max);

#endif
