/*
 * One forwarded device: OP_REQ_IMPORT over the stream, the reply checked, workerd asked to attach, then bytes carried both ways.
 *
 * Who calls: streams.c for the hub's device_open, the mux for its bytes, session.c for workerd's word. What is trusted: of the reply the
 * form, and that it is the device that was asked for; what comes after it is the kernels' and is not looked at. What waits here is
 * bounded: towards the kernel by the window the mux promised, towards the hub by what the kernel put into the socket.
 */
#include "connectd/usbdev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "connectd/streams.h"
#include "proto/hub/usbip.h"
#include "proto/ipc/launch.h"

#define IMPORT_MS	15000	/* for the forwarder to answer */

enum usbdev_state { USBDEV_IMPORTING, USBDEV_ASKING, USBDEV_RUNNING, USBDEV_ENDED };

struct usbdev {
	struct usbdev *next;
	struct session *s;
	struct mux_chan chan;
	enum usbdev_state state;
	char id[FORWARD_ID_SIZE], frame_id[CLOOP_ID_SIZE], handle[DEVICE_HANDLE_SIZE], busid[DEVICE_BUSID_SIZE];
	int64_t vendor, product;	/* -1 = whatever it is */
	bool opened;			/* device_opened was sent */
	bool asked;			/* the request is written to the stream */
	uint32_t ipc_id;
	uint8_t reply[USBIP_REP_SIZE];
	size_t nreply;
	struct loop_io io;		/* the kernel's socket; fd -1 = none yet */
	struct loop_timer timer;	/* the forwarder's time; or: end it, from the loop */
	char why[200];
};

static struct usbdev *
find(struct session *s, const char *id)
{
	struct usbdev *d = s->usbdevs;

	while (d != NULL && strcmp(d->id, id) != 0)
		d = d->next;
	return d;
}

/* Out of the list, the socket closed: the kernel frees the port. The channel is the caller's. */
static void
drop(struct usbdev *d)
{
	struct session *s = d->s;
	struct usbdev **p = &s->usbdevs;
	int fd = d->io.fd;

	while (*p != d)
		p = &(*p)->next;
	*p = d->next;
	s->nusbdevs--;
	loop_timer_del(s->p.loop, &d->timer);
	loop_io_del(s->p.loop, &d->io);
	if (fd >= 0)
		close(fd);
	free(d);
}

static void
tell_workerd(const struct usbdev *d, const char *why)
{
	struct device_ref ref = { 0 };

	snprintf(ref.id, sizeof(ref.id), "%s", d->id);
	log_quote(ref.reason, sizeof(ref.reason), why, strlen(why));
	if (d->state == USBDEV_ASKING || d->state == USBDEV_RUNNING)
		workchan_device_close(d->s->p.work, &ref);
}

static void
tell_hub(const struct usbdev *d, const char *why)
{
	struct json_w w;

	if (d->s->state != SESSION_UP)
		return;
	if (!d->opened) {
		session_send_error(d->s, d->frame_id, "device_unavailable", why);
		return;
	}
	session_begin_frame(d->s, &w, "device_close", NULL, NULL);
	json_w_str(&w, "device_id", d->id);
	json_w_str(&w, "reason", why);
	session_send(d->s, &w);
}

static void
end(struct usbdev *d, const char *why)
{
	log_info("device %s: %s", d->id, why);
	tell_workerd(d, why);
	tell_hub(d, why);
	mux_reset(&d->chan, STREAM_RESET_GONE, why);
	drop(d);
}

/* Where the mux is at work on the channel it cannot be taken away: it goes at the next turn of the loop. */
static void
end_soon(struct usbdev *d, const char *why)
{
	if (d->why[0] != '\0')
		return;
	snprintf(d->why, sizeof(d->why), "%s", why);
	loop_timer_set(d->s->p.loop, &d->timer, monotime_now());
}

static void
timer_due(struct loop_timer *timer)
{
	struct usbdev *d = timer->ctx;

	end(d, d->why[0] != '\0' ? d->why : "the forwarder did not answer the import in time");
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

	snprintf(open.id, sizeof(open.id), "%s", d->id);
	snprintf(open.handle, sizeof(open.handle), "%s", d->handle);
	snprintf(open.busid, sizeof(open.busid), "%s", d->busid);
	d->state = USBDEV_ASKING;
	loop_timer_del(d->s->p.loop, &d->timer);
	if (workchan_device(d->s->p.work, &open, &d->ipc_id) < 0)
		end_soon(d, "the workload daemon of this device is restarting; try again");
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
		end_soon(d, why);
	} else if (r < 0) {
		end_soon(d, "the forwarder's answer is no USB/IP");
	} else if (r > 0) {
		judge(d, &u, why);
		if (why[0] != '\0')
			end_soon(d, why);
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

	if (d->why[0] != '\0')
		return (ssize_t)len;
	if (d->state == USBDEV_IMPORTING)
		return take_reply(d, data, len);
	if (d->state != USBDEV_RUNNING)
		return 0;
	n = write(d->io.fd, data, len);
	if (n < 0 && errno != EAGAIN) {
		end_soon(d, "this device's kernel ended it");
		return (ssize_t)len;
	}
	if (n < (ssize_t)len)
		loop_io_set(d->s->p.loop, &d->io, d->io.events | EPOLLOUT);
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
	if (d->state != USBDEV_RUNNING || d->why[0] != '\0')
		return 0;
	n = read(d->io.fd, buf, max);
	if (n > 0)
		return n;
	if (n == 0 || errno != EAGAIN)
		end_soon(d, "this device's kernel ended it");
	else
		loop_io_set(d->s->p.loop, &d->io, d->io.events | EPOLLIN);
	return 0;
}

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct usbdev *d = io->ctx;
	uint32_t watch = io->events;

	/* Not watched again before what there is has gone: else a hub that takes nothing would make this loop hot. */
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0) {
		watch &= ~(uint32_t)EPOLLIN;
		mux_want(&d->chan);
	}
	if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0) {
		loop_io_del(d->s->p.loop, io);
		end_soon(d, "this device's kernel ended it");
		return;
	}
	if ((events & EPOLLOUT) != 0)
		watch &= ~(uint32_t)EPOLLOUT;
	loop_io_set(d->s->p.loop, io, watch);
	if ((events & EPOLLOUT) != 0)
		mux_resume(&d->chan);
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	end_soon(c->ctx, "the forwarder ended the stream");
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct usbdev *d = c->ctx;
	char why[200];

	snprintf(why, sizeof(why), "the stream ended: %.150s", reason);
	log_info("device %s: %s", d->id, why);
	tell_workerd(d, why);
	tell_hub(d, why);
	drop(d);
}

static const struct mux_kind kind = { .class = MUX_USB, .take = take, .ended = ended, .fill = fill, .closed = closed };

/* ---- frames ---- */

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
read_fields(struct usbdev *d, const struct json *payload)
{
	const struct json *handle = json_get(payload, "handle");

	if (!json_copy_str(payload, "device_id", d->id, sizeof(d->id)) || !device_id_ok(d->id))
		return "device_id must be 1 to 31 of a-z 0-9 -";
	if (!json_copy_str(payload, "busid", d->busid, sizeof(d->busid)) || !device_busid_ok(d->busid))
		return "busid must be 1 to 31 of 0-9 . : -";
	if (handle != NULL && handle->type != JSON_NULL &&
	    (!json_copy_str(payload, "handle", d->handle, sizeof(d->handle)) || !handle_ok(d->handle)))
		return "handle is none";
	if (!hex4(payload, "vendor_id", &d->vendor) || !hex4(payload, "product_id", &d->product))
		return "vendor_id and product_id must have four hexadecimal digits";
	return NULL;
}

void
usbdev_open(struct session *s, const struct cloop_frame *f, uint32_t channel)
{
	struct usbdev *d = calloc(1, sizeof(*d));
	const char *why = d == NULL ? "out of memory" : read_fields(d, f->payload);
	char where[POLICY_WHERE], text[POLICY_WHERE + 8];

	if (why == NULL && !s->p.policy->usb) {
		snprintf(text, sizeof(text), "%s = no", policy_where(s->p.policy, POLICY_USB, where));
		why = text;
	}
	if (why == NULL && (s->nusbdevs == DEVICES_MAX || find(s, d->id) != NULL))
		why = s->nusbdevs == DEVICES_MAX ? "as many devices are open as this agent holds" : "a device of this id is open already";
	if (why == NULL && mux_open(&s->mux, &d->chan, channel, &kind, d, 0, 0, 0, 0) < 0)
		why = "too many streams are open";
	if (why != NULL) {
		free(d);
		session_send_error(s, f->id, "device_unavailable", why);
		return;
	}
	d->s = s;
	d->io.fd = -1;
	snprintf(d->frame_id, sizeof(d->frame_id), "%s", f->id);
	loop_timer_init(&d->timer, timer_due, d);
	loop_timer_set_ms(s->p.loop, &d->timer, IMPORT_MS);
	d->next = s->usbdevs;
	s->usbdevs = d;
	s->nusbdevs++;
	mux_want(&d->chan);
}

bool
usbdev_close(struct session *s, const char *id, const char *reason)
{
	struct usbdev *d = find(s, id);

	if (d != NULL)
		end(d, reason);
	return d != NULL;
}

/* ---- workerd's word ---- */

void
usbdev_answer(struct session *s, uint32_t ipc_id, const struct device_answer *a, int *fd)
{
	struct usbdev *d = s->usbdevs;

	while (d != NULL && (d->state != USBDEV_ASKING || d->ipc_id != ipc_id))
		d = d->next;
	if (d == NULL)
		return;
	if (a->ok == 0) {
		d->state = USBDEV_ENDED;
		end(d, a->error);
		return;
	}
	d->state = USBDEV_RUNNING;
	if (fd_set_nonblock(*fd) < 0 || loop_io_add(s->p.loop, &d->io, *fd, EPOLLIN, on_socket, d) < 0) {
		end(d, "no room for its socket");
		return;
	}
	*fd = -1;
	mux_resume(&d->chan);
}

static void
send_opened(struct usbdev *d, const struct device_info *info)
{
	bool own_dev = (d->s->p.mirror->caps.sandbox & LAUNCH_PART_MOUNT) != 0;
	char path[96];
	struct json_w w;

	session_begin_frame(d->s, &w, "device_opened", d->opened ? NULL : d->frame_id, NULL);
	json_w_str(&w, "device_id", d->id);
	json_w_str(&w, "kind", "usb");
	json_w_int(&w, "channel", d->chan.id);
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
	d->opened = true;
	session_send(d->s, &w);
}

void
usbdev_info(struct session *s, const struct device_info *info)
{
	struct usbdev *d = find(s, info->id);

	if (d == NULL || d->state != USBDEV_RUNNING)
		return;
	if (info->state == DEVICE_READY) {
		send_opened(d, info);
	} else if (info->state == DEVICE_CLOSED) {
		d->state = USBDEV_ENDED;
		end(d, info->error);
	}
}

void
usbdev_work_down(struct session *s)
{
	for (struct usbdev *d = s->usbdevs, *next; d != NULL; d = next) {
		next = d->next;
		if (d->state == USBDEV_IMPORTING)
			continue;
		d->state = USBDEV_ENDED;
		end(d, "the workload daemon of this device was restarted");
	}
}

bool
usbdev_any(const struct session *s)
{
	return s->usbdevs != NULL;
}

void
usbdev_done(struct session *s)
{
	while (s->usbdevs != NULL) {
		tell_workerd(s->usbdevs, "the session with the hub has ended");
		mux_drop(&s->usbdevs->chan);
		drop(s->usbdevs);
	}
}
