/*
 * Ethernet frames on a stream of kind l2 (edgeward.md section 4): records of u16 length and frame, or with offload u32 length, a
 * virtio_net_hdr of 10 bytes and a frame that may be many packets in one. Big-endian lengths. Pure: no descriptor, no allocation.
 */
#ifndef EDGEWARD_PROTO_HUB_L2REC_H
#define EDGEWARD_PROTO_HUB_L2REC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define L2REC_VNET	10u
#define L2REC_MAX	65600u			/* of a record without its length */
#define L2REC_ROOM	(4u + L2REC_MAX)	/* the longest record */
#define L2REC_MIN	14u			/* an Ethernet header */
#define L2REC_EXTRA	18u			/* what a frame may have beyond the MTU: that and a VLAN tag */

enum l2rec_verdict { L2REC_GOOD, L2REC_SHORT, L2REC_LONG, L2REC_VERDICTS };

/* Of a peer's bytes. */
struct l2rec {
	bool offload;
	uint32_t mtu;
	size_t have;				/* of the record that is not whole yet, in buf */
	uint8_t buf[L2REC_ROOM];
};

void l2rec_init(struct l2rec *r, bool offload, uint32_t mtu);

/*
 * All of data; calls frame() for each whole record, with the virtio_net_hdr in front when there is offload. One that is no frame, or
 * longer than the MTU allows, has its verdict and is for counting. -EBADMSG: a length that cannot be; nothing after it makes sense.
 */
int l2rec_take(struct l2rec *r, const uint8_t *data, size_t len,
    void (*frame)(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx), void *ctx);

/* Bytes of the length in front of a record, and that length. */
size_t l2rec_head(bool offload);
void l2rec_put_head(uint8_t *dst, bool offload, size_t len);

#endif
