/*
 * What connectd and workerd say to privhelper. Today that is the introduction: HELLO, then PRIV_EV_PEER with one
 * end of a fresh socketpair. The verbs come with their own rows; only workerd's table will have them.
 */
#ifndef EDGEWARD_PROTO_PRIV_H
#define EDGEWARD_PROTO_PRIV_H

#include <assert.h>
#include <stdint.h>

enum priv_type {
	PRIV_EV_PEER = 0x0100,	/* privhelper -> both: one descriptor, a new work channel */
	PRIV_EV_GONE = 0x0102,	/* privhelper -> both: the peer's own channel to privhelper has ended */
};

struct priv_peer {
	uint64_t pair;		/* random id of this pair, never 0; sent back in ipc_hello.have_work */
	uint32_t max_data;	/* payload bytes of bulk a record may carry: 65536, or 32768 where the
				 * socket buffer could not be raised */
	uint32_t reserved;
};
static_assert(sizeof(struct priv_peer) == 16, "wire size");

#endif
