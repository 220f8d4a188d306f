/*
 * Forwarded USB devices of a session (edgeward.md section 4): device_open and device_close, and the stream between the hub's forwarder
 * and the socket on which this device's kernel speaks USB/IP.
 */
#ifndef EDGEWARD_CONNECTD_USBDEV_H
#define EDGEWARD_CONNECTD_USBDEV_H

#include "connectd/session.h"
#include "proto/ipc/device.h"

void usbdev_open(struct session *s, const struct cloop_frame *f, uint32_t channel);

/* False: no such device is open here. */
bool usbdev_close(struct session *s, const char *id, const char *reason);

/* From workerd: the answer, with the socket (taken when it is used); what has become of a device; workerd is gone. */
void usbdev_answer(struct session *s, uint32_t ipc_id, const struct device_answer *a, int *fd);
void usbdev_info(struct session *s, const struct device_info *info);
void usbdev_work_down(struct session *s);

/* True while one is open or on its way: then a link that is silent is judged sooner. */
bool usbdev_any(const struct session *s);

/* The session is over: all are closed. */
void usbdev_done(struct session *s);

#endif
