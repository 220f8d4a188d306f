/*
 * The descriptors of a USB device as sysfs has them (file `descriptors`): which interfaces there are, of which class. They come from
 * the far side, so this is strict where the kernel is lenient: what it would skip or mend is refused here.
 */
#ifndef EDGEWARD_USBDESC_H
#define EDGEWARD_USBDESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define USBDESC_SIZE	8192	/* of one device; longer is refused */
#define USBDESC_DEVICE_LEN 18	/* what every device has at least: the device descriptor */
#define USBDESC_IFS	64	/* over all configurations */
#define USBDESC_NONE	256u	/* no class */

struct usbdesc_classes {		/* a set of interface classes */
	uint8_t bits[32];
};

struct usbdesc_if {
	uint8_t config, number;
	uint16_t refused;	/* class of the first alternate setting that is not in the set; USBDESC_NONE = all are */
};

struct usbdesc {
	uint16_t vendor, product;
	uint16_t refused;	/* class of the device as a whole, if that is not in the set; USBDESC_NONE */
	unsigned n;
	struct usbdesc_if ifs[USBDESC_IFS];
};

/* "ff 07 08": two hexadecimal digits each, one space between; "" is the empty set. -EINVAL. */
int usbdesc_classes_parse(const char *s, struct usbdesc_classes *ret_set);
bool usbdesc_class_in(const struct usbdesc_classes *set, unsigned class);

/* Interfaces of one configuration, how many of them the set permits, and the class of the first that it does not. */
struct usbdesc_count {
	uint16_t interfaces, permitted, refused;
};
struct usbdesc_count usbdesc_count(const struct usbdesc *desc, uint8_t config);

/* -EBADMSG. */
int usbdesc_parse(const uint8_t *data, size_t len, const struct usbdesc_classes *set, struct usbdesc *ret_desc);

#endif
