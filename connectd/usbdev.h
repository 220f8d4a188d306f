/*
 * Forwarded USB devices of a session (edgeward.md section 4): device_open and device_close, and the stream between the hub's forwarder
 * and the socket on which this device's kernel speaks USB/IP.
 */
#ifndef EDGEWARD_CONNECTD_USBDEV_H
#define EDGEWARD_CONNECTD_USBDEV_H

#include "connectd/forward.h"

extern const struct forward_kind usbdev_kind;

/* From workerd: the answer, with the socket (taken when it is used); what has become of a device. */
void usbdev_answer(struct session *s, uint32_t ipc_id, const struct device_answer *a, int *fd);
void usbdev_info(struct session *s, const struct device_info *info);

#endif
