/*
 * The log of one run on the hub's disk.
 *
 * The file DIR/w.HANDLE holds every byte at its own offset; a gap is a hole in it and a row in the store. The offset
 * of the next byte is therefore the size of the file, or the end of a gap that starts there: nothing else has to be
 * written to find the place again after a crash. A file system that orders data before size (ext4, xfs, btrfs) shows
 * after a power cut a shorter file, never one with foreign bytes; the digest of the whole stream proves the rest.
 *
 * Durable means fdatasync() has returned. Only then is a byte acknowledged, because the device then forgets it.
 */
#ifndef EDGEWARD_HUB_LOGFILE_H
#define EDGEWARD_HUB_LOGFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LOGFILE_MAX		(1ULL << 43)	/* 8 TiB: below what every file system takes */
#define LOGFILE_GAPS_MAX	100000u

struct logfile_gap {
	uint64_t from, to;	/* [from, to) is gone */
	uint8_t reason;		/* of the GAP frame; 0 = a jump seen on plain cloop */
};

struct logfile {
	int fd;			/* -1 = closed */
	uint64_t next;		/* offset of the next byte */
	uint64_t durable;	/* bytes below it are on disk (or in a gap) */
	struct logfile_gap *gaps;
	size_t ngaps;
};

enum logfile_place {
	LOGFILE_NEW,		/* starts at next: all of it is new */
	LOGFILE_OVERLAP,	/* begins below next: the known part is cut off */
	LOGFILE_DUPLICATE,	/* nothing new */
	LOGFILE_JUMP,		/* begins above next */
};

/* Where bytes [offset, offset + len) lie. *ret_skip: bytes to leave out at the front. Pure. */
enum logfile_place logfile_place(uint64_t next, uint64_t offset, size_t len, size_t *ret_skip);

/*
 * Opens or makes the file. gaps (from the store, in order) are copied. next and durable are set to what is on disk.
 * -errno; -EINVAL when gaps make no sense.
 */
int logfile_open(int dirfd, const char *handle, bool create, const struct logfile_gap *gaps, size_t ngaps,
    struct logfile *ret_log);
void logfile_close(struct logfile *log);

/*
 * Writes len bytes at next. After an error (no space) the file is as before. -EFBIG beyond LOGFILE_MAX.
 */
int logfile_append(struct logfile *log, const void *data, size_t len);

/* Records that [next, to) will never come. -EFBIG, -ENOSPC beyond LOGFILE_GAPS_MAX, -ENOMEM. Merges with the one before. */
int logfile_gap(struct logfile *log, uint64_t to, uint8_t reason, struct logfile_gap *ret_gap);

/*
 * Reads at most size bytes from offset on, never across a gap. 0 at the end; when offset lies in a gap 0 and
 * *ret_gap_to = its end. -errno.
 */
ssize_t logfile_read(const struct logfile *log, uint64_t offset, void *buf, size_t size, uint64_t *ret_gap_to);

/* Why the bytes of the gap at offset are missing, as the device told; 0 = it did not, or there is no gap. */
uint8_t logfile_gap_reason(const struct logfile *log, uint64_t offset);
/* "memory", "spool", "disk", "lost"; "unknown". */
const char *logfile_gap_name(uint32_t reason);

/* Cuts an unfinished UTF-8 sequence off the end: on plain cloop offsets must lie between characters. */
int logfile_trim_text(struct logfile *log);

/* XXH3-128 (canonical) of the first len bytes of fd. Reads the file: for a thread, or for short logs. -errno. */
int logfile_digest(int fd, uint64_t len, uint8_t digest[16]);

#endif
