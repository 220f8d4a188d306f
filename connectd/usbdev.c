/*
 * One forwarded device: OP_REQ_IMPORT over the stream, the reply checked, workerd asked to attach, then bytes carried both ways.
 *
 * Who calls: forward.c. What is trusted: of the reply the form, and that it is the device that was asked for; what comes after it is the
 * kernels' and is not looked at. What waits here is bounded: towards the kernel by the window the mux promised, towards the hub by what
 * the kernel put into the socket.
 */
#include "connectd/usbdev.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "proto/hub/usbip.h"
#include "proto/ipc/launch.h"

#define IMPORT_MS	15000	/* for the forwarder to answer */
#define ENDED		"this device's kernel ended it"

enum usbdev_state { USBDEV_IMPORTING, USBDEV_ASKING, USBDEV_RUNNING, USBDEV_ENDED };

struct usbdev {
	struct forward f;		/* first; its timer: the forwarder's time for the reply */
	enum usbdev_state state;
	char handle[DEVICE_HANDLE_SIZE], busid[DEVICE_BUSID_SIZE];
	int64_t vendor, product;	/* -1 = whatever it is; once it was imported: what it is */
	bool asked;			/* the request is written to the stream */
	bool readable;			/* the kernel has written what was not read yet */
	uint8_t reply[USBIP_REP_SIZE];
	size_t nreply;
};

static void
over(struct forward *f, const char *why)
{
	const struct usbdev *d = (const struct usbdev *)f;
	struct device_ref ref = { 0 };

	log_info("device %s: %s", f->id, why);
	snprintf(ref.id, sizeof(ref.id), "%s", f->id);
	log_quote(ref.reason, sizeof(ref.reason), why, strlen(why));
	if (d->state == USBDEV_ASKING || d->state == USBDEV_RUNNING)
		workchan_device_close(f->s->p.work, &ref);
}

/* ---- the reply, and what is asked of workerd ---- */

/* "" when it is the device that was asked for, and one that can be lent. */
static void
judge(const struct usbdev *d, const struct usbip_device *u, char why[200])
{
	const struct priv_usb_attach attach = { u->devid, u->speed };

	why[0] = '\0';
	if (strcmp(u->busid, d->busid) != 0)
		snprintf(why, 200, "the forwarder answers with device %s", u->busid);
	else if ((d->vendor >= 0 && d->vendor != u->vendor) || (d->product >= 0 && d->product != u->product))
		snprintf(why, 200, "the forwarder has %04x:%04x there", u->vendor, u->product);
	else if (strstr(u->path, "/vhci_hcd") != NULL)
		snprintf(why, 200, "a device that is itself forwarded is not forwarded again: it sits on a virtual controller");
	else if (!priv_usb_attach_ok(&attach))
		snprintf(why, 200, "speed %u is not supported", u->speed);
}

static void
ask_workerd(struct usbdev *d, const struct usbip_device *u)
{
	struct device_open open = { .devid = u->devid, .speed = u->speed, .vendor = u->vendor, .product = u->product };

	snprintf(open.id, sizeof(open.id), "%s", d->f.id);
	snprintf(open.handle, sizeof(open.handle), "%s", d->handle);
	snprintf(open.busid, sizeof(open.busid), "%s", d->busid);
	d->state = USBDEV_ASKING;
	d->vendor = u->vendor;
	d->product = u->product;
	loop_timer_del(d->f.s->p.loop, &d->f.timer);
	if (workchan_device(d->f.s->p.work, &open, &d->f.ipc_id) < 0)
		forward_end_soon(&d->f, "the workload daemon of this device is restarting; try again");
}

/* Bytes of the reply. What follows it is kept by the mux until the kernel is there. */
static ssize_t
take_reply(struct usbdev *d, const uint8_t *data, size_t len)
{
	size_t n = sizeof(d->reply) - d->nreply < len ? sizeof(d->reply) - d->nreply : len;
	char why[200];
	struct usbip_device u;
	uint32_t status = 0;
	ssize_t r;

	memcpy(d->reply + d->nreply, data, n);
	d->nreply += n;
	r = usbip_parse_reply(d->reply, d->nreply, &u, &status);
	if (r == -ECONNREFUSED) {
		snprintf(why, sizeof(why), "the exporter refuses %s: %s", d->busid, usbip_status_text(status));
		forward_end_soon(&d->f, why);
	} else if (r < 0) {
		forward_end_soon(&d->f, "the forwarder's answer is no USB/IP");
	} else if (r > 0) {
		judge(d, &u, why);
		if (why[0] != '\0')
			forward_end_soon(&d->f, why);
		else
			ask_workerd(d, &u);
	}
	return (ssize_t)n;
}

/* ---- bytes ---- */

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct usbdev *d = c->ctx;
	ssize_t n;

	if (d->f.why[0] != '\0')
		return (ssize_t)len;
	if (d->state == USBDEV_IMPORTING)
		return take_reply(d, data, len);
	if (d->state != USBDEV_RUNNING)
		return 0;
	n = write(d->f.io.fd, data, len);
	if (n < 0 && errno != EAGAIN) {
		forward_end_soon(&d->f, ENDED);
		return (ssize_t)len;
	}
	if (n < (ssize_t)len)
		loop_io_set(d->f.s->p.loop, &d->f.io, d->f.io.events | EPOLLOUT);
	return n < 0 ? 0 : n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct usbdev *d = c->ctx;
	ssize_t n;

	if (!d->asked && max >= USBIP_REQ_SIZE) {
		d->asked = true;
		usbip_put_request(buf, d->busid);
		return USBIP_REQ_SIZE;
	}
	if (d->state != USBDEV_RUNNING || d->f.why[0] != '\0' || !d->readable)
		return 0;
	n = read(d->f.io.fd, buf, max);
	/* Less than was asked for is all there was: another read would be a system call for nothing. */
	d->readable = n == (ssize_t)max;
	if (n == 0 || (n < 0 && errno != EAGAIN))
		forward_end_soon(&d->f, ENDED);
	if (!d->readable)
		loop_io_set(d->f.s->p.loop, &d->f.io, d->f.io.events | EPOLLIN);
	return n > 0 ? n : 0;
}

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct usbdev *d = io->ctx;
	uint32_t watch = io->events;

	/* Told again of what nobody has read since: the hub takes nothing, and this loop must not become hot. */
	if ((events & EPOLLIN) != 0 && d->readable)
		watch &= ~(uint32_t)EPOLLIN;
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
		d->readable = true;
		mux_want(&d->f.chan);
	}
	if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0) {
		loop_io_del(d->f.s->p.loop, io);
		forward_end_soon(&d->f, ENDED);
		return;
	}
	if ((events & EPOLLOUT) != 0)
		watch &= ~(uint32_t)EPOLLOUT;
	loop_io_set(d->f.s->p.loop, io, watch);
	if ((events & EPOLLOUT) != 0)
		mux_resume(&d->f.chan);
}

/* ---- device_open ---- */

static bool
hex4(const struct json *payload, const char *key, int64_t *ret)
{
	const struct json *j = json_get(payload, key);
	unsigned v = 0;

	*ret = -1;
	if (j == NULL || j->type == JSON_NULL)
		return true;
	if (j->type != JSON_STRING || j->len != 4 || strspn(j->str, "0123456789abcdefABCDEF") != 4)
		return false;
	for (const char *p = j->str; *p != '\0'; p++)
		v = v << 4 | (unsigned)(*p <= '9' ? *p - '0' : (*p | 0x20) - 'a' + 10);
	*ret = v;
	return true;
}

static const char *
read_fields(struct forward *f, const struct json *payload)
{
	struct usbdev *d = (struct usbdev *)f;
	const struct json *handle = json_get(payload, "handle");

	if (!json_copy_str(payload, "busid", d->busid, sizeof(d->busid)) || !device_busid_ok(d->busid))
		return "busid must be 1 to 31 of 0-9 . : -";
	if (handle != NULL && handle->type != JSON_NULL &&
	    (!json_copy_str(payload, "handle", d->handle, sizeof(d->handle)) || !handle_ok(d->handle)))
		return "handle is none";
	if (!hex4(payload, "vendor_id", &d->vendor) || !hex4(payload, "product_id", &d->product))
		return "vendor_id and product_id must have four hexadecimal digits";
	return NULL;
}

static void
begin(struct forward *f)
{
	loop_timer_set_ms(f->s->p.loop, &f->timer, IMPORT_MS);
	mux_want(&f->chan);
}

/* Its lease was workerd's: another one knows nothing of it. */
static const char *
work_down(struct forward *f)
{
	struct usbdev *d = (struct usbdev *)f;

	if (d->state == USBDEV_IMPORTING)
		return NULL;
	d->state = USBDEV_ENDED;
	return "the workload daemon of this device was restarted";
}

const struct forward_kind usbdev_kind = {
	.name = "usb", .what = "device", .many = "devices", .size = sizeof(struct usbdev), .most = DEVICES_MAX, .policy = POLICY_USB,
	.mux = { .class = MUX_USB, .take = take, .ended = forward_ended, .fill = fill, .closed = forward_closed },
	.read = read_fields, .begin = begin, .over = over, .work_down = work_down, .late = "the forwarder did not answer the import in time",
};

/* ---- workerd's word ---- */

void
usbdev_answer(struct session *s, uint32_t ipc_id, const struct device_answer *a, int *fd)
{
	struct forward *f = forward_asked(s, &usbdev_kind, ipc_id);
	struct usbdev *d = (struct usbdev *)f;

	if (f == NULL)
		return;
	f->ipc_id = 0;
	if (a->ok == 0) {
		d->state = USBDEV_ENDED;
		forward_end(f, a->error);
		return;
	}
	d->state = USBDEV_RUNNING;
	/* As far as it may: room for what comes while the kernel is at work on what came. */
	(void)!setsockopt(*fd, SOL_SOCKET, SO_SNDBUF, &(int){ MUX_WINDOW_BULK }, sizeof(int));
	if (forward_take_fd(f, fd, on_socket))
		mux_resume(&f->chan);
}

static void
send_opened(struct usbdev *d, const struct device_info *info)
{
	bool own_dev = (d->f.s->p.mirror->caps.sandbox & LAUNCH_PART_MOUNT) != 0;
	char path[96], vendor[8], product[8];
	struct json_w w;

	snprintf(vendor, sizeof(vendor), "%04x", (unsigned)d->vendor & 0xffff);
	snprintf(product, sizeof(product), "%04x", (unsigned)d->product & 0xffff);
	forward_begin_opened(&d->f, &w);
	json_w_str(&w, "vendor_id", vendor);
	json_w_str(&w, "product_id", product);
	json_w_int(&w, "bus", info->bus);
	json_w_int(&w, "dev", info->dev);
	json_w_int(&w, "speed", info->speed);
	json_w_int(&w, "port", info->port);
	json_w_arr(&w, "nodes");
	for (uint32_t i = 0; i < info->nnodes; i++) {
		if (own_dev)
			snprintf(path, sizeof(path), "/dev/edgeward/%s", info->nodes[i].name);
		else
			snprintf(path, sizeof(path), "/dev/edgeward/%u/%s", info->slot, info->nodes[i].name);
		json_w_obj(&w, NULL);
		json_w_str(&w, "path", path);
		json_w_str(&w, "subsystem", info->nodes[i].subsystem);
		json_w_end_obj(&w);
	}
	json_w_end_arr(&w);
	session_send(d->f.s, &w);
}

void
usbdev_info(struct session *s, const struct device_info *info)
{
	struct usbdev *d = (struct usbdev *)forward_find(s, &usbdev_kind, info->id);

	if (d == NULL || d->state != USBDEV_RUNNING)
		return;
	if (info->state == DEVICE_READY) {
		send_opened(d, info);
	} else if (info->state == DEVICE_CLOSED) {
		d->state = USBDEV_ENDED;
		forward_end(&d->f, info->error);
	}
}
