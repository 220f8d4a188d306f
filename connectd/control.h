/* connectd.sock: what an operator may ask. A client that breaks the protocol is dropped; the rest go on. */
#ifndef EDGEWARD_CONNECTD_CONTROL_H
#define EDGEWARD_CONNECTD_CONTROL_H

#include <stdint.h>

#include "common/ipc.h"
#include "common/loop.h"
#include "connectd/link.h"
#include "connectd/privchan.h"
#include "proto/ipc/ctl.h"

#define CONTROL_CLIENTS	16

struct control;

struct control_client {
	struct ipc_chan chan;
	struct control *control;
	struct ipc_conf conf;
	uint64_t used;		/* when it was last heard of, by count */
	struct ipc_hdr enroll;	/* the request that waits for the hub */
	bool enrolling;
	bool in_use;
};

struct control {
	struct loop *loop;
	struct loop_io listener;
	struct link *link;
	struct privchan *priv;
	monotime_t started;
	uint64_t count;
	struct control_client clients[CONTROL_CLIENTS];
};

extern const struct ipc_rule control_rules[];
extern const size_t control_nrules;

/* listener < 0: nobody can ask, which is no error. -errno. */
int control_init(struct control *c, struct loop *loop, int listener, struct link *link, struct privchan *priv);
void control_done(struct control *c);

/* status.c */
void status_fill(const struct link *link, const struct privchan *priv, monotime_t started,
    struct ctl_connectd_status *ret_status);

#endif
