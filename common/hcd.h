/*
 * vhci_hcd in sysfs, as root changes it: attach, detach, authorize. Reading its status is common/vhci.h. privhelper alone calls this;
 * who may ask for what is decided there.
 */
#ifndef EDGEWARD_HCD_H
#define EDGEWARD_HCD_H

#include "common/usbdesc.h"
#include "common/vhci.h"
#include "proto/ipc/priv.h"

struct hcd {
	int dir[VHCI_CONTROLLERS];	/* vhci_hcd.N of sysfs */
	unsigned n;			/* 0: there is none */
	int probe;			/* drivers_probe, for writing */
};

/* At start: opens what there is below sysroot ("/sys"). No vhci_hcd is no error. -errno. */
int hcd_open(struct hcd *hcd, const char *sysroot);
void hcd_close(struct hcd *hcd);

/* From now on nothing that appears on a virtual port is used by this kernel until it is authorized. -errno: it cannot be had. */
int hcd_forbid(const struct hcd *hcd);

int hcd_attach(const struct hcd *hcd, uint32_t port, int sockfd, uint32_t devid, uint32_t speed);
int hcd_detach(const struct hcd *hcd, uint32_t port);

/*
 * Authorizes what the set permits of the device on this port. Blocks while the kernel talks to the far side: the thread of privhelper/auth.c
 * calls it. Fills *what, all but its port. -EAGAIN: sysfs has not got it yet.
 */
int hcd_authorize(const struct hcd *hcd, const struct vhci_port *at, const struct usbdesc_classes *set, struct priv_usb_device *what);

#endif
