/*
 * A USB device on its way from a usbipd to a device of this hub. The CLI dials the usbipd and hands its socket over; the agent speaks first
 * on it (OP_REQ_IMPORT), before it answers device_open. What the device says of it is kept for the operator to see.
 */
#include "hub/usb.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "hub/adminusb.h"
#include "hub/forward.h"
#include "hub/run.h"

struct hub_usb {
	struct hub_forward f;		/* first */
	struct admin_usb_item item;
};

static const struct hub_forward_kind kind;

/* What there is to know of it now. */
static const struct admin_usb_item *
item_of(struct hub_usb *u)
{
	u->item.from_usbipd = u->f.in;
	u->item.to_usbipd = u->f.out;
	return &u->item;
}

static void
tell(struct hub_usb *u, struct client *c, uint16_t type)
{
	if (c != NULL && ipc_send(&c->chan, type, item_of(u), sizeof(u->item)) < 0)
		log_debug("a client does not take what became of its device");
}

/* As the next request for the device may say it again. */
static void
take_id(char dst[8], const struct json *payload, const char *key)
{
	if (!json_copy_str(payload, key, dst, 8) || strlen(dst) != 4 || strspn(dst, "0123456789abcdef") != 4)
		memset(dst, 0, 8);
}

static void
take_news(struct hub_usb *u, const struct json *payload)
{
	const struct json *nodes = json_get(payload, "nodes");
	int64_t v;
	size_t len = 0;

	if (json_get_int(payload, "port", 0, UINT32_MAX, &v))
		u->item.port = (uint32_t)v;
	take_id(u->item.vendor, payload, "vendor_id");
	take_id(u->item.product, payload, "product_id");
	u->item.nodes[0] = '\0';
	for (const struct json *j = nodes != NULL && nodes->type == JSON_ARRAY ? nodes->child : NULL; j != NULL; j = j->next) {
		const char *path = json_get_str(j, "path");
		char clean[80];

		if (path == NULL)
			continue;
		text_clean(clean, sizeof(clean), path);
		if (len + strlen(clean) + 2 > sizeof(u->item.nodes))
			break;
		len += (size_t)snprintf(u->item.nodes + len, sizeof(u->item.nodes) - len, "%s%s", len > 0 ? " " : "", clean);
	}
}

static void
opened(struct hub_forward *f, struct client *c, const struct json *payload)
{
	struct hub_usb *u = (struct hub_usb *)f;

	take_news(u, payload);
	u->item.opened = 1;
	if (c != NULL && f->asked.id != 0)
		(void)ipc_answer(&c->chan, &f->asked, 0, item_of(u), sizeof(u->item));
	log_info("device %s: USB %s (%s): opened, port %u", f->device, f->id, u->item.busid, u->item.port);
}

static void
over(struct hub_forward *f, struct client *c, const char *why)
{
	struct hub_usb *u = (struct hub_usb *)f;

	snprintf(u->item.error, sizeof(u->item.error), "%s", why);
	tell(u, c, ADMIN_EV_USB_END);
}

static const struct hub_forward_kind kind = { .class = MUX_USB, .name = "usb", .what = "USB device", .many = "devices",
	.ended = "the usbipd ended it", .early = true, .opened = opened, .over = over };

void
usb_news(struct session *s, const struct json *payload)
{
	const char *id = json_get_str(payload, "device_id");

	for (struct hub_forward *f = s->hub->forwards; f != NULL && id != NULL; f = f->next)
		if (f->kind == &kind && f->session == s && strcmp(f->id, id) == 0) {
			take_news((struct hub_usb *)f, payload);
			tell((struct hub_usb *)f, forward_client(f), ADMIN_EV_USB);
		}
}

/* ---- what the operator says ---- */

/* Nothing can be lent to it, now or later. A run this hub does not know is the device's to judge. */
static bool
run_is_over(struct hub *hub, const char *handle)
{
	struct run *run = handle[0] != '\0' ? run_get(hub, handle) : NULL;
	bool over = run != NULL && run_is_closed(run);

	if (run != NULL)
		run_put(run);
	return over;
}

int
client_usb(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct admin_usb req;
	struct hub_usb *u;
	struct json_w w;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_usb_ok(&req))
		return -EPROTO;
	if (run_is_over(((struct client *)ctx)->hub, req.handle))
		return client_say(ctx, &msg->hdr, -ESRCH, "run %s has ended", req.handle);
	u = (struct hub_usb *)forward_begin(ctx, msg, &kind, sizeof(*u), req.device, req.id, &w, &r);
	if (u == NULL)
		return r;
	snprintf(u->item.device, sizeof(u->item.device), "%s", u->f.device);
	memcpy(u->item.id, req.id, sizeof(u->item.id));
	memcpy(u->item.busid, req.busid, sizeof(u->item.busid));
	memcpy(u->item.handle, req.handle, sizeof(u->item.handle));
	u->item.since = monotime_wall_ns();
	json_w_str(&w, "busid", req.busid);
	if (req.handle[0] != '\0')
		json_w_str(&w, "handle", req.handle);
	if (req.vendor[0] != '\0')
		json_w_str(&w, "vendor_id", req.vendor);
	if (req.product[0] != '\0')
		json_w_str(&w, "product_id", req.product);
	forward_send(&u->f, &w);
	return 0;
}

int
client_usb_list(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct ipc_hdr hdr = { .type = ADMIN_EV_USB, .id = msg->hdr.id };
	int r = 0;

	for (struct hub_forward *f = client->hub->forwards; f != NULL && r == 0; f = f->next)
		if (f->kind == &kind)
			r = ipc_send_fds(chan, &hdr, item_of((struct hub_usb *)f), sizeof(struct admin_usb_item), NULL, 0);
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}
