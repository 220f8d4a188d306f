/* USB devices forwarded from a usbipd to a device of this hub: see usb.c. */
#ifndef EDGEWARD_HUB_USB_H
#define EDGEWARD_HUB_USB_H

#include "hub/client.h"

int client_usb(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_usb_list(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* device_opened without an id: nodes have come. */
void usb_news(struct session *s, const struct json *payload);

#endif
