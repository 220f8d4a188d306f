/*
 * What connectd and workerd say to privhelper. Both: the introduction, HELLO, then PRIV_EV_PEER with one end of a fresh
 * socketpair. workerd alone: the verbs. Numbers only, never a path or a descriptor for the kernel to use.
 */
#ifndef EDGEWARD_PROTO_PRIV_H
#define EDGEWARD_PROTO_PRIV_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum priv_type {
	PRIV_EV_PEER = 0x0100,	/* privhelper -> both: one descriptor, a new work channel */
	PRIV_EV_GONE = 0x0102,	/* privhelper -> both: the peer's own channel to privhelper has ended */

	PRIV_REQ_USB_ATTACH = 0x0110,	/* workerd -> privhelper: struct priv_usb_attach */
	/*
	 * struct priv_usb_attached; with status 0 one descriptor, the stream on which the kernel now speaks USB/IP (CMD_SUBMIT and
	 * what follows; the import is over). -EPERM policy, -ENODEV no vhci_hcd, -EBUSY no port free (ports, used), -EAGAIN asked too
	 * often, -EIO it cannot be recorded.
	 */
	PRIV_ANS_USB_ATTACH = 0x0111,
	PRIV_EV_USB_DEVICE = 0x0112,	/* privhelper -> workerd: struct priv_usb_device, when its fate is known, and GONE when a device that was there ends by
					 * itself: its port is free and its nodes are removed */
	PRIV_REQ_USB_DETACH = 0x0114,	/* workerd -> privhelper: struct priv_usb_detach; status 0 also when it was gone */
	PRIV_ANS_USB_DETACH = 0x0115,	/* empty */
	/*
	 * Gives the device nodes of an attached device to the workloads of one runner id, below /dev/edgeward/SLOT; again, to follow what
	 * drivers do. Answer: struct priv_usb_granted. -ENODEV no such device (any more), -EDOM no such runner id, -errno of making nodes.
	 */
	PRIV_REQ_USB_GRANT = 0x0116,	/* workerd -> privhelper: struct priv_usb_grant */
	PRIV_ANS_USB_GRANT = 0x0117,

	/*
	 * One descriptor with it, the network namespace of a workload: an interface is made and put there, up, and its other end is the
	 * descriptor that comes back with status 0. It is gone when that is closed. -EPERM l2 is off, or the namespace is none of a runner's;
	 * -EEXIST an interface of that name is there; -ENODEV no TAPs on this machine; -EOPNOTSUPP no offload; -EAGAIN asked too often;
	 * -EIO it cannot be recorded.
	 */
	PRIV_REQ_TAP = 0x0120,		/* workerd -> privhelper: struct priv_tap */
	PRIV_ANS_TAP = 0x0121,		/* empty */

	PRIV_EV_STATE = 0x0118,		/* privhelper -> workerd: struct priv_state; after HELLO and whenever it has changed */
};

struct priv_peer {
	uint64_t pair;		/* random id of this pair, never 0; sent back in ipc_hello.have_work */
	uint32_t max_data;	/* payload bytes of bulk a record may carry: 65536, or 32768 where the
				 * socket buffer could not be raised */
	uint32_t reserved;
};
static_assert(sizeof(struct priv_peer) == 16, "wire size");

struct priv_usb_attach {
	uint32_t devid;		/* of OP_REP_IMPORT: bus << 16 | device, neither 0 */
	uint32_t speed;		/* enum usb_device_speed of the kernel: 1 low, 2 full, 3 high, 5 super, 6 super plus */
};
static_assert(sizeof(struct priv_usb_attach) == 8, "wire size");

struct priv_usb_attached {
	uint32_t port;
	uint32_t ports, used;	/* of the kind of hub this speed needs, over all controllers */
	uint32_t reserved;
};
static_assert(sizeof(struct priv_usb_attached) == 16, "wire size");

enum priv_usb_outcome {
	PRIV_USB_READY = 1,		/* some or all interfaces are authorized */
	PRIV_USB_UNAUTHORIZED = 2,	/* no interface of a permitted class, or descriptors that cannot be read: it stays shut */
	PRIV_USB_GONE = 3,		/* it ended before that; the port is free */
	PRIV_USB_TIMEOUT = 4,		/* not enumerated in time; detached */
};

struct priv_usb_device {
	uint32_t port;
	uint32_t outcome;		/* enum priv_usb_outcome */
	uint32_t bus, dev;		/* /dev/bus/usb/BUS/DEV; 0 unless it is there */
	uint16_t vendor, product;
	uint16_t interfaces, authorized;	/* of the configuration in use */
	uint32_t refused_class;		/* class of the first interface that was refused, 256 = none */
	uint32_t reserved;
};
static_assert(sizeof(struct priv_usb_device) == 32, "wire size");

struct priv_usb_detach {
	uint32_t port;
	uint32_t reserved;
};
static_assert(sizeof(struct priv_usb_detach) == 8, "wire size");

struct priv_usb_grant {
	uint32_t port;
	uint32_t slot;			/* runner id = first of the pool + slot */
};
static_assert(sizeof(struct priv_usb_grant) == 8, "wire size");

#define PRIV_USB_NODES	8u

struct priv_usb_node {
	char name[40];			/* below /dev/edgeward/SLOT: "sda", "ttyUSB0", "bus/usb/001/002" */
	char subsystem[16];		/* usb, tty, hidraw, block, usbmisc */
};

struct priv_usb_granted {
	uint32_t n;
	uint32_t reserved;
	struct priv_usb_node nodes[PRIV_USB_NODES];
};
static_assert(sizeof(struct priv_usb_granted) == 456, "wire size");

struct priv_tap {
	char name[16];			/* of the interface there: priv_tap_name_ok() */
	uint8_t mac[6];			/* locally administered, of one station */
	uint16_t mtu;			/* 576..9000 */
	uint32_t offload;		/* 1: frames come and go with a virtio_net_hdr */
	uint32_t reserved;
};
static_assert(sizeof(struct priv_tap) == 32, "wire size");

#define PRIV_MTU_MIN	576u
#define PRIV_MTU_MAX	9000u

/* 1 to 15 of [a-zA-Z0-9._-], not "." or "..", not "lo"; begins with a letter, so no tool takes it for an option or a number. */
bool priv_tap_name_ok(const char name[16]);
bool priv_tap_ok(const struct priv_tap *req);

#define PRIV_STATE_L2	0x2u	/* TAPs are made here */
#define PRIV_STATE_USB	0x1u	/* USB devices are attached: privhelper was given classes, and its ledger and record are there */

struct priv_state {
	uint32_t flags;			/* PRIV_STATE_* */
	uint32_t reserved;
	uint64_t audit_seq;		/* of the last line of the audit record; 0 = no line yet, or no record is kept */
	char audit_head[72];		/* its digest, in hexadecimal; "" with audit_seq 0 */
};
static_assert(sizeof(struct priv_state) == 88, "wire size");

bool priv_usb_attach_ok(const struct priv_usb_attach *req);
bool priv_usb_detach_ok(const struct priv_usb_detach *req);
bool priv_usb_grant_ok(const struct priv_usb_grant *req);

/* What comes from privhelper is checked too: strings terminated, numbers in range. */
bool priv_usb_granted_ok(const struct priv_usb_granted *granted);
bool priv_state_ok(const struct priv_state *state);

#endif
