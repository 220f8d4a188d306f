/*
 * Forwarded devices on the work channel (edgeward.md section 4): connectd (C), which has imported one over a stream of the hub, asks
 * workerd (W) to attach it, and gets the socket on which the kernel now speaks. W holds the lease: which workload may use it, until when.
 *
 * A device is named by the id the hub gave it. C closes it when its stream or session ends; W when its workload ends, privhelper says
 * so, or C is gone. Whoever hears of the other's close forgets it.
 */
#ifndef EDGEWARD_PROTO_DEVICE_H
#define EDGEWARD_PROTO_DEVICE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/names.h"
#include "proto/ipc/priv.h"

#define FORWARD_ID_SIZE	32		/* [a-z0-9][a-z0-9-]{0,30} and NUL */
#define DEVICE_HANDLE_SIZE 72		/* handle_ok() */
#define DEVICE_BUSID_SIZE 32		/* [0-9.:-]{1,31} and NUL */
#define DEVICES_MAX	16u		/* at a time */
#define DEVICE_LIST_SIZE 256		/* ids of a start, one space between two: eight at most */

/* True for an id, a busid; and for a list of ids, "" included. */
bool device_id_ok(const char *s);
bool device_busid_ok(const char *s);
bool device_list_ok(const char *s);
/* Is it in the list? */
bool device_listed(const char *list, const char *id);

struct device_open {
	char id[FORWARD_ID_SIZE];
	char handle[DEVICE_HANDLE_SIZE];	/* the workload that leases it; "" = a later start does, by this id */
	char busid[DEVICE_BUSID_SIZE];	/* for those who look at it */
	uint32_t devid, speed;		/* of OP_REP_IMPORT, see priv.h */
	uint16_t vendor, product;
	uint32_t reserved;
};
static_assert(sizeof(struct device_open) == 152, "wire size");

struct device_answer {
	uint32_t ok;			/* 1: one descriptor comes with it */
	uint32_t port;
	char error[208];		/* one sentence, "" when ok */
};
static_assert(sizeof(struct device_answer) == 216, "wire size");

enum device_state {
	DEVICE_ATTACHING = 1,	/* the kernel asks it what it is */
	DEVICE_READY = 2,	/* it can be used; with a lease its nodes are there */
	DEVICE_CLOSED = 3,	/* error says why */
};

struct device_info {
	char id[FORWARD_ID_SIZE];
	char handle[DEVICE_HANDLE_SIZE];
	char busid[DEVICE_BUSID_SIZE];
	uint32_t state;			/* enum device_state */
	uint32_t port, bus, dev, speed;
	uint16_t vendor, product;
	uint16_t interfaces, authorized;	/* of the configuration in use; authorized of them may be used */
	uint32_t refused_class;		/* of the first interface that may not; 256 = none */
	uint32_t slot;			/* runner id whose workloads have its nodes */
	uint32_t nnodes;
	struct priv_usb_node nodes[PRIV_USB_NODES];	/* below /dev/edgeward of the workload */
	char error[208];
};
static_assert(sizeof(struct device_info) == 832, "wire size");

struct device_ref {
	char id[FORWARD_ID_SIZE];
	char reason[96];		/* for the log */
};
static_assert(sizeof(struct device_ref) == 128, "wire size");

/* What this device could lend, and the head of the record of what root did. */
struct device_offer {
	uint32_t usb;			/* 1: devices can be attached */
	uint32_t hs, hs_free, ss, ss_free;	/* ports, over all controllers */
	uint32_t l2;			/* 1: workloads can have interfaces */
	uint64_t audit_seq;		/* see priv.h */
	char audit_head[72];
	char issue[128];		/* why not, with what to do; "" when usb */
	char l2_issue[128];		/* the same of l2 */
};
static_assert(sizeof(struct device_offer) == 360, "wire size");

/* Strings terminated and of their form, numbers in range. */
bool device_open_ok(const struct device_open *open);
bool device_answer_ok(const struct device_answer *answer);
bool device_info_ok(const struct device_info *info);
bool device_ref_ok(const struct device_ref *ref);
bool device_offer_ok(const struct device_offer *caps);

#endif
