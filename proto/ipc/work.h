/*
 * The work channel between connectd (C) and workerd (W), over a socketpair that privhelper made.
 *
 * After HELLO both ways W sends CAPS, its INVENTORY, one WORKLOAD for everything it holds, SNAP_END. From then on every change of
 * a workload is told by a full WORKLOAD record, so a C that was restarted knows as much as one that was not.
 * W names a workload by wid (never reused while W runs); a handle is the hub's name for the same thing.
 *
 * Output is pulled by credit. C sends SUB {wid, epoch, from, limit}: W sends OUTPUT records from `from` on, never
 * beyond `limit`, and GAP where bytes are gone. A new SUB rewinds or skips; records of an older epoch that are still
 * under way are dropped by C. When the workload has ended and all output was sent, W sends OUTPUT_END once per epoch.
 */
#ifndef EDGEWARD_PROTO_WORK_H
#define EDGEWARD_PROTO_WORK_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/names.h"
#include "proto/ipc/outcome.h"
#include "proto/ipc/spec.h"

#define WORK_DATA_MAX	65536u	/* bytes of output in one record */

enum work_type {
	WORK_EV_CAPS = 0x0200,		/* W: struct work_caps */
	WORK_EV_WORKLOAD = 0x0202,	/* W: struct work_workload */
	WORK_EV_SNAP_END = 0x0204,	/* W: empty */
	WORK_EV_GONE = 0x0206,		/* W: struct work_ref; W has forgotten it */

	WORK_REQ_START = 0x0210,	/* C: wire, see spec.h; or empty + 1 sealed memfd with the same bytes. One fd more is
					 * the branch bundle of a job, open for reading */
	WORK_ANS_START = 0x0211,	/* W: struct work_answer */
	WORK_REQ_SIGNAL = 0x0212,	/* C: struct work_signal */
	WORK_ANS_SIGNAL = 0x0213,	/* W: struct work_answer */
	WORK_REQ_SYNC = 0x0214,		/* C: empty; W sends WORKLOAD for everything it holds, then the answer */
	WORK_ANS_SYNC = 0x0215,		/* W: empty */

	WORK_EV_SUB = 0x0220,		/* C: struct work_sub */
	WORK_EV_CREDIT = 0x0222,	/* C: struct work_sub; from is an ACK as well */
	WORK_EV_ACK = 0x0224,		/* C: struct work_offset; bytes below are durable at the hub */
	WORK_EV_OUTPUT = 0x0226,	/* W: struct work_output + 1..WORK_DATA_MAX bytes */
	WORK_EV_GAP = 0x0228,		/* W: struct work_gap */
	WORK_EV_OUTPUT_END = 0x022a,	/* W: struct work_output_end */
	WORK_EV_RESULT = 0x022c,	/* W: struct work_result, with bundle_bytes 1 fd to read it from; behind the WORKLOAD with WORK_F_RESULT */

	WORK_EV_DELIVERED = 0x0230,	/* C: struct work_ref; the hub has the terminal status: forget it */
	WORK_EV_DISOWN = 0x0232,	/* C: struct work_ref; the hub does not know it: TERM, KILL after the grace */
	WORK_EV_SESSION = 0x0234,	/* C: struct work_session */

	/* See inventory.h. After CAPS, and before the answer to C's request. */
	WORK_REQ_INVENTORY = 0x0240,	/* C: empty */
	WORK_ANS_INVENTORY = 0x0241,	/* W: empty */
	WORK_EV_USB = 0x0242,		/* W: struct work_usb; a device of the list that INVENTORY ends */
	WORK_EV_INVENTORY = 0x0244,	/* W: struct work_inventory */

	WORK_REQ_REVOKE = 0x0270,	/* C: struct work_revoke */
	WORK_ANS_REVOKE = 0x0271,	/* W: wire, work_report_decode() */
	WORK_REQ_REFRESH = 0x0272,	/* C: items of secrets.h, files of one lease; or empty + 1 sealed memfd with the same */
	WORK_ANS_REFRESH = 0x0273,	/* W: wire, work_report_decode() */
	/* See harness.h. */
	WORK_REQ_HARNESS = 0x02c0,	/* C: struct harness_ask */
	WORK_ANS_HARNESS = 0x02c1,	/* W: struct harness_done, when it is there or will not be; a new INVENTORY comes before */
	/* See device.h. */
	WORK_REQ_DEVICE = 0x0260,	/* C: struct device_open */
	WORK_ANS_DEVICE = 0x0261,	/* W: struct device_answer; with ok 1 descriptor, the stream on which the kernel speaks USB/IP */
	WORK_EV_DEVICE = 0x0262,	/* W: struct device_info; whenever it has changed, last with DEVICE_CLOSED */
	WORK_EV_DEVICE_CLOSE = 0x0264,	/* C: struct device_ref; one that is not there is no error */
	WORK_EV_DEVICE_CAPS = 0x0266,	/* W: struct device_offer; after CAPS, and whenever it has changed */
};

struct work_caps {
	uint32_t slots;			/* max_concurrent */
	uint32_t cpus;
	uint64_t memory_kb;
	uint8_t cgroup;			/* 0 none, 1 hybrid (v2 tree without controllers), 2 v2 */
	uint8_t uid_pool;		/* 1: each top-level work directory has its own uid */
	uint16_t sandbox;		/* LAUNCH_PART_* every workload gets; NET: those that ask for it */
	int32_t landlock_abi;		/* 0 = none, or not applied */
	char work_root[256];
};
static_assert(sizeof(struct work_caps) == 280, "wire size");

#define WORK_F_DRAINING		0x01u	/* in work_answer of START: refused because of a drain */
#define WORK_F_DISOWNED		0x02u	/* in work_workload: not to be listed to the hub any more */
#define WORK_F_DIGEST		0x04u	/* in work_workload: log_xxh3 is valid */
#define WORK_F_WAITS		0x08u	/* in work_workload, to edgectl only: it is stopped from writing until the hub has taken more of its output */
#define WORK_F_RESULT		0x10u	/* in work_workload, ENDED only: RESULT follows and goes to the hub before the status */

struct work_workload {
	uint32_t wid;
	uint8_t state;			/* enum work_state */
	uint8_t outcome;		/* enum work_outcome; NONE unless state is ENDED */
	uint8_t flags;			/* WORK_F_* */
	uint8_t limit;			/* enum work_limit; NONE unless outcome is LIMIT */
	int32_t pid;			/* of the main process, 0 = none yet */
	int32_t exit_code;		/* EXITED only */
	int32_t term_signal;		/* SIGNALLED, CANCELLED, TIMEOUT: the signal, 0 = exited on its own */
	uint32_t gaps;			/* gap records in the output so far */
	int64_t started_at;		/* CLOCK_REALTIME ns, 0 = not started */
	int64_t finished_at;		/* CLOCK_REALTIME ns, 0 = running */
	uint64_t produced;		/* bytes of output so far */
	uint64_t retained_from;		/* first offset still held */
	union {
		struct {
			uint64_t cpu_ms, mem_peak_kb, io_read, io_write;	/* usage, ENDED only; 0 = unknown */
		};
		struct {	/* bytes, where work_over_disk() says so: of a container, of whose usage nothing is known */
			uint64_t disk_used, disk_limit;
		};
	};
	uint8_t log_xxh3[16];		/* canonical XXH3-128 of the output, ENDED only */
	char handle[72];		/* handle_ok(), zero-padded */
	char error[208];		/* one sentence for the operator, may be empty */
};
static_assert(sizeof(struct work_workload) == 384, "wire size");

struct work_ref {
	uint32_t wid;
	uint32_t reserved;
};
static_assert(sizeof(struct work_ref) == 8, "wire size");

struct work_answer {
	uint32_t refusal;	/* enum work_refusal */
	uint32_t wid;		/* 0 when refused */
	uint32_t flags;		/* WORK_F_DRAINING */
	uint32_t reserved;
	char error[208];	/* empty when WORK_OK */
};
static_assert(sizeof(struct work_answer) == 224, "wire size");

struct work_signal {
	char handle[72];
	int32_t signo;		/* SIGINT, SIGTERM or SIGKILL */
	int32_t reserved;
};
static_assert(sizeof(struct work_signal) == 80, "wire size");

struct work_sub {
	uint32_t wid;
	uint32_t epoch;		/* chosen by C, grows with each SUB of a wid */
	uint64_t from;		/* first offset wanted */
	uint64_t limit;		/* first offset that may not be sent yet */
};
static_assert(sizeof(struct work_sub) == 24, "wire size");

struct work_offset {
	uint32_t wid;
	uint32_t reserved;
	uint64_t offset;
};
static_assert(sizeof(struct work_offset) == 16, "wire size");

/* As long as the edgeward.1 stream header, so that C writes that header over it and sends the record in place. */
struct work_output {
	uint32_t wid;
	uint32_t epoch;
	uint64_t offset;	/* of the first byte that follows */
};
static_assert(sizeof(struct work_output) == 16, "wire size");

struct work_gap {
	uint32_t wid;
	uint32_t epoch;
	uint64_t from, to;	/* [from, to) is gone */
	uint32_t reason;	/* enum work_gap_reason */
	uint32_t reserved;
};
static_assert(sizeof(struct work_gap) == 32, "wire size");

struct work_output_end {
	uint32_t wid;
	uint32_t epoch;
	uint64_t total;		/* final byte count */
	uint8_t xxh3[16];
	uint32_t has_digest;
	uint32_t reserved;
};
static_assert(sizeof(struct work_output_end) == 40, "wire size");

#define WORK_RESULT_BACK	0x1u	/* there is a write-back */
#define WORK_RESULT_PUSHED	0x2u
#define WORK_RESULT_SKIPPED	0x4u	/* there was nothing to bring back; error says why */
#define WORK_RESULT_PROJECT	0x8u	/* the workload was seeded */

struct work_result {
	uint32_t wid;
	uint32_t flags;			/* WORK_RESULT_* */
	uint32_t mode;			/* enum job_back */
	uint32_t commits, files;
	uint32_t reserved;
	uint64_t bundle_bytes;		/* 0 = none */
	char branch[208];
	char commit[48], base[48];	/* 40 digits or empty */
	char error[208];
	char project[160];		/* the document, base64; or empty, and project_error says why */
	char project_error[208];
};
static_assert(sizeof(struct work_result) == 912, "wire size");
struct work_revoke {
	char lease[132];	/* not empty */
	char grant[132];	/* empty = the whole lease */
	uint32_t kill;		/* 1: also end whoever holds it */
	uint32_t reserved;
};
static_assert(sizeof(struct work_revoke) == 272, "wire size");

/*
 * What became of a revocation or a refresh: numbers, then names. The names are views into the record, C strings that follow each
 * other: first nenv variables whose values workerd has given up, then nhandles workloads (ended by a revocation, with a new file after a refresh).
 */
#define WORK_REPORT_MAX	49152u	/* bytes of an encoded report */
struct work_report {
	uint32_t known;		/* 1: some workload here holds the lease, or the grant */
	uint32_t files;		/* removed, or rewritten */
	uint32_t nenv, nhandles;
	char error[208];	/* what could not be done; may be empty */
	const char *names;
	size_t names_len;
};
int work_report_encode(const struct work_report *rep, void *buf, size_t size, size_t *ret_len);
/* -EBADMSG unless there are exactly nenv + nhandles names. */
int work_report_decode(struct work_report *ret_rep, const void *data, size_t len);

enum work_dialect {
	WORK_DIALECT_NONE = 0,
	WORK_DIALECT_CLOOP = 1,
	WORK_DIALECT_EDGEWARD1 = 2,
};

struct work_session {
	uint32_t up;		/* 1: a session is published, output may wait for the hub */
	uint32_t dialect;	/* enum work_dialect */
};
static_assert(sizeof(struct work_session) == 8, "wire size");

/* The work directory held more than its limit: at the end, or before it began, which refuses the start. */
static inline bool
work_over_disk(const struct work_workload *w)
{
	return (w->state == WORK_PENDING || w->limit == WORK_LIMIT_DISK) && w->disk_limit != 0;
}

/* True if a received workload record is well formed (strings terminated, enums known, flags known). */
bool work_workload_ok(const struct work_workload *w);
bool work_result_ok(const struct work_result *r);

#endif
