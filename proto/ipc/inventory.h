/*
 * What a device has besides processors and memory, as workerd tells connectd: after CAPS, and again when it is asked. What can be
 * named is a bit of a closed list; the strings come from devices and are printable ASCII when they arrive here.
 */
#ifndef EDGEWARD_PROTO_INVENTORY_H
#define EDGEWARD_PROTO_INVENTORY_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define INVENTORY_USB_MAX	128u	/* protocol reference cloop.md section 9 */
#define INVENTORY_NODES_MAX	8u
#define INVENTORY_TEXT		129	/* 128 bytes and NUL */

/* Bits, in the order of inventory_name(). */
enum inventory_list { INVENTORY_HARNESSES, INVENTORY_ENGINES, INVENTORY_RUNTIMES, INVENTORY_LISTS };

/* The name of a bit, NULL when the list has no such bit. */
const char *inventory_name(enum inventory_list list, unsigned bit);

#define INVENTORY_F_KVM		0x1u	/* /dev/kvm can be opened for reading and writing */
#define INVENTORY_F_NFT		0x2u	/* nft is installed */
#define INVENTORY_F_GIT		0x4u	/* git is, for workspaces and write-backs */

struct work_inventory {
	uint32_t found[INVENTORY_LISTS];	/* executables of these names in the directories that payloads search */
	uint32_t flags;			/* INVENTORY_F_* */
	uint32_t usb;			/* how many WORK_EV_USB came before */
	uint32_t usb_left_out;		/* devices beyond INVENTORY_USB_MAX */
	uint64_t disk_total, disk_free;	/* bytes of the work root's file system, for an ordinary user */
	char os[INVENTORY_TEXT];	/* PRETTY_NAME of os-release */
	char cpu[INVENTORY_TEXT];	/* model */
	uint8_t limits;			/* LAUNCH_CTL_* of launch.h: what can be limited, or counted, here */
	uint8_t filter_issue;		/* enum filter_issue of launch.h: whether workloads can have a filtered network here */
	uint8_t engines;		/* bits of INVENTORY_ENGINES: by these containers can be started here */
	char reserved[3];
};
static_assert(sizeof(struct work_inventory) == 304, "wire size");

struct work_usb_node {
	char path[64];			/* below /dev */
	char subsystem[16];
};

struct work_usb {
	uint32_t bus, dev;		/* 1..999 */
	uint32_t mode, uid, gid;	/* of its node below /dev/bus/usb; mode 0: there is none */
	uint32_t nnodes;
	char port[32];			/* "1-1.2" */
	char vendor_id[8], product_id[8];	/* four hexadecimal digits */
	char class[4];			/* two */
	char speed[12];			/* Mbit/s */
	char manufacturer[INVENTORY_TEXT], product[INVENTORY_TEXT], serial[INVENTORY_TEXT];
	char group[33];			/* name of gid, empty when it has none */
	struct work_usb_node nodes[INVENTORY_NODES_MAX];
};
static_assert(sizeof(struct work_usb) == 1148, "wire size");

/* "1-1.2": a device and no interface, root hub or other name. */
bool inventory_port_ok(const char *s);

/* True if a received record is well formed: strings terminated and printable, numbers in range, nothing set beyond the lists. */
bool inventory_ok(const struct work_inventory *inv);
bool inventory_usb_ok(const struct work_usb *usb);

#endif
