/*
 * The record of one workload: a memfd with a page of state and a ring of output, which the launcher holds too. What is
 * in it survives a kill -9 of workerd at any instruction; nothing that matters is kept elsewhere.
 *
 * Between "read from the pipe" and "written down as read" there is no hole: before each read the intent is noted, and
 * record_adopt() can tell afterwards whether that read took place (see record_fill).
 */
#ifndef EDGEWARD_WORKERD_RECORD_H
#define EDGEWARD_WORKERD_RECORD_H

#define XXH_STATIC_LINKING_ONLY	/* the size of the digest's state */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <xxhash.h>

#include "proto/ipc/launch.h"
#include "proto/ipc/spec.h"
#include "proto/ipc/work.h"
#include "workerd/lostset.h"

#define RECORD_PAGE	4096u
#define RECORD_SENTINEL	16u

#define RECORD_F_CANCEL		0x01u	/* a stop was asked for */
#define RECORD_F_TIMEOUT	0x02u	/* its time was up */
#define RECORD_F_DISOWNED	0x04u
#define RECORD_F_FINAL		0x08u	/* the output is complete: head is the total */
#define RECORD_F_NO_DIGEST	0x10u	/* the digest could not be carried over */
#define RECORD_F_LIMIT		0x40u	/* it wrote more than output_max */
#define RECORD_F_CONTAINER	0x80u	/* the payload is an engine's client: what it uses is not what the workload uses */
#define RECORD_F_TREE_GONE	0x20u	/* nothing lives; drain_to is set */
#define RECORD_F_TOLD		0x100u	/* its start is in the events: a later workerd does not tell it again */
#define RECORD_F_KILL		0x200u	/* the launcher has been told to end it, or was about to be: said again by a later workerd */

struct record_digest {
	XXH3_state_t state;
	uint64_t offset;		/* bytes hashed */
};

/*
 * Where a filter stands that reads another record and writes this one (mask.h): all three change at one stroke, with seam_now.
 */
struct record_seam {
	uint64_t from, out;		/* of the other: done with below from, written below out */
	uint64_t head;			/* of this one, with what that made */
	uint32_t masked, reserved;
};

/* Page 0 of the memfd, or of the part of it that an inner record has. */
struct record_head {
	uint64_t magic;
	uint32_t version, digest_version;
	uint64_t ring;			/* bytes, a multiple of the page */
	char handle[72];
	uint32_t slot, flags;		/* RECORD_F_* */
	int64_t accepted_at;		/* CLOCK_REALTIME ns */
	int64_t finished_at;		/* the same, 0 = not yet */
	int64_t deadline, grace_end;	/* CLOCK_BOOTTIME ns, 0 = none */
	uint32_t timeout_s;
	int32_t pending_signal;		/* asked for before there was anybody to get it */
	/* the output: bytes [tail, head) are in the ring at offset % ring */
	uint64_t head, tail;
	uint64_t acked;			/* durable at the hub */
	uint64_t drain_to;		/* with TREE_GONE: where reading ends */
	uint64_t gap_end, gap_bytes;	/* of a record of before: end of its last gap; bytes that are lost */
	uint32_t gaps, digest_now;	/* which of the two digests counts */
	/* the read that is under way while intent_head == head */
	uint64_t intent_head;
	uint32_t intent_len, intent_before;
	uint8_t sentinel[RECORD_SENTINEL];
	struct record_digest digest[2];
	/* since the spool; 0 in a record of before, too */
	uint32_t hole;			/* enum work_gap_reason of bytes below tail that are nowhere; 0 = memory */
	uint32_t overflow;		/* enum work_overflow; 0 in a record of before, too */
	uint64_t output_max;		/* bytes of output it may write, 0 = any; zero in a record of before, too */
	/* stage.c; zero where there is nothing around the workload */
	uint32_t stage, parts;		/* enum stage; LAUNCH_PART_* of every stage */
	uint32_t job_len;		/* bytes behind the ring: the encoded spec, for later stages */
	uint32_t payload_good;		/* it ended with exit code 0 */
	uint64_t stage_from;		/* head when the stage began */
	struct work_workload saved;	/* how the payload ended */
	char reason[208];		/* why a stage failed, "" = none did */
	/* since secrets; the same */
	uint64_t beyond;		/* bytes of the memfd behind the ring: vault.h */
	struct record_seam seam[2];
	uint32_t seam_now, dir_known;	/* dir_known: 0 in a record of before */
	char work_dir[WORK_DIR_SIZE];
	/* since each lost byte is counted once; the same */
	uint64_t sent;			/* connectd was given everything below it, at some time */
	struct lostset lost;		/* above acked */
	/* since it is shown; the same */
	char command[WORK_COMMAND_SIZE];
};
static_assert(sizeof(struct record_head) <= RECORD_PAGE, "the ring lies behind it");

struct record {
	int fd;				/* -1 = none */
	int report;			/* memfd of a struct launch_report, written by workinit; -1 in an inner record */
	uint64_t base;			/* where in the memfd it begins: not 0 in an inner record, whose fd is the outer one's */
	struct record_head *h;
	uint8_t *ring;			/* mapped twice in a row: any part of it is contiguous */
};

/* Records that are no longer used, to be used again: a fresh page is the dearest thing in a start. */
#define RECORD_SPARES	16u
struct record_spares {
	struct record spare[RECORD_SPARES];
	unsigned n;
};

/* An empty record for handle; 0 or -errno. */
int record_new(struct record_spares *spares, const char *handle, uint64_t ring, struct record *ret_rec);

/* The same with room behind the ring; never a spare. */
int record_new_beyond(const char *handle, uint64_t ring, uint64_t beyond, struct record *ret_rec);

/*
 * A record inside another one's room, base bytes from its beginning: an empty one, or what an earlier workerd had there. Ends with
 * record_inner_done(), before the outer one, or with record_inner_close(), which leaves what is in it to the next workerd.
 */
int record_inner_new(const struct record *outer, uint64_t base, uint64_t ring, struct record *ret_rec);
int record_inner_adopt(const struct record *outer, uint64_t base, uint64_t ring, int pipe, struct record *ret_rec);
void record_inner_done(struct record *inner);
void record_inner_close(struct record *inner);

/* Where the next byte goes; record_room() bytes may be written there, and count with record_commit(), and seam with them. */
uint8_t *record_end(const struct record *rec);
void record_commit(struct record *rec, size_t n, const struct record_seam *seam);

/*
 * Takes over a record that an earlier workerd filled; fd and report are owned on success. pipe is the output it was reading.
 * Finds out whether the last read took place. -EBADMSG when it is not a record of that handle.
 */
int record_adopt(int fd, int report, const char *handle, int pipe, struct record *ret_rec);

/* Unmaps and closes, or keeps it in spares. The launcher must have been told to forget it first. */
void record_free(struct record_spares *spares, struct record *rec);

/* Unmaps and closes, no more: the launcher holds it for the next workerd. */
void record_close(struct record *rec);
void record_spares_done(struct record_spares *spares);

/*
 * Reads up to max bytes that are in the pipe into the ring. Their number; 0 = none there or no room; -errno.
 * Never blocks, never waits.
 */
ssize_t record_fill(struct record *rec, int pipe, size_t max);

/* Bytes that fit. */
size_t record_room(const struct record *rec);

/* Where the byte at offset lies, which must be in [tail, head]; everything up to head follows. */
const uint8_t *record_at(const struct record *rec, uint64_t offset);

/* The hub has everything below offset (clamped to what there is): it is freed. */
void record_ack(struct record *rec, uint64_t offset);

/* Frees the oldest bytes up to offset, which are in the spool. */
void record_release(struct record *rec, uint64_t offset);

/*
 * Frees the oldest bytes up to offset although the hub has not got them; those from sent on are lost. Whether those below it are, the hub
 * alone knows: they are counted when it is told of the gap.
 */
void record_drop(struct record *rec, uint64_t offset, uint64_t sent);

/* Counts bytes that nobody has any more and that the hub has not acknowledged: each once. */
void record_count_gap(struct record *rec, uint64_t from, uint64_t to);

/*
 * What later processes of the workload are started from, kept behind the ring: put once, read, overwritten and gone. get: size must hold
 * job_len bytes. -errno; -ENOENT: there is none.
 */
int record_put_job(struct record *rec, const void *data, size_t len);
int record_get_job(const struct record *rec, void *buf, size_t size);
void record_wipe_job(struct record *rec);

/* Gives the pages of an empty ring back. Nothing will be written to it any more. */
void record_give_pages(const struct record *rec);

/* XXH3-128 of all bytes produced, in canonical form. False when it is not known. */
bool record_digest(struct record *rec, uint8_t ret_xxh3[16]);

/* A copy of what workinit has said, checked: only known flags, FAILED never with STARTED. */
void record_report(const struct record *rec, struct launch_report *ret_report);

#endif
