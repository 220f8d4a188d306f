/*
 * Records of an interface's frames on their way into a stream of kind l2: as many as fit, each read to its final place. What does not fit of
 * the last one goes first the next time. The other direction is l2rec.h. Pure: the descriptor is the caller's.
 */
#ifndef EDGEWARD_PROTO_HUB_L2FILL_H
#define EDGEWARD_PROTO_HUB_L2FILL_H

#include <sys/uio.h>

#include "proto/hub/l2rec.h"

struct l2fill {
	bool offload;
	uint32_t mtu;
	uint64_t frames, dropped;	/* dropped: longer than the MTU, whole */
	size_t off, len;		/* of rest: what is left of a record */
	uint8_t rest[L2REC_ROOM];
};

void l2fill_init(struct l2fill *f, bool offload, uint32_t mtu);

/*
 * At most max bytes into buf, and no new frame once budget bytes are there. read() puts one frame, with the virtio_net_hdr in front when there is
 * offload, into the two pieces of iov and returns its length; 0 or less: there is none now, which ends it. Returns the bytes.
 */
size_t l2fill(struct l2fill *f, uint8_t *buf, size_t max, size_t budget, ssize_t (*read)(const struct iovec iov[2], void *ctx), void *ctx);

#endif
