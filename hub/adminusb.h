/* The admin records of forwarded USB devices; their types stand in admin.h. */
#ifndef EDGEWARD_HUB_ADMINUSB_H
#define EDGEWARD_HUB_ADMINUSB_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

struct admin_usb {
	char device[64];
	char id[32];			/* name of the attachment, [a-z0-9][a-z0-9-]{0,30} */
	char handle[72];		/* the run that leases it; "" = a start that names it */
	char busid[32];
	char vendor[8], product[8];	/* four hexadecimal digits, or "" */
};
static_assert(sizeof(struct admin_usb) == 216, "wire size");

struct admin_usb_item {
	int64_t since;			/* CLOCK_REALTIME ns */
	uint64_t from_usbipd, to_usbipd;	/* bytes */
	uint32_t opened, port;
	char device[24];
	char id[32], busid[32];
	char handle[72];
	char vendor[8], product[8];	/* four hexadecimal digits once it was opened; "" = the device did not say */
	char nodes[512];		/* paths as the workload sees them, one space between two */
	char error[208];
};
static_assert(sizeof(struct admin_usb_item) == 928, "wire size");

bool admin_usb_ok(const struct admin_usb *req);

#endif
