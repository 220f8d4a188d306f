/* USB devices forwarded from a usbipd to a device of this hub: see usb.c. */
#ifndef EDGEWARD_HUB_USB_H
#define EDGEWARD_HUB_USB_H

#include "hub/client.h"

/* A session on which a device is forwarded ends after this time of silence: the usbipd gets its device back. */
#define USB_SILENCE_MS	28000

struct hub_usb;

int client_usb(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_usb_list(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* A client has ended: what it forwards ends with it. */
void usb_client_gone(struct hub *hub, uint64_t serial);

/* device_opened without an id: nodes have come. */
void usb_news(struct session *s, const struct json *payload);

/* True while a device is forwarded on this session: then silence counts sooner. */
bool usb_any(const struct session *s);

#endif
