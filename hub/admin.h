/*
 * The operator protocol on DATADIR/admin.sock: records of proto/ipc/ipc.h. HELLO both ways (role CONTROL), then one answer for each
 * request, with its id. Lists are EV records before the answer. A failed answer has status -errno and struct admin_text with one sentence.
 *
 * FOLLOW streams a log: EV_LOG and EV_GAP in order of their offsets, then EV_END once. The server reads the file only as fast as the
 * socket takes records, so a slow reader costs nothing. A client mints the handle of a run itself: asking twice starts it once.
 */
#ifndef EDGEWARD_HUB_ADMIN_H
#define EDGEWARD_HUB_ADMIN_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "hub/adminstart.h"
#include "hub/egress.h"
#include "hub/runinfo.h"
#include "hub/token.h"
#include "proto/ipc/device.h"
#include "proto/ipc/ipc.h"
#include "proto/ipc/wire.h"

#define ADMIN_LOG_MAX	65536u
#define ADMIN_MAX	(ADMIN_LOG_MAX + 64u)	/* payload of a record */
#define ADMIN_SOCK	"admin.sock"
#define ADMIN_ARGS_MAX	4096u			/* argv and env together */
#define ADMIN_SPEC_MAX	(900u * 1024)		/* a start frame must fit into one message */

enum admin_type {
	ADMIN_REQ_STATUS = 0x0600,	/* empty */
	ADMIN_ANS_STATUS = 0x0601,	/* struct admin_status */
	ADMIN_REQ_TOKEN = 0x0602,	/* struct admin_token_req */
	ADMIN_ANS_TOKEN = 0x0603,	/* struct admin_token */
	ADMIN_REQ_DEVICES = 0x0604,	/* empty */
	ADMIN_ANS_DEVICES = 0x0605,
	ADMIN_EV_DEVICE = 0x0606,	/* struct admin_device + capabilities as JSON, cut off when too long */
	ADMIN_REQ_RUNS = 0x0608,	/* struct admin_runs_req */
	ADMIN_ANS_RUNS = 0x0609,
	ADMIN_EV_RUN = 0x060a,		/* struct admin_run */
	ADMIN_REQ_RUN = 0x060c,		/* wire: struct admin_start; or empty + 1 sealed memfd with the same bytes, and behind it the bundle of a bundle workspace */
	ADMIN_ANS_RUN = 0x060d,		/* struct admin_text: handle */
	ADMIN_REQ_FOLLOW = 0x0610,	/* struct admin_follow */
	ADMIN_ANS_FOLLOW = 0x0611,	/* struct admin_run */
	ADMIN_EV_LOG = 0x0612,		/* struct admin_log + 1..ADMIN_LOG_MAX bytes */
	ADMIN_EV_GAP = 0x0614,		/* struct admin_gap */
	ADMIN_EV_END = 0x0616,		/* struct admin_run */
	ADMIN_REQ_SHELL = 0x0628,	/* as ADMIN_REQ_RUN, of a run that ends with this connection */
	ADMIN_ANS_SHELL = 0x0629,	/* struct admin_text: handle */
	ADMIN_EV_AWAY = 0x0626,		/* struct admin_away: the device of a run that is followed */
	ADMIN_REQ_SIGNAL = 0x0618,	/* struct admin_signal */
	ADMIN_ANS_SIGNAL = 0x0619,	/* struct admin_text */
	ADMIN_REQ_TOKENS = 0x061c,	/* empty */
	ADMIN_ANS_TOKENS = 0x061d,
	ADMIN_EV_TOKEN = 0x061e,	/* struct admin_token, its token empty */
	ADMIN_REQ_TOKEN_REVOKE = 0x0620,	/* struct admin_text: token id */
	ADMIN_ANS_TOKEN_REVOKE = 0x0621,	/* struct admin_text: the device it had enrolled, or empty */
	ADMIN_REQ_RESULT = 0x0630,	/* struct admin_text: handle */
	ADMIN_ANS_RESULT = 0x0631,	/* JSON, and 1 fd to read the bundle from if there is one */
	ADMIN_REQ_SECRET_REVOKE = 0x0650,	/* struct admin_secret_revoke */
	ADMIN_ANS_SECRET_REVOKE = 0x0651,	/* struct admin_text: what the device did */
	ADMIN_REQ_SECRET_REFRESH = 0x0652,	/* empty + 1 sealed memfd: wire, handle and items of secrets.h */
	ADMIN_ANS_SECRET_REFRESH = 0x0653,	/* struct admin_text */
	ADMIN_REQ_USB = 0x0640,		/* struct admin_usb + 1 descriptor: a connection to a usbipd */
	ADMIN_ANS_USB = 0x0641,		/* struct admin_usb_item; sent when the device has opened it */
	ADMIN_EV_USB = 0x0642,		/* struct admin_usb_item; nodes have come, or one of the list */
	ADMIN_EV_USB_END = 0x0644,	/* struct admin_usb_item: error says why */
	ADMIN_REQ_USB_LIST = 0x0646,	/* empty */
	ADMIN_ANS_USB_LIST = 0x0647,
	ADMIN_REQ_L2 = 0x0660,		/* struct admin_l2 + 1 descriptor: a stream socket that carries the records */
	ADMIN_ANS_L2 = 0x0661,		/* struct admin_l2_item; sent when the device has the interface */
	ADMIN_REQ_L2_TAP = 0x0664,	/* struct admin_l2_tap + 1 descriptor: a TAP, of which each read is a frame, with a virtio_net_hdr when there is offload */
	ADMIN_ANS_L2_TAP = 0x0665,	/* empty */
	ADMIN_EV_L2_END = 0x0662,	/* struct admin_text: why */
	ADMIN_REQ_PIPE = 0x06a0,	/* struct admin_pipe + 1 descriptor: a stream socket for the bytes */
	ADMIN_ANS_PIPE = 0x06a1,	/* empty; sent when the device has opened it */
	ADMIN_EV_PIPE_END = 0x06a2,	/* struct admin_text, id of the request: why it ended, unless in good order */
	ADMIN_REQ_FILE = 0x0690,	/* struct admin_file + 1 descriptor: a SOCK_SEQPACKET socket that carries the records of file.h */
	ADMIN_ANS_FILE = 0x0691,	/* struct admin_file_item; sent when the device has opened it */
	ADMIN_REQ_UPGRADE = 0x0622,	/* struct admin_upgrade_req; and 1 descriptor of the release file, or none */
	ADMIN_ANS_UPGRADE = 0x0623,	/* struct admin_upgrade: how it ended; or struct admin_text */
	ADMIN_EV_UPGRADE = 0x0624,	/* struct admin_upgrade: how it goes */
	ADMIN_REQ_REVOKE = 0x061a,	/* struct admin_text: device */
	ADMIN_ANS_REVOKE = 0x061b,	/* struct admin_text: its id */
	ADMIN_REQ_HARNESS = 0x06b0,	/* struct admin_harness_req */
	ADMIN_ANS_HARNESS = 0x06b1,	/* struct admin_harness, or struct admin_text */
};

struct admin_text {
	char text[256];
};
static_assert(sizeof(struct admin_text) == 256, "wire size");

struct admin_status {
	int32_t pid;
	uint32_t devices, connected, open_runs, connections, clients;
	int64_t started;		/* CLOCK_REALTIME ns */
	uint64_t sessions, refused;	/* since start */
	uint64_t rx_bytes, tx_bytes, log_bytes;
	uint8_t durable;		/* 0: -y nosync */
	uint8_t reserved[7];
	char build[32];
	char pin[64];
	char url[256];
};
static_assert(sizeof(struct admin_status) == 432, "wire size");

struct admin_token_req {
	char name[64];
	int64_t ttl_ms;			/* 0 = default */
};
static_assert(sizeof(struct admin_token_req) == 72, "wire size");

struct admin_token {			/* secret */
	int64_t created, expires, used;	/* CLOCK_REALTIME ns; used 0 = not yet */
	uint32_t revoked, reserved;
	char id[24];
	char device[24];		/* it has enrolled */
	char token[112];
	char name[64];
	char pin[64];
	char url[256];
};
static_assert(sizeof(struct admin_token) == 576, "wire size");

struct admin_device {
	int64_t created, last_seen, since;	/* CLOCK_REALTIME ns; since: of the session, 0 = not connected */
	uint64_t epoch;
	uint8_t connected, revoked, edgeward;
	uint8_t reserved[5];
	char id[24];
	char name[64];
	char version[64];
	char peer[64];
};
static_assert(sizeof(struct admin_device) == 256, "wire size");

#define ADMIN_RUNS_PAGE	500u
#define ADMIN_RUNS_OPEN	0x1u		/* only those not final */

struct admin_runs_req {
	char device[64];		/* empty = all */
	uint32_t flags;
	uint32_t max;			/* newest first; at most and by default ADMIN_RUNS_PAGE */
	int64_t before;			/* made earlier than this (CLOCK_REALTIME ns), 0 = no limit: the next page */
};
static_assert(sizeof(struct admin_runs_req) == 80, "wire size");

#define ADMIN_RUN_GAPPED	0x1u
#define ADMIN_RUN_DIGEST	0x2u	/* digest is what the device told */
#define ADMIN_RUN_TIMED_OUT	0x4u
#define ADMIN_RUN_CONNECTED	0x8u	/* its device is */

struct admin_run {
	uint32_t state, verify;		/* enum run_state, enum run_verify */
	int32_t exit_code, pid;
	int32_t term_signal;
	uint32_t reserved;
	uint32_t flags, ngaps;
	int64_t created, started, finished, timeout_ms, final_offset;
	uint64_t bytes, durable;	/* offset of the next byte, first not on disk */
	uint64_t gap_from, gap_to;	/* the first gap */
	uint8_t digest[16];
	char handle[72];
	char device[24];
	char device_name[64];
	char outcome[16], limit[16], code[24];
	char error[256];
	char command[256];
	char work_dir[256];
};
static_assert(sizeof(struct admin_run) == 1104, "wire size");

#define ADMIN_FOLLOW_WAIT	0x1u	/* until the run has ended; else until what is there has been sent */

struct admin_follow {
	char handle[72];		/* or a unique beginning */
	uint64_t from;
	uint32_t flags;
	uint32_t reserved;
};
static_assert(sizeof(struct admin_follow) == 88, "wire size");

struct admin_log {
	uint64_t offset;
};
static_assert(sizeof(struct admin_log) == 8, "wire size");

struct admin_gap {
	uint64_t from, to;
	uint32_t reason;
	uint32_t reserved;
};
static_assert(sizeof(struct admin_gap) == 24, "wire size");

enum admin_presence { ADMIN_BACK, ADMIN_SILENT, ADMIN_AWAY };

struct admin_away {
	int64_t since;			/* CLOCK_REALTIME ns: when it was heard last */
	uint32_t state;			/* enum admin_presence */
	uint32_t reserved;
	char device[64];		/* its name, or id */
	char why[64];			/* it is away, as far as is known */
};
static_assert(sizeof(struct admin_away) == 144, "wire size");

struct admin_signal {
	char handle[72];		/* or a unique beginning */
	char signal[16];		/* "interrupt", "terminate", "kill" */
};
static_assert(sizeof(struct admin_signal) == 88, "wire size");

struct admin_secret_revoke {
	char handle[72];		/* or a unique beginning */
	char name[132];			/* of one secret; empty = all of the run */
	uint32_t kill;			/* 1: also end the run */
	uint32_t reserved;
};
static_assert(sizeof(struct admin_secret_revoke) == 212, "wire size");

/* True if every string of a received record is terminated and padded; one for each struct that has strings. */
bool admin_token_req_ok(const struct admin_token_req *req);
bool admin_runs_req_ok(const struct admin_runs_req *req);
bool admin_away_ok(const struct admin_away *ev);
bool admin_follow_ok(const struct admin_follow *req);
bool admin_secret_revoke_ok(const struct admin_secret_revoke *req);
bool admin_signal_ok(const struct admin_signal *req);
bool admin_text_ok(const struct admin_text *text);

#endif
