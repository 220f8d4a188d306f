/*
 * The introduction: connectd and workerd each connect once, say who they are, and get one end each of a fresh
 * socketpair. See introduce.c for what is trusted.
 */
#ifndef EDGEWARD_PRIVHELPER_INTRODUCE_H
#define EDGEWARD_PRIVHELPER_INTRODUCE_H

#include <stdint.h>
#include <sys/types.h>

#include "common/ipc.h"
#include "common/strikes.h"

/* Indexes of tables and live peers. SIDE_EITHER: both run under one uid, HELLO decides. */
enum side { SIDE_CONNECTD, SIDE_WORKERD, SIDE_EITHER };
#define SIDES		2
#define TABLES		3
#define PEERS_A_UID	4	/* two live ones at most, and connections that have not said HELLO yet */

struct introducer;
struct usb;

struct peer {
	struct ipc_chan chan;	/* first: a handler's channel is its peer */
	enum side side;		/* SIDE_EITHER until HELLO where the uid does not tell */
	uint64_t pair;		/* id of the work pair this side holds, 0 = none */
};

struct introducer {
	struct loop *loop;
	struct loop_io listen;
	uid_t uids[SIDES];
	struct ipc_conf conf[TABLES];
	struct peer peers[SIDES][PEERS_A_UID];	/* by uid, so that one cannot push out the other */
	struct peer *live[SIDES];
	struct usb *usb;	/* of the verbs; NULL: there are none */
	unsigned accepted;	/* counts connections; says which place is next */
	struct closer closer;	/* of what comes with a record, where one may: conf[].no_fds */
	struct strikes strikes[TABLES];	/* bad records of late, by side: it is not let in for a time */
};

/* Serves listener (not owned) in loop until the process ends. in must stay where it is. 0 or -errno. */
int introduce_init(struct introducer *in, struct loop *loop, int listener, uid_t net_uid, uid_t work_uid);

/* The handler of IPC_HELLO in every table of rules.c. */
int introduce_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

#endif
