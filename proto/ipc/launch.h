/*
 * workerd (W) and its launcher (L), over a socketpair on W's descriptor 3; and workinit (I), which starts one workload
 * and waits for it, with W over a socketpair that L made.
 *
 * L keeps a copy of every descriptor of a workload (output pipe, init channel, record, report), so a workerd that was
 * killed gets everything back: after HELLO L sends READY, one HELD per workload, HELD_END, and ENDED again for those that
 * have ended. What I has to say it writes into the report, a memfd of 64 bytes, where it survives W as well; the record is
 * W's alone.
 */
#ifndef EDGEWARD_PROTO_LAUNCH_H
#define EDGEWARD_PROTO_LAUNCH_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/secrets.h"

enum launch_type {
	LAUNCH_EV_READY = 0x0400,	/* L: struct launch_ready */
	LAUNCH_EV_HELD = 0x0402,	/* L: struct launch_held + 4 fds: output (read), init channel, record, report */
	LAUNCH_EV_HELD_END = 0x0404,	/* L: empty */

	LAUNCH_REQ_START = 0x0410,	/* W: struct launch_start + 4 or 5 fds: sealed memfd with a work_spec, record memfd,
					 * report memfd, work root; and what its process gets as descriptor 0. One that has
					 * ended gives way to the next stage of the same handle */
	LAUNCH_ANS_START = 0x0411,	/* L: struct launch_held + 2 fds: output (read), init channel; or empty and
					 * hdr.status */
	LAUNCH_EV_KILL = 0x0412,	/* W: struct launch_ref; the whole tree. A handle that is gone is no error */
	LAUNCH_EV_ENDED = 0x0414,	/* L: struct launch_ended; workinit is reaped, the cgroup is empty and removed */
	LAUNCH_EV_FORGET = 0x0416,	/* W: struct launch_ref; L drops its copies. Only after ENDED */
};

#define LAUNCH_WATCHDOG	"EDGEWARD_WATCHDOG_USEC"	/* variable for W: L's own WATCHDOG_USEC, if it has one */

/* The init channel has no HELLO: I is a copy of L, and W has checked L. */
enum init_type {
	INIT_EV_STARTED = 0x0500,	/* I: struct launch_report; execve of the payload succeeded */
	INIT_EV_SIGNAL = 0x0506,	/* W: struct init_signal; to the main process */
	INIT_REQ_SECRET = 0x0508,	/* W: struct init_secret; REPLACE: + 1 fd, a sealed memfd with the content */
	INIT_ANS_SECRET = 0x0509,	/* I: struct init_done */
	/* Of one started with LAUNCH_PART_LINKS. */
	INIT_REQ_NETNS = 0x050a,	/* W: empty */
	INIT_ANS_NETNS = 0x050b,	/* I: one descriptor, its network namespace; or hdr.status */
	INIT_REQ_ADDRESSES = 0x050c,	/* W: struct l2_addresses, see l2.h */
	INIT_ANS_ADDRESSES = 0x050d,	/* I: hdr.status */
};

/* How the end of a workload is enforced on this machine. */
enum launch_tree {
	LAUNCH_TREE_NONE = 0,		/* neither is possible here: only the main process dies for certain */
	LAUNCH_TREE_CGROUP = 1,		/* cgroup.kill and populated 0 */
	LAUNCH_TREE_PIDNS = 2,		/* no cgroup was delegated: a pid namespace, killed with its pid 1 */
};

#define LAUNCH_CTL_MEMORY	0x1u
#define LAUNCH_CTL_PIDS		0x2u
#define LAUNCH_CTL_CPU		0x4u
#define LAUNCH_CTL_IO		0x8u

/*
 * Parts of a workload's confinement. READY says which this machine can give, START which to apply: all of them, or the
 * start fails. Those of LAUNCH_PARTS_IN_USER need LAUNCH_PART_USER.
 */
#define LAUNCH_PART_USER	0x001u	/* a user namespace that knows the runner's id alone */
#define LAUNCH_PART_MOUNT	0x002u	/* its own view of the file system (workerd/launcher/view.c) */
#define LAUNCH_PART_PID		0x004u	/* workinit is pid 1 and sees nothing outside */
#define LAUNCH_PART_IPC		0x008u
#define LAUNCH_PART_UTS		0x010u
#define LAUNCH_PART_NET		0x020u	/* START: no network but a loopback of its own */
#define LAUNCH_PART_PROC	0x040u	/* a /proc of its own; with MOUNT but without this it sees the machine's */
#define LAUNCH_PART_LANDLOCK	0x080u
#define LAUNCH_PART_SECCOMP	0x100u
#define LAUNCH_PART_FILTER	0x200u	/* START: with NET; a way out of it, filtered as the spec says */
#define LAUNCH_PART_LINKS	0x400u	/* START, with NET: it may get interfaces. workinit, and no payload, keeps CAP_NET_ADMIN in its user namespace */
#define LAUNCH_PART_CARRIER	0x800u	/* START: no payload, a carrier of one file (file.h); its socket is descriptor 0 */
#define LAUNCH_PARTS_IN_USER	(LAUNCH_PART_MOUNT | LAUNCH_PART_PID | LAUNCH_PART_IPC | LAUNCH_PART_UTS | LAUNCH_PART_NET | \
				LAUNCH_PART_PROC | LAUNCH_PART_FILTER)
#define LAUNCH_PARTS_UID	(LAUNCH_PART_LANDLOCK | LAUNCH_PART_SECCOMP)	/* sandbox-level = uid */
#define LAUNCH_PARTS_NAMESPACES	(LAUNCH_PARTS_UID | LAUNCH_PART_USER | \
				(LAUNCH_PARTS_IN_USER & ~(LAUNCH_PART_NET | LAUNCH_PART_FILTER)))
/* What FILTER needs: nothing it is made of may be in reach of the payload. */
#define LAUNCH_PARTS_FILTERED	(LAUNCH_PART_FILTER | LAUNCH_PART_NET | LAUNCH_PART_USER | LAUNCH_PART_MOUNT | LAUNCH_PART_PID | \
				LAUNCH_PART_PROC | LAUNCH_PART_SECCOMP | LAUNCH_PART_LANDLOCK)
#define LAUNCH_PARTS_ALL	(LAUNCH_PARTS_NAMESPACES | LAUNCH_PART_NET)	/* a machine without FILTER lacks nothing of the sandbox */
#define LAUNCH_PARTS_KNOWN	(LAUNCH_PARTS_ALL | LAUNCH_PART_FILTER)

/* What FILTER runs, as the runner. */
#define LAUNCH_NFT	"/usr/sbin/nft"
#define LAUNCH_PASTA	"/usr/bin/pasta"
#define LAUNCH_TUN	"/dev/net/tun"
extern const char *const launch_files[];	/* these, NULL behind the last */

enum filter_issue { FILTER_WORKS, FILTER_NO_NAMESPACES, FILTER_NO_NFT, FILTER_NO_PASTA, FILTER_NO_TUN, FILTER_FAILED, FILTER_ISSUES };

#define LAUNCH_SHOW_SIZE	200
#define LAUNCH_STAGE_MAX	15u
#define LAUNCH_STAGE_CARRIER	15u	/* no workload's: workerd knows its carriers by it */

/* The launcher may change uids and has none to change to: it takes up the pool, once it is there, before it starts the next workerd. */
#define LAUNCH_POOL_AWAITED	1u

struct launch_ready {
	uint32_t pool_first;		/* first runner uid; without a pool LAUNCH_POOL_AWAITED or 0 */
	uint32_t pool_count;		/* 0: no uid switch, workloads run as this process's own uid */
	uint32_t pool_gid;
	uint8_t tree;			/* enum launch_tree */
	uint8_t cgroup;			/* 0 none, 1 hybrid, 2 v2 */
	uint8_t controllers;		/* LAUNCH_CTL_*: limits that can be set */
	uint8_t landlock_abi;		/* 0 = none */
	int32_t pid;			/* of the launcher */
	uint32_t parts;			/* LAUNCH_PART_* this machine gives, tried at start */
	uint64_t instance;		/* random per launcher start; records of another instance are lost work */
	char build[32];
};
static_assert(sizeof(struct launch_ready) == 64, "wire size");

/* The one fixed struct root-equivalent code reads. The launcher checks every field again. */
struct launch_start {
	char handle[72];
	uint32_t slot;			/* runner id = pool_first + slot; must be 0 when pool_count is 0 */
	uint32_t nofile;		/* RLIMIT_NOFILE, 0 = inherit */
	uint64_t memory_bytes;		/* 0 = none; refused where the controller is not delegated */
	uint64_t io_rate;		/* bytes a second each way on the disk io_major:io_minor */
	uint32_t io_major, io_minor;
	uint32_t pids;
	uint32_t cpu_millis;
	int32_t nice;			/* 0..19 */
	int32_t oom_score_adj;		/* 0..1000 */
	uint32_t parts;			/* LAUNCH_PART_* */
	uint32_t stage;			/* of the workload; L only keeps and repeats it */
	char show[LAUNCH_SHOW_SIZE];	/* directories to see read-only besides the system's, separated by one space */
};
static_assert(sizeof(struct launch_start) == 328, "wire size");

struct launch_held {
	char handle[72];
	uint32_t slot;
	int32_t pid;			/* of workinit, for show: nobody signals by it */
	uint8_t ended;			/* HELD only: ENDED follows */
	uint8_t reserved[3];
	uint32_t stage;
};
static_assert(sizeof(struct launch_held) == 88, "wire size");

struct launch_ref {
	char handle[72];
};
static_assert(sizeof(struct launch_ref) == 72, "wire size");

struct launch_ended {
	char handle[72];
	int32_t wstatus;		/* of workinit, as wait4 gave it */
	uint16_t killed;		/* 1: the tree was killed on request of W */
	uint16_t stage;
	uint64_t cpu_ms;		/* of the cgroup (cpu.stat), else of the children; 0 = unknown */
	uint64_t mem_peak_kb;		/* memory.peak where there is one, else ru_maxrss */
	uint64_t io_read, io_write;
	uint32_t oom_kills;		/* memory.events oom_kill */
	uint32_t pids_max;		/* pids.events max */
};
static_assert(sizeof(struct launch_ended) == 120, "wire size");

/* Where a start failed; errno says why. */
enum init_stage {
	INIT_STAGE_IDS = 1,		/* setgroups, setresgid, setresuid, capabilities */
	INIT_STAGE_WORKDIR = 2,		/* errno EXDEV, ELOOP, ENOTDIR: outside the root */
	INIT_STAGE_LIMITS = 3,
	INIT_STAGE_FDS = 4,
	INIT_STAGE_SANDBOX = 5,		/* not in use */
	INIT_STAGE_EXEC = 6,
	INIT_STAGE_SPEC = 7,
	INIT_STAGE_USER = 8,		/* the user namespace and its one id */
	INIT_STAGE_NAMESPACES = 9,	/* the others */
	INIT_STAGE_NET = 10,		/* loopback */
	INIT_STAGE_VIEW = 11,		/* mounts */
	INIT_STAGE_PROC = 12,
	INIT_STAGE_CAPS = 13,
	INIT_STAGE_LANDLOCK = 14,
	INIT_STAGE_SECCOMP = 15,
	INIT_STAGE_RULES = 16,		/* FILTER: nft */
	INIT_STAGE_PASTA = 17,		/* FILTER: the way out */
	INIT_STAGE_CHECK = 18,		/* FILTER: the check that it holds */
	INIT_STAGE_SECRETS = 19,	/* placing secret files */
};

struct init_started {
	int32_t pid;			/* of the payload */
	uint32_t reserved;
	int64_t started_at;		/* CLOCK_REALTIME ns */
};
static_assert(sizeof(struct init_started) == 16, "wire size");

struct init_failed {
	uint32_t stage;			/* enum init_stage */
	int32_t error;			/* positive errno */
};
static_assert(sizeof(struct init_failed) == 8, "wire size");

struct init_exited {
	int32_t wstatus;		/* of the payload, as wait4 gave it */
	uint32_t reserved;
	uint64_t cpu_ms;
	uint64_t maxrss_kb;
	int64_t finished_at;		/* CLOCK_REALTIME ns */
};
static_assert(sizeof(struct init_exited) == 32, "wire size");

/*
 * What workinit says: the content of the report memfd. A claim of code that runs under the runner's uid: the reader checks
 * it, and ENDED decides.
 */
#define LAUNCH_REPORT_STARTED	0x1u
#define LAUNCH_REPORT_FAILED	0x2u
#define LAUNCH_REPORT_EXITED	0x4u
#define LAUNCH_REPORT_NETWORK	0x8u	/* with STARTED: the way out of a filtered network ended first, so workinit ended the payload */

struct launch_report {
	uint32_t flags;			/* LAUNCH_REPORT_*: which parts are set */
	uint32_t reserved;
	struct init_started started;
	struct init_failed failed;
	struct init_exited exited;
};
static_assert(sizeof(struct launch_report) == 64, "wire size");

struct init_signal {
	int32_t signo;
	uint32_t reserved;
};
static_assert(sizeof(struct init_signal) == 8, "wire size");

/* The checks the launcher and the fuzzer share. ready is what the launcher itself announced. */
bool launch_show_ok(const char *show);	/* clean absolute paths, one space between two; "" is none */
void launch_show_order(char *show);	/* what passed the above: a directory before those below it, which it would cover if it were mounted later */
/* "user namespaces, seccomp": the parts by name; 0 gives "". Cut at size. */
void launch_parts_text(uint32_t parts, char *buf, size_t size);
const char *launch_filter_issue_text(enum filter_issue issue);
bool launch_start_ok(const struct launch_start *s, const struct launch_ready *ready);
bool launch_ref_ok(const struct launch_ref *r);
bool launch_held_ok(const struct launch_held *h, const struct launch_ready *ready);

#endif
