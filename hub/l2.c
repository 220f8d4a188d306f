/*
 * A segment on its way to a run of a device: its bytes are the records of a stream of kind l2 (edgeward.md section 4). Over a socket this hub
 * carries them and does not look at them: the device does. A TAP, which the CLI has made and handed over, gives and takes frames, and records
 * are made of them here: one process less between the two kernels. What the TAP does not take is lost, as on any cable.
 */
#include "hub/l2.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "hub/forward.h"
#include "proto/hub/l2fill.h"

struct hub_l2 {
	struct hub_forward f;		/* first */
	bool wants_tap, has_tap;
	bool dry;			/* the TAP had no more */
	struct l2rec rec;		/* to it */
	struct l2fill fill;		/* from it */
};

/* ---- frames ---- */

static ssize_t
read_frame(const struct iovec iov[2], void *ctx)
{
	struct hub_l2 *l = ctx;
	ssize_t n = readv(l->f.fd, iov, 2);

	l->dry = n <= 0;
	return n;
}

static ssize_t
from_tap_or_socket(struct hub_forward *f, uint8_t *buf, size_t max, bool *ret_more)
{
	struct hub_l2 *l = (struct hub_l2 *)f;
	size_t n;

	if (!l->has_tap)
		return forward_read(f, buf, max, ret_more);
	l->dry = false;
	n = l2fill(&l->fill, buf, max, max, read_frame, l);
	*ret_more = !l->dry || l->fill.len > 0;
	/* EAGAIN, or it was removed. What was read before goes first. */
	return n == 0 ? -1 : (ssize_t)n;
}

static void
to_tap(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx)
{
	const struct hub_l2 *l = ctx;

	if (verdict == L2REC_GOOD)
		(void)!write(l->f.fd, data, len);
}

static ssize_t
to_tap_or_socket(struct hub_forward *f, const uint8_t *data, size_t len)
{
	struct hub_l2 *l = (struct hub_l2 *)f;

	if (!l->wants_tap)
		return forward_write(f, data, len);
	errno = EAGAIN;
	if (!l->has_tap)
		return -1;	/* kept until it is there */
	if (l2rec_take(&l->rec, data, len, to_tap, l) == 0)
		return (ssize_t)len;
	errno = EBADMSG;
	return -1;
}

/* ---- its life ---- */

static void
opened(struct hub_forward *f, struct client *c, const struct json *payload)
{
	struct hub_l2 *l = (struct hub_l2 *)f;
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
	l2rec_init(&l->rec, offload, item.mtu);
	l2fill_init(&l->fill, offload, UINT16_MAX - L2REC_EXTRA);	/* what is too long for the segment is the device's to count */
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
	.ended = "its end here was closed", .opened = opened, .read = from_tap_or_socket, .write = to_tap_or_socket, .over = over };

int
client_l2(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct hub_forward *f;
	struct hub_l2 *l;
	struct admin_l2 req;
	struct json_w w;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_l2_ok(&req))
		return -EPROTO;
	f = forward_begin(ctx, msg, &kind, sizeof(*l), req.device, req.id, &w, &r);
	if (f == NULL)
		return r;
	l = (struct hub_l2 *)f;
	l->wants_tap = req.tap != 0;
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

int
client_l2_tap(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0);
	struct admin_l2_tap req;
	struct hub_forward *f;
	struct hub_l2 *l;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_l2_tap_ok(&req))
		return -EPROTO;
	for (f = client->hub->forwards; f != NULL; f = f->next)
		if (f->kind == &kind && f->client == client->serial && strcmp(f->id, req.id) == 0)
			break;
	l = (struct hub_l2 *)f;
	if (f == NULL || f->asked.id != 0 || !l->wants_tap || l->has_tap)
		return client_say(client, &msg->hdr, -ENOENT, "no segment of yours waits for an interface");
	l->has_tap = true;
	r = forward_replace(f, fd);
	if (r < 0)
		return client_say(client, &msg->hdr, r, "the interface cannot be watched: %s", strerror(-r));
	take_fd(&fd);
	return ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}
