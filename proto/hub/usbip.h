/*
 * The one exchange of USB/IP that happens before the kernel speaks: OP_REQ_IMPORT and its reply, as the agent has them with a usbipd.
 * Source: Documentation/usb/usbip_protocol.rst of the kernel, version 1.1.1.
 */
#ifndef EDGEWARD_PROTO_HUB_USBIP_H
#define EDGEWARD_PROTO_HUB_USBIP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define USBIP_BUSID_SIZE	32
#define USBIP_REQ_SIZE		40u
#define USBIP_REP_HEAD		8u
#define USBIP_REP_SIZE		320u	/* with the device */

struct usbip_device {
	char path[256];			/* in the exporter's sysfs; printable */
	char busid[USBIP_BUSID_SIZE];	/* printable */
	uint32_t devid;			/* bus << 16 | device, neither 0 */
	uint32_t speed;			/* enum usb_device_speed: 0..6 */
	uint16_t vendor, product;
	uint8_t class;
};

/* OP_REQ_IMPORT for a busid of at most 31 bytes. */
void usbip_put_request(uint8_t dst[USBIP_REQ_SIZE], const char *busid);

/*
 * OP_REP_IMPORT: 0 = it is not whole yet; > 0 its length, what follows belongs to the kernel; -EBADMSG: it is none; -ECONNREFUSED:
 * the exporter refuses, *ret_status says why (see usbip_status_text()).
 */
ssize_t usbip_parse_reply(const uint8_t *data, size_t len, struct usbip_device *ret_device, uint32_t *ret_status);

/* For people: "it is in use". */
const char *usbip_status_text(uint32_t status);

#endif
