/* The records of admin.h about Ethernet segments. */
#ifndef EDGEWARD_HUB_ADMINL2_H
#define EDGEWARD_HUB_ADMINL2_H

#include "hub/admin.h"

struct admin_l2 {
	char device[64];
	char id[32];			/* name of the attachment */
	char handle[72];		/* the run that gets the interface; "" = a start that names it */
	char name[16];			/* as it is called there */
	char mac[20];			/* "" = the device chooses */
	char addrs[4][48];
	uint32_t mtu;			/* 0 = 1500 */
	uint32_t offload;		/* 1: records with a virtio_net_hdr, if the device can */
	uint32_t tap;			/* 1: nothing goes over this descriptor; a TAP follows, by ADMIN_REQ_L2_TAP */
};
static_assert(sizeof(struct admin_l2) == 408, "wire size");

struct admin_l2_item {
	char interface[16];
	char mac[20];
	uint32_t mtu;
	uint32_t offload;
	char id[32];			/* name of the attachment, for a start that names it */
};
static_assert(sizeof(struct admin_l2_item) == 76, "wire size");

struct admin_l2_tap {
	char id[32];			/* of the client's own segment, which was answered */
};
static_assert(sizeof(struct admin_l2_tap) == 32, "wire size");

bool admin_l2_tap_ok(const struct admin_l2_tap *req);
bool admin_l2_ok(const struct admin_l2 *req);

#endif
