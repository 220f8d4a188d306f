/* The USB devices of this machine, from sysfs; not those that were forwarded to it. What a device says of itself is untrusted text: bounded, and printable ASCII after this. */
#ifndef EDGEWARD_WORKERD_USB_H
#define EDGEWARD_WORKERD_USB_H

#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/inventory.h"

struct usb_places {			/* directories; a missing one has nothing in it */
	const char *devices;		/* /sys/bus/usb/devices */
	const char *classes;		/* /sys/class: tty, hidraw, video4linux below it */
	const char *dev;		/* /dev */
};
extern const struct usb_places usb_places;

/*
 * Tells each device that has all it must have, at most INVENTORY_USB_MAX; groups is the text of /etc/group, or "". Returns how many
 * there are beyond that.
 */
uint32_t usb_scan(const struct usb_places *places, const char *groups, void (*tell)(const struct work_usb *usb, void *ctx),
    void *ctx);

/* Copies, with what is no printable ASCII as '?', without white space at both ends, cut at size - 1. Zero-pads. */
void usb_text(char *dst, size_t size, const char *src, size_t len);

#endif
