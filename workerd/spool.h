/*
 * The spool of one workload: bytes of its output that the ring has no room for, or that should outlive the launcher, in
 * segments of a sixteenth of [work] spool. Removed by whole segments: as the hub acknowledges, or the oldest when
 * [work] overflow lets bytes go.
 *
 * Nothing waits for the disk here: no fsync. What was written survives workerd, the launcher and an orderly reboot, because
 * the kernel has it; of a power cut's last seconds each block's checksum tells whether they arrived, and a file system that
 * orders data before size shows a shorter file. One fsync costs the only thread of this process anything up to seconds, in
 * which no workload's pipe is read; what it would buy is output of a machine that lost its power a moment later, and that is
 * told as a gap. Writes are at most SEGMENT_WRITE bytes a call.
 *
 * A segment that is not what was written is not trusted beyond the place: what comes before is delivered, what is missing
 * is a gap, and the file is kept aside. No state of a file here ends the process.
 */
#ifndef EDGEWARD_WORKERD_SPOOL_H
#define EDGEWARD_WORKERD_SPOOL_H

#include "workerd/spooldir.h"

#define SPOOL_SEGMENTS	64u
#define SPOOL_PARTS	16u		/* [work] spool / this = size of a segment */

struct spool {
	struct spooldir *dir;
	char handle[HANDLE_SIZE];
	struct segment seg[SPOOL_SEGMENTS];	/* oldest first, bases ascending; there may be holes between */
	unsigned n;
	int fd;				/* of the newest, while it is appended to; -1 */
	uint64_t used;			/* bytes of all files */
	bool told_full;
};

/* What is held at an offset: bytes, or none and where they go on. */
struct retained {
	const uint8_t *data;
	uint64_t len;			/* 0: see gap_to */
	uint64_t gap_to;		/* first offset that is held again */
	uint32_t reason;		/* enum work_gap_reason of [offset, gap_to) */
};

/* An empty one. NULL = no memory. */
struct spool *spool_new(struct spooldir *dir, const char *handle);

/*
 * With the files of that handle from an earlier life, or NULL when there are none. held: from here on its output is in memory as well,
 * UINT64_MAX = nothing is.
 */
struct spool *spool_adopt(struct spooldir *dir, const char *handle, uint64_t held);

/* Files stay, or go. */
void spool_free(struct spool *sp);
void spool_delete(struct spool *sp);

/* First offset in it and the one behind its last; both 0 when it is empty. */
uint64_t spool_from(const struct spool *sp);
uint64_t spool_end(const struct spool *sp);

/* Gaps between its segments. */
uint32_t spool_holes(const struct spool *sp);

/* What the workload had produced at least, as far as the files know. */
uint64_t spool_produced(const struct spool *sp);

/*
 * Appends output that begins at offset, at most len bytes; before: why bytes between the end and offset are missing, if
 * they are. The number taken (> 0), or -ENOBUFS: a bound of the configuration; other -errno: the disk, a quota included.
 */
ssize_t spool_write(struct spool *sp, uint64_t offset, const uint8_t *data, size_t len, uint32_t before,
    uint64_t produced);

/* Nothing can be written now, and the workload has produced so much: noted in place, so that a later life knows of the gap. */
void spool_note(struct spool *sp, uint64_t produced);

/* No more will be written: the descriptor is closed. */
void spool_finish(struct spool *sp);

/* The hub has everything below offset. */
void spool_ack(struct spool *sp, uint64_t offset);

/* Removes the oldest segment: bytes [*ret_from, *ret_to) are gone. False when there is none. */
bool spool_drop(struct spool *sp, uint32_t reason, uint64_t *ret_from, uint64_t *ret_to);

/*
 * What is at offset. False: neither bytes nor a later segment. True with bytes (valid until the next call for any spool) or a
 * gap. When a segment turns out to be damaged its loss is noted, told in the log, and *ret_lost is set.
 */
bool spool_at(struct spool *sp, uint64_t offset, struct retained *ret, bool *ret_lost);

#endif
