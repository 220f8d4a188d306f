/*
 * The operator protocol on connectd.sock and workerd.sock. One request, one answer with the same id; a list is
 * several EV records with that id before the answer. The client sends HELLO first and gets HELLO back; when the builds
 * differ it says so. Long waits: a LOGS request with CTL_LOGS_WAIT is answered when there is something to say.
 */
#ifndef EDGEWARD_PROTO_CTL_H
#define EDGEWARD_PROTO_CTL_H

#include <assert.h>
#include <stdint.h>

#include "proto/ipc/names.h"

enum ctl_type {
	CTL_REQ_STATUS = 0x0300,	/* both daemons, empty */
	CTL_ANS_STATUS = 0x0301,	/* struct ctl_connectd_status or struct ctl_workerd_status */
	CTL_REQ_METRICS = 0x0304,	/* both daemons, empty: what is counted with a label */
	CTL_EV_METRIC = 0x0306,		/* struct ctl_metric */
	CTL_ANS_METRICS = 0x0305,
	CTL_REQ_EVENTS = 0x0308,	/* both daemons, struct ctl_events: what happened, oldest first, at most CTL_EVENTS_MAX */
	CTL_EV_EVENT = 0x030a,		/* struct ctl_event */
	CTL_ANS_EVENTS = 0x0309,	/* struct ctl_events: where the next request goes on */

	/* connectd */
	CTL_REQ_RECONNECT = 0x0310,	/* empty: dial now */
	CTL_ANS_RECONNECT = 0x0311,
	CTL_REQ_ENROLL = 0x0312,	/* struct ctl_enroll */
	CTL_ANS_ENROLL = 0x0313,	/* struct ctl_text: identity or the reason; sent when the hub has answered */
	CTL_REQ_UPGRADE = 0x0314,	/* struct ctl_upgrade: of what a hub asked for and connectd fetches */
	CTL_ANS_UPGRADE = 0x0315,	/* struct ctl_text: how far it is; -ENOENT: there is none */

	/* workerd */
	CTL_REQ_WORKLOADS = 0x0320,	/* empty */
	CTL_EV_WORKLOAD = 0x0322,	/* struct work_workload of proto/ipc/work.h; its command line follows, without NUL, if it is known */
	CTL_ANS_WORKLOADS = 0x0321,
	CTL_REQ_LOGS = 0x0324,		/* struct ctl_logs */
	CTL_ANS_LOGS = 0x0325,		/* struct ctl_log_data + up to CTL_LOG_MAX bytes */
	CTL_REQ_SIGNAL = 0x0326,	/* struct work_signal */
	CTL_ANS_SIGNAL = 0x0327,	/* struct work_answer */
	CTL_REQ_DRAIN = 0x0328,		/* struct ctl_drain */
	CTL_ANS_DRAIN = 0x0329,		/* struct ctl_drain: what holds now, active = workloads still running */
	CTL_REQ_POLICY = 0x0340,	/* empty */
	CTL_EV_POLICY_KEY = 0x0342,	/* struct ctl_policy_key + its value */
	CTL_ANS_POLICY = 0x0341,	/* struct ctl_policy */
	CTL_REQ_DEVICES = 0x0350,	/* empty */
	CTL_EV_DEVICE = 0x0352,		/* struct device_info of proto/ipc/device.h */
	CTL_EV_LINK = 0x0354,		/* struct l2_open of proto/ipc/l2.h; an interface that is up */
	CTL_ANS_DEVICES = 0x0351,	/* struct device_offer */
	CTL_REQ_POLICY_TEST = 0x0344,	/* a work_spec, or empty + 1 sealed memfd with one: would it be started? */
	CTL_ANS_POLICY_TEST = 0x0345,	/* struct ctl_verdict */
};

#define CTL_LOG_MAX	3968u
#define CTL_EVENTS_MAX	128u

/* Stable names of these are the link states of `edgectl status -j`. */
enum ctl_link_state {
	CTL_LINK_STARTING = 0,		/* waiting for workerd's snapshot */
	CTL_LINK_UNENROLLED = 1,	/* no credential and no token */
	CTL_LINK_RESOLVING = 2,
	CTL_LINK_CONNECTING = 3,
	CTL_LINK_PROXY = 4,
	CTL_LINK_TLS = 5,
	CTL_LINK_UPGRADING = 6,		/* HTTP upgrade */
	CTL_LINK_HELLO = 7,
	CTL_LINK_CONNECTED = 8,
	CTL_LINK_WAITING = 9,		/* backoff; next_retry_ms says how long */
	CTL_LINK_STOPPED = 10,		/* the hub said so for good, or the credential cannot be used */
	CTL_LINK_UNCONFIGURED = 11,	/* no hub address at all */
};

#define CTL_CONFIG_CHANGED	"config-changed"	/* cause: a file is another one now than what is in force */

struct ctl_connectd_status {
	int32_t pid;
	uint32_t link;			/* enum ctl_link_state */
	uint32_t dialect;		/* enum work_dialect */
	uint32_t protocol;		/* negotiated cloop version, 0 = no session */
	int64_t since;			/* CLOCK_REALTIME ns of the last change of link */
	int64_t next_retry_ms;		/* until the next attempt, -1 = none planned */
	uint64_t attempts;		/* since the last stable session */
	uint64_t sessions;		/* welcomes since start */
	int64_t last_rx_ms;		/* since the last byte from the hub, -1 = no session */
	int64_t rtt_us;			/* last heartbeat to ack, -1 = unknown */
	uint64_t rx_bytes, tx_bytes;	/* since start */
	int64_t clock_offset_ms;	/* hub's server_time minus ours, INT64_MIN = unknown */
	int64_t clock_floor;		/* CLOCK_REALTIME ns: the least time used for certificate checks */
	uint8_t clock_implausible;	/* 1: our clock is before the floor */
	uint8_t work_up, priv_up;	/* channels to workerd and privhelper */
	uint8_t insecure;		/* 1: plaintext was configured and is in use */
	uint32_t uptime_s;
	int32_t priv_pid;
	uint32_t reserved;
	char build[32], priv_build[32];
	char cause[32];			/* stable code, [a-z0-9-]; empty = all is well */
	char detail[256];		/* one sentence with the next step */
	char hub[256];			/* URL without secrets */
	char peer[64];			/* address and port in use */
	char proxy[128];		/* without credentials; empty = none */
	char agent_id[64];
	char name[64];
};
static_assert(sizeof(struct ctl_connectd_status) == 1040, "wire size");

struct ctl_workerd_status {
	int32_t pid;
	int32_t launcher_pid;
	uint32_t slots, running, pending, undelivered;
	uint32_t draining;		/* 1: new starts are refused */
	uint32_t uptime_s;
	uint64_t started, refused;	/* since start */
	uint64_t output_bytes, gap_bytes;
	uint64_t retained_bytes;
	uint8_t work_up, priv_up, launcher_up;
	uint8_t uid_pool;		/* 0: all workloads share one uid */
	uint8_t cgroup;			/* 0 none, 1 hybrid, 2 v2 */
	uint8_t tree;			/* enum launch_tree */
	uint8_t sandbox_level;		/* 0 namespaces, 1 uid */
	uint8_t landlock_abi;		/* of the kernel, 0 = none */
	uint64_t disk_free, inodes_free;	/* of the work root's file system */
	int32_t priv_pid;
	uint16_t sandbox, sandbox_missing;	/* LAUNCH_PART_*: what workloads get, and what they would if the machine gave it */
	char build[32], launcher_build[32];
	char cause[32];			/* stable code; empty = all is well */
	char detail[256];
	char work_root[256];
	uint64_t spool_bytes, spool_max;	/* on disk; spool_max 0 = [work] spool is off */
};
static_assert(sizeof(struct ctl_workerd_status) == 728, "wire size");

#define CTL_LOGS_WAIT	0x1u		/* answer only when there are bytes at `from` or the workload has ended */

struct ctl_logs {
	char handle[72];
	uint64_t from;
	uint32_t flags;
	uint32_t max;			/* bytes wanted, at most CTL_LOG_MAX */
};
static_assert(sizeof(struct ctl_logs) == 88, "wire size");

#define CTL_LOG_EOF	0x1u		/* no byte will ever follow */
#define CTL_LOG_GAP	0x2u		/* offset is above what was asked for: the bytes between are gone */

struct ctl_log_data {			/* the bytes follow */
	uint64_t offset;		/* of the first byte that follows, or where the next one will be */
	uint32_t flags;
	uint32_t reason;		/* enum work_gap_reason with CTL_LOG_GAP */
};
static_assert(sizeof(struct ctl_log_data) == 16, "wire size");

struct ctl_drain {
	uint32_t on;
	uint32_t active;
};
static_assert(sizeof(struct ctl_drain) == 8, "wire size");

#define CTL_POLICY_VALUE_MAX	3072u

struct ctl_policy_key {			/* the value follows, without NUL */
	uint32_t line;			/* of policy.conf, 0 = the default */
	uint32_t reserved;
	char section[16];
	char name[24];
};
static_assert(sizeof(struct ctl_policy_key) == 48, "wire size");

struct ctl_policy {
	uint32_t denied;		/* 1: problem was there at start: nothing is started */
	uint32_t changed;		/* 1: the file is another one now than what is in force */
	char file[256];
	char problem[512];		/* why the file as it is now cannot be used; empty = it is in force */
};
static_assert(sizeof(struct ctl_policy) == 776, "wire size");

struct ctl_verdict {
	uint32_t refusal;		/* enum work_refusal */
	uint32_t timeout_s;		/* what would hold, the device's defaults put in; 0 = none */
	uint64_t memory_bytes;
	uint32_t pids, cpu_millis;
	char program[196];		/* cut, if it is longer */
	uint32_t network;		/* enum work_network; 0 with a refusal */
	char work_dir[200];
	char error[208];
};
static_assert(sizeof(struct ctl_verdict) == 632, "wire size");

/* Secrets: never logged, wiped after use. */
struct ctl_enroll {
	char url[512];			/* empty with a bundle, or to use the configured hub */
	char token[512];		/* clet1... or cloopenroll1... */
	char pin[256];			/* optional */
	char name[64];			/* optional device label */
	uint32_t replace;		/* 1: drop a credential that exists */
	uint32_t reserved;
};
static_assert(sizeof(struct ctl_enroll) == 1352, "wire size");

struct ctl_metric {			/* since the start of the daemon */
	char name[40];			/* [a-z_]+, without prefix; edgectl/metrics.c knows them all */
	char label[40];			/* value of its label */
	uint64_t value;
};
static_assert(sizeof(struct ctl_metric) == 88, "wire size");

struct ctl_events {
	uint64_t from;			/* the first number that is wanted; numbers begin at 1 */
};
static_assert(sizeof(struct ctl_events) == 8, "wire size");

struct ctl_event {
	uint64_t seq;
	int64_t at;			/* CLOCK_REALTIME ns */
	char kind[24];			/* stable words, see edgectl(8) */
	char subject[72];		/* a handle, a cause; may be empty */
	char text[152];
};
static_assert(sizeof(struct ctl_event) == 264, "wire size");

struct ctl_upgrade {
	uint32_t cancel;		/* 1: end it */
	uint32_t reserved;
};
static_assert(sizeof(struct ctl_upgrade) == 8, "wire size");

struct ctl_text {
	char text[512];
};
static_assert(sizeof(struct ctl_text) == 512, "wire size");

#endif
