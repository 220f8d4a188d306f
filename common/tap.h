/*
 * An Ethernet interface whose far end is a descriptor: made here under a name of its own, and handed to a network namespace under another.
 * It lives as long as the descriptor and is never persistent.
 */
#ifndef EDGEWARD_TAP_H
#define EDGEWARD_TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TAP_MAC		6
#define TAP_VNET_HDR	10		/* bytes in front of a frame, when offload was asked for: virtio_net_hdr, little endian */
#define TAP_FRAME_MAX	65550u		/* Ethernet header and the largest packet the kernel merges */
#define TAP_QUEUE	512u		/* packets the kernel holds for who does not read, where they are merged: up to 64 KiB each */
#define TAP_QUEUE_PLAIN	2048u		/* the same where they are frames: less than TCP has on its way would cost it retransmissions */

struct tap_wish {
	const char *name;		/* there */
	const uint8_t *mac;		/* TAP_MAC bytes */
	uint32_t mtu;
	bool offload;
	int netns;
};

struct tap_maker {
	int control;			/* a routing socket */
	dev_t dev;			/* of our own network namespace */
	ino_t ino;
	uint32_t first, count;		/* uids whose namespaces may have one */
};

/* Before filters close. 0 or -errno. */
int tap_init(struct tap_maker *maker, uint32_t first, uint32_t count);

/*
 * The descriptor, non-blocking, with the interface up in the namespace, or -errno with nothing left behind: -EPERM
 * the namespace is no network namespace, our own, or of no uid that may; -EEXIST there is an interface of that name; -EOPNOTSUPP offload
 * was asked for and this kernel cannot; -ENODEV there are no TAPs here.
 */
int tap_make(const struct tap_maker *maker, const struct tap_wish *wish);

/* Pure: the one request that does it all, for the interface of that index. Its length. */
#define TAP_REQUEST_MAX	128u
size_t tap_request(uint8_t buf[TAP_REQUEST_MAX], uint32_t index, const struct tap_wish *wish);

#endif
