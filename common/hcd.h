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

/* The device's directory in sysfs on this port. -EAGAIN: it is not there (yet). */
int hcd_open_device(const struct hcd *hcd, const struct vhci_port *at);

/*
 * A free port of the hub that this speed needs, all controllers considered: attached there. One that another program takes in between is
 * EBUSY, and the next is tried. before is called with each port before it is asked for. Counts ports of that kind and those in use.
 */
int hcd_attach_free(const struct hcd *hcd, const struct vhci_port *ports, size_t n, int sockfd, const struct priv_usb_attach *what,
    void (*before)(uint32_t port, void *ctx), void *ctx, struct priv_usb_attached *ret);

/*
 * Authorizes what the set permits of the device on this port. Blocks while the kernel talks to the far side: the thread of common/usbauth.c
 * calls it. Fills *what, all but its port. -EAGAIN: sysfs has not got it yet.
 */
int hcd_authorize(const struct hcd *hcd, const struct vhci_port *at, const struct usbdesc_classes *set, struct priv_usb_device *what);

#endif
