/*
 * vhci_hcd's status files: what each virtual USB port is doing. Read only; attaching is privhelper's.
 *
 * Source: drivers/usb/usbip/vhci_sysfs.c. All files lie in vhci_hcd.0, whatever the number of controllers: status, status.1, ...
 */
#ifndef EDGEWARD_VHCI_H
#define EDGEWARD_VHCI_H

#include <stddef.h>
#include <stdint.h>

enum vhci_hub { VHCI_HIGH, VHCI_SUPER };

/* enum usbip_device_status of the kernel */
#define VHCI_FREE	4u
#define VHCI_STARTING	5u	/* attached, has no address yet */
#define VHCI_USED	6u
#define VHCI_ERROR	7u

struct vhci_port {
	uint32_t port;		/* over all controllers; what attach and detach take */
	uint32_t state;
	uint32_t controller;	/* vhci_hcd.N */
	enum vhci_hub hub;
	/* With VHCI_USED only: */
	uint32_t speed, devid;
	uint32_t sockfd;	/* the number its socket had in the process that attached it */
	uint32_t bus, place;	/* usbBUS, device BUS-PLACE below it */
};

#define VHCI_CONTROLLERS	16u
#define VHCI_PATH		96
#define VHCI_PORTS		(VHCI_CONTROLLERS * 32u)

/* The hub a speed needs, and the speed to give to the kernel, which knows no 6. -EINVAL for others. */
int vhci_hub_of(uint32_t speed, enum vhci_hub *ret_hub, uint32_t *ret_speed);

/* Reads one status file. Adds to ports[*n]; -EBADMSG for anything that is not exactly as the kernel writes it, -ENOSPC. */
int vhci_parse(const char *text, uint32_t controller, struct vhci_port *ports, size_t max, size_t *n);

/* All ports of all controllers; dirfd is that of vhci_hcd.0. -errno of open and read. */
int vhci_read(int dirfd, struct vhci_port *ports, size_t max, size_t *ret_n);

/* The directory of vhci_hcd.N below sysroot. buf is returned. */
const char *vhci_path(const char *sysroot, size_t n, char buf[VHCI_PATH]);

#endif
