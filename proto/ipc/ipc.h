/*
 * Records between Edgeward's processes: header, limits and the pure checks.
 *
 * One record is one AF_UNIX SOCK_SEQPACKET message: struct ipc_hdr, then the payload. Nothing here makes a
 * system call, allocates or logs; common/ipc.c moves the records.
 */
#ifndef EDGEWARD_PROTO_IPC_H
#define EDGEWARD_PROTO_IPC_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Raised only where an older peer would misread a record. One that changes its size needs none: the receiver's row has the exact size and ends
 * the channel, which is made anew when both are of one release. Running work pays for a higher number: its workinit is of the release that
 * started it, and is refused by the next one.
 */
#define IPC_VERSION	2
#define IPC_MAX_FDS	6	/* descriptors in one record */

/* Largest payload in bytes, by channel. */
#define IPC_MAX_PRIV	496	/* privhelper: 512 with the header */
#define IPC_MAX_CTL	4080	/* control sockets: 4096 with the header */
#define IPC_MAX_LAUNCH	1024	/* workerd and launcher, workinit */
#define IPC_MAX_WORK	(65536 + 64)	/* work channel: 64 KiB of bytes and their head */

struct ipc_hdr {		/* native order: both ends are on one machine */
	uint16_t type;		/* enum of the channel; request even, its answer is request + 1 */
	uint8_t version;	/* IPC_VERSION */
	uint8_t nfds;		/* descriptors with this record */
	uint32_t len;		/* payload bytes: record length - 16 */
	uint32_t id;		/* chosen by the asker, echoed in the answer; 0 = event */
	int32_t status;		/* answers: 0 or -errno; everything else: 0 */
};
static_assert(sizeof(struct ipc_hdr) == 16, "wire size");

enum ipc_type {
	IPC_HELLO = 0x0001,	/* first record in both directions */
};

enum ipc_role {
	IPC_ROLE_NONE = 0,
	IPC_ROLE_CONNECTD = 1,
	IPC_ROLE_WORKERD = 2,
	IPC_ROLE_PRIVHELPER = 3,
	IPC_ROLE_LAUNCHER = 4,
	IPC_ROLE_WORKINIT = 5,
	IPC_ROLE_CONTROL = 6,
};

struct ipc_hello {
	uint32_t role;		/* enum ipc_role of the sender */
	int32_t pid;		/* of the sender, for status only */
	uint64_t have_work;	/* id of the work pair the sender holds, 0 = none */
	char build[32];		/* version string, NUL-terminated and zero-padded */
};
static_assert(sizeof(struct ipc_hello) == 48, "wire size");

struct ipc_msg {
	struct ipc_hdr hdr;
	uint8_t *data;		/* hdr.len bytes, aligned to 8; belongs to the channel, valid inside the handler */
	int fds[IPC_MAX_FDS];	/* -1 once taken; what is left is closed after the handler */
	unsigned nfds;
};

/* States of a channel, as bits, so that a row can be valid in several. */
#define IPC_ST_HELLO	0x01u	/* nothing but HELLO has been received */
#define IPC_ST_OPEN	0x02u

struct ipc_chan;

/* One row of a dispatch table: what may arrive, when, how large, with how many descriptors. */
struct ipc_rule {
	uint16_t type;
	uint8_t states;		/* IPC_ST_* bits in which the record is allowed */
	uint8_t min_fds, max_fds;
	uint32_t min, max;	/* payload bytes */
	int (*handler)(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
};

/*
 * Checks a received record of record_len bytes (header included) against its own header.
 * Returns 0, or -EBADMSG (size, descriptor count), -EPROTO (version).
 */
int ipc_check(const struct ipc_hdr *hdr, size_t record_len, size_t max_payload, unsigned nfds);

/*
 * Finds the row for a checked record. Returns the row, or NULL when no row allows this record in this state;
 * the caller ends the channel then.
 */
const struct ipc_rule *ipc_rule_find(const struct ipc_rule *rules, size_t nrules, unsigned state,
    const struct ipc_hdr *hdr);

/* True if s[0..size) holds a NUL and only NULs after it: the form of every char[] on the wire. */
int ipc_str_ok(const char *s, size_t size);
/* The same, and printable ASCII alone: what an operator will read. */
int ipc_text_ok(const char *s, size_t size);

#endif
