/*
 * One file of spooled output: a head, then blocks in order of their offsets, nothing between them. The format on disk and
 * what is done with one file; which files there are is the business of spool.h.
 *
 *   head    magic, version, handle, base (offset of the first byte), why bytes before base may be missing, how much was
 *           produced, checksum
 *   block   magic, length, offset, how much the workload had produced when it was written, checksums of data and head; data
 *
 * The chain of block heads is followed without reading the data; the data's checksum is looked at when the block is read
 * for somebody. What does not fit is an error with its place, never a guess: the bytes before it are good. Native order:
 * a spool is read on the machine that wrote it.
 */
#ifndef EDGEWARD_WORKERD_SEGMENT_H
#define EDGEWARD_WORKERD_SEGMENT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ipc/names.h"

#define SEGMENT_MAGIC	0x6c6f6f7073647265ULL
#define SEGMENT_VERSION	1u
#define SEGMENT_BLOCK_MAGIC 0x6b6c6264u

#define SEGMENT_BLOCK	65536u		/* bytes of output in a block, at most */
#define SEGMENT_WRITE	(4u * SEGMENT_BLOCK)	/* bytes one append takes */
#define SEGMENT_NAME	(2 + HANDLE_SIZE + 17)	/* "w.HANDLE.0123456789abcdef" */

struct segment_head {			/* on disk */
	uint64_t magic;
	uint32_t version;
	uint32_t before;		/* enum work_gap_reason of what is missing below base, 0 = nothing was */
	uint64_t base;
	uint64_t produced;		/* by the workload, when that is more than the blocks say; 0 = it is not */
	char handle[72];
	uint8_t reserved[16];		/* 0 */
	uint64_t sum;			/* XXH3-64 of everything before */
};
static_assert(sizeof(struct segment_head) == 128, "format on disk");

struct segment_block {			/* on disk, the data follow */
	uint32_t magic, len;
	uint64_t offset;
	uint64_t produced;		/* by the workload when this was written; >= offset + len */
	uint64_t data_sum;		/* XXH3-64 of the data */
	uint64_t sum;			/* XXH3-64 of everything before */
};
static_assert(sizeof(struct segment_block) == 40, "format on disk");

struct segment {			/* in memory */
	uint64_t base, end;		/* offsets of the output in it */
	uint64_t size;			/* bytes of the file that are good */
	uint64_t produced;		/* the largest that its head and blocks know of */
	uint32_t before;
	bool damaged;			/* something after `size` is wrong: kept aside when it is done with */
};

/* A place in the chain, so that reading on does not begin at the front again. */
struct segment_place {
	uint64_t pos, offset;		/* in the file, in the output */
};

void segment_name(char name[SEGMENT_NAME], const char *handle, uint64_t base);
/* -EINVAL: not the name of a segment. */
int segment_name_parse(const char *name, char ret_handle[HANDLE_SIZE], uint64_t *ret_base);

/* Bytes a file grows by when len bytes of output are appended. */
uint64_t segment_cost(uint64_t len);

/* Makes the file anew: a descriptor for appending, or -errno (nothing is left behind then, as far as that is possible). */
int segment_create(int dirfd, const char *handle, uint64_t base, uint32_t before, struct segment *ret_seg);

/*
 * Appends at most SEGMENT_WRITE bytes by one write. -errno: the file is as it was, -ESTALE: it could not be put back and must
 * not be appended to any more (what is good in it stays good).
 */
int segment_append(int fd, struct segment *seg, const uint8_t *data, size_t len, uint64_t produced);

/* Opens for reading; -EINVAL when it is not a regular file. */
int segment_open(int dirfd, const char *handle, uint64_t base);

/* Follows the chain of a file from an earlier life. 0 with what is good in it, or -EBADMSG: not even the head is. -errno. */
int segment_scan(int fd, const char *handle, uint64_t base, struct segment *ret_seg);

/*
 * Reads the block that holds offset, which is in [base, end), into buf. place is where to begin, all 0 = at the front, and is
 * moved behind the block. Returns the block's length, its offset in *ret_at. -EBADMSG: it is not what was written, and bytes
 * from *ret_at on cannot be had from here.
 */
ssize_t segment_read(int fd, const struct segment *seg, struct segment_place *place, uint64_t offset,
    uint8_t buf[SEGMENT_BLOCK], uint64_t *ret_at);

/* Writes the head anew, with another before or produced; needs no room on the disk. -errno. */
int segment_set_head(int dirfd, const char *handle, const struct segment *seg);

#endif
