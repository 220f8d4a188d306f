/*
 * A segment on its way to a run of a device: its bytes are the records of a stream of kind l2 (edgeward.md section 4), which this hub
 * carries and does not look at: the device does.
 */
#include "hub/l2.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "hub/forward.h"

static void
opened(struct hub_forward *f, struct client *c, const struct json *payload)
{
	struct admin_l2_item item = { 0 };
	bool offload = false;
	int64_t mtu = 0;

	json_copy_str(payload, "interface", item.interface, sizeof(item.interface));
	json_copy_str(payload, "mac", item.mac, sizeof(item.mac));
	json_get_int(payload, "mtu", 0, UINT16_MAX, &mtu);
	json_get_bool(payload, "offload", &offload);
	item.mtu = (uint32_t)mtu;
	item.offload = offload;
	snprintf(item.id, sizeof(item.id), "%s", f->id);
	if (c != NULL && f->asked.id != 0)
		(void)ipc_answer(&c->chan, &f->asked, 0, &item, sizeof(item));
}

static void
over(struct hub_forward *f, struct client *c, const char *why)
{
	struct admin_text text = { 0 };

	snprintf(text.text, sizeof(text.text), "%s", why);
	(void)ipc_send(&c->chan, ADMIN_EV_L2_END, &text, sizeof(text));
}

static const struct hub_forward_kind kind = { .class = MUX_L2, .name = "l2", .what = "segment", .many = "segments",
	.ended = "its end here was closed", .opened = opened, .over = over };

int
client_l2(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct hub_forward *f;
	struct admin_l2 req;
	struct json_w w;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_l2_ok(&req))
		return -EPROTO;
	f = forward_begin(ctx, msg, &kind, sizeof(*f), req.device, req.id, &w, &r);
	if (f == NULL)
		return r;
	if (req.handle[0] != '\0')
		json_w_str(&w, "handle", req.handle);
	json_w_str(&w, "name", req.name);
	if (req.mac[0] != '\0')
		json_w_str(&w, "mac", req.mac);
	if (req.mtu != 0)
		json_w_int(&w, "mtu", req.mtu);
	json_w_bool(&w, "offload", req.offload != 0);
	json_w_arr(&w, "addresses");
	for (unsigned i = 0; i < sizeof(req.addrs) / sizeof(req.addrs[0]); i++)
		if (req.addrs[i][0] != '\0')
			json_w_str(&w, NULL, req.addrs[i]);
	json_w_end_arr(&w);
	forward_send(f, &w);
	return 0;
}
