/*
 * Ethernet segments a hub forwards (edgeward.md section 4, kind l2), on the work channel: connectd (C) asks workerd (W) for an
 * interface in the network namespace of a workload and gets the descriptor its frames come and go by. W has it made by privhelper and its
 * addresses set by workinit, and holds the lease: one name, one workload. The interface lives as long as that descriptor.
 */
#ifndef EDGEWARD_PROTO_L2_H
#define EDGEWARD_PROTO_L2_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define L2_LINKS_MAX	16u		/* at a time */
#define L2_ID_SIZE	32
#define L2_ADDRS	4u

/* Beside enum work_type. A request without a handle is answered twice: that it waits for a start, then by what came of that. */
enum l2_type {
	WORK_REQ_L2 = 0x0280,		/* C: struct l2_open */
	WORK_ANS_L2 = 0x0281,		/* W: struct l2_answer; with L2_IS_UP 1 descriptor */
	WORK_EV_L2_CLOSE = 0x0282,	/* C: struct l2_ref; its descriptor is closed. One that is not there is no error */
};

struct l2_addr {
	uint8_t family;			/* 4 or 6 */
	uint8_t prefix;
	uint8_t reserved[2];
	uint8_t addr[16];		/* 4: the first four bytes */
};
static_assert(sizeof(struct l2_addr) == 20, "wire size");

struct l2_open {
	char id[L2_ID_SIZE];		/* the hub's name for the attachment, name_ok() */
	char handle[72];		/* the workload that leases it; "" = a start that names it */
	char name[16];			/* priv_tap_name_ok() */
	uint8_t mac[6];
	uint16_t mtu;
	uint32_t offload;
	uint32_t naddrs;
	struct l2_addr addrs[L2_ADDRS];
};
static_assert(sizeof(struct l2_open) == 216, "wire size");

enum l2_word { L2_NO, L2_IS_UP, L2_WAITS };

struct l2_answer {
	uint32_t ok;			/* enum l2_word */
	uint32_t offload;		/* what it is: an older kernel cannot */
	char error[208];		/* one sentence with L2_NO, else "" */
};
static_assert(sizeof(struct l2_answer) == 216, "wire size");

struct l2_ref {
	char id[L2_ID_SIZE];
};
static_assert(sizeof(struct l2_ref) == 32, "wire size");

/* To workinit: the addresses of one interface of its namespace. */
struct l2_addresses {
	char name[16];
	uint32_t n;
	struct l2_addr addrs[L2_ADDRS];
};
static_assert(sizeof(struct l2_addresses) == 100, "wire size");

bool l2_open_ok(const struct l2_open *open);
bool l2_answer_ok(const struct l2_answer *answer);
bool l2_ref_ok(const struct l2_ref *ref);
bool l2_addresses_ok(const struct l2_addresses *a);

/* "192.0.2.1/24", "fd00::1/64" as an address. False for anything else, an address of no host included. Needs libc alone. */
bool l2_addr_parse(const char *text, struct l2_addr *ret_addr);
/* "02:00:00:00:00:01", of a station, locally administered. */
bool l2_mac_parse(const char *text, uint8_t ret_mac[6]);

#endif
