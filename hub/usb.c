/*
 * A USB device on its way from a usbipd to a device of this hub. The CLI dials the usbipd and hands its socket over; from then on bytes
 * go between that socket and a stream of the session, none of which this hub looks at. The agent speaks first (OP_REQ_IMPORT), before
 * it answers device_open.
 *
 * It lives as long as all three do: the CLI that asked, the session, the usbipd. Whatever ends, ends the others, so that the usbipd
 * has its device back.
 */
#include "hub/adminusb.h"
#include "hub/usb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "hub/streams.h"
#include "proto/ipc/device.h"

#define FORWARDS_MAX	64u

struct hub_usb {
	struct hub_stream st;		/* first */
	struct hub_usb *next;
	struct hub *hub;
	struct session *session;
	uint64_t client;
	struct ipc_hdr asked;		/* the client's request; id 0 = answered */
	struct loop_io io;		/* the usbipd; fd -1 = gone */
	struct loop_timer timer;	/* end it, from the loop */
	char why[200];
	struct admin_usb_item item;
};

static struct client *
client_of(const struct hub_usb *u)
{
	struct client *c = u->hub->clients;

	while (c != NULL && c->serial != u->client)
		c = c->next;
	return c;
}

static void
tell_client(struct hub_usb *u, uint16_t type)
{
	struct client *c = client_of(u);

	if (c != NULL && ipc_send(&c->chan, type, &u->item, sizeof(u->item)) < 0)
		log_debug("a client does not take what became of its device");
}

/* The last of it. The channel is closed already. */
static void
drop(struct hub_usb *u, const char *why)
{
	struct hub_usb **p = &u->hub->usbs;
	struct client *c = client_of(u);
	int fd = u->io.fd;

	log_info("device %s: USB %s (%s): %s", u->item.device, u->item.id, u->item.busid, why);
	snprintf(u->item.error, sizeof(u->item.error), "%s", why);
	if (u->asked.id != 0 && c != NULL)
		(void)client_say(c, &u->asked, -EREMOTEIO, "%s", why);
	else
		tell_client(u, ADMIN_EV_USB_END);
	while (*p != u)
		p = &(*p)->next;
	*p = u->next;
	u->hub->nusbs--;
	loop_timer_del(u->hub->loop, &u->timer);
	loop_io_del(u->hub->loop, &u->io);
	if (fd >= 0)
		close(fd);
	free(u);
}

static void
end(struct hub_usb *u, const char *why)
{
	mux_reset(&u->st.chan, STREAM_RESET_GONE, why);
	drop(u, why);
}

static void
end_soon(struct hub_usb *u, const char *why)
{
	if (u->why[0] != '\0')
		return;
	snprintf(u->why, sizeof(u->why), "%s", why);
	loop_timer_set(u->hub->loop, &u->timer, monotime_now());
}

static void
timer_due(struct loop_timer *timer)
{
	struct hub_usb *u = timer->ctx;

	end(u, u->why);
}

/* ---- bytes ---- */

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct hub_usb *u = c->ctx;
	ssize_t n = u->why[0] == '\0' ? write(u->io.fd, data, len) : (ssize_t)len;

	if (n < 0 && errno != EAGAIN) {
		end_soon(u, "the usbipd ended it");
		return (ssize_t)len;
	}
	if (n < (ssize_t)len)
		loop_io_set(u->hub->loop, &u->io, u->io.events | EPOLLOUT);
	u->item.to_usbipd += n > 0 ? (uint64_t)n : 0;
	return n < 0 ? 0 : n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct hub_usb *u = c->ctx;
	ssize_t n = u->why[0] == '\0' ? read(u->io.fd, buf, max) : -1;

	if (n > 0) {
		u->item.from_usbipd += (uint64_t)n;
		return n;
	}
	if (n == 0 || (errno != EAGAIN && u->why[0] == '\0'))
		end_soon(u, "the usbipd ended it");
	else
		loop_io_set(u->hub->loop, &u->io, u->io.events | EPOLLIN);
	return 0;
}

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct hub_usb *u = io->ctx;
	uint32_t watch = io->events;

	if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0) {
		loop_io_set(u->hub->loop, io, 0);
		end_soon(u, "the usbipd ended it");
		return;
	}
	if ((events & EPOLLIN) != 0) {
		watch &= ~(uint32_t)EPOLLIN;
		mux_want(&u->st.chan);
	}
	if ((events & EPOLLOUT) != 0)
		watch &= ~(uint32_t)EPOLLOUT;
	loop_io_set(u->hub->loop, io, watch);
	if ((events & EPOLLOUT) != 0)
		mux_resume(&u->st.chan);
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	end_soon(c->ctx, "the device ended it");
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct hub_usb *u = c->ctx;

	drop(u, u->st.refused[0] != '\0' ? u->st.refused : reason);
}

static const struct mux_kind kind = { .class = MUX_USB, .take = take, .ended = ended, .fill = fill, .closed = closed };

/* ---- what the device says ---- */

static void
take_news(struct hub_usb *u, const struct json *payload)
{
	const struct json *nodes = json_get(payload, "nodes");
	int64_t v;
	size_t len = 0;

	if (json_get_int(payload, "port", 0, UINT32_MAX, &v))
		u->item.port = (uint32_t)v;
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
opened(struct hub_stream *st, const struct json *payload)
{
	struct hub_usb *u = (struct hub_usb *)st;
	struct client *c = client_of(u);

	take_news(u, payload);
	u->item.opened = 1;
	if (c != NULL && u->asked.id != 0)
		(void)ipc_answer(&c->chan, &u->asked, 0, &u->item, sizeof(u->item));
	u->asked.id = 0;
	log_info("device %s: USB %s (%s): opened, port %u", u->item.device, u->item.id, u->item.busid, u->item.port);
}

void
usb_news(struct session *s, const struct json *payload)
{
	const char *id = json_get_str(payload, "device_id");

	for (struct hub_usb *u = s->hub->usbs; u != NULL && id != NULL; u = u->next)
		if (u->session == s && strcmp(u->item.id, id) == 0) {
			take_news(u, payload);
			tell_client(u, ADMIN_EV_USB);
		}
}

bool
usb_any(const struct session *s)
{
	for (const struct hub_usb *u = s->hub->usbs; u != NULL; u = u->next)
		if (u->session == s)
			return true;
	return false;
}

/* ---- what the operator says ---- */

static int
begin(struct hub_usb *u, struct session *s, const struct admin_usb *req, int fd)
{
	struct json_w w;
	int r = streams_begin(s, &u->st, &kind, u, &w, "device_open", NULL);

	if (r < 0)
		return r;
	json_w_str(&w, "kind", "usb");
	json_w_str(&w, "device_id", req->id);
	json_w_str(&w, "busid", req->busid);
	if (req->handle[0] != '\0')
		json_w_str(&w, "handle", req->handle);
	if (req->vendor[0] != '\0')
		json_w_str(&w, "vendor_id", req->vendor);
	if (req->product[0] != '\0')
		json_w_str(&w, "product_id", req->product);
	frame_end(&w);
	session_send(s, &w);
	return loop_io_add(s->hub->loop, &u->io, fd, EPOLLIN, on_socket, u);
}

static int
forward(struct client *client, struct session *s, const struct ipc_msg *msg, const struct admin_usb *req, int *fd)
{
	struct hub *hub = client->hub;
	struct hub_usb *u = hub->nusbs < FORWARDS_MAX && fd_set_nonblock(*fd) == 0 ? calloc(1, sizeof(*u)) : NULL;
	int r;

	if (u == NULL)
		return client_say(client, &msg->hdr, -ENOSPC, "%u devices are forwarded, as many as this hub can", hub->nusbs);
	u->hub = hub;
	u->session = s;
	u->client = client->serial;
	u->asked = msg->hdr;
	u->st.opened = opened;
	u->io.fd = -1;
	loop_timer_init(&u->timer, timer_due, u);
	snprintf(u->item.device, sizeof(u->item.device), "%s", s->device);
	memcpy(u->item.id, req->id, sizeof(u->item.id));
	memcpy(u->item.busid, req->busid, sizeof(u->item.busid));
	memcpy(u->item.handle, req->handle, sizeof(u->item.handle));
	u->item.since = monotime_wall_ns();
	r = begin(u, s, req, *fd);
	if (r < 0) {
		mux_drop(&u->st.chan);
		free(u);
		return client_say(client, &msg->hdr, r, r == -ENOTSUP ? "this device speaks no edgeward.1: it cannot be lent devices" :
		    "the device has too much to answer already");
	}
	*fd = -1;
	u->next = hub->usbs;
	hub->usbs = u;
	hub->nusbs++;
	conn_deadline(s->conn, USB_SILENCE_MS);
	return 0;
}

int
client_usb(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct store_device d;
	struct admin_usb req;
	struct session *s;
	int fd, r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_usb_ok(&req))
		return -EPROTO;
	r = store_device_find(client->hub->store, req.device, &d);
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOTUNIQ ? "more than one device fits %s: give the id (edgehub devices)" :
		    "no device %s", req.device);
	s = session_find(client->hub, d.id);
	if (d.revoked || s == NULL)
		return client_say(client, &msg->hdr, -ENOTCONN, "device %s is %s", req.device, d.revoked ? "revoked" : "not connected");
	for (const struct hub_usb *u = client->hub->usbs; u != NULL; u = u->next)
		if (u->session == s && strcmp(u->item.id, req.id) == 0)
			return client_say(client, &msg->hdr, -EEXIST, "a device of the name %s is forwarded to it already", req.id);
	fd = ipc_take_fd(msg, 0);
	r = forward(client, s, msg, &req, &fd);
	if (fd >= 0)
		close(fd);
	return r;
}

int
client_usb_list(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct ipc_hdr hdr = { .type = ADMIN_EV_USB, .id = msg->hdr.id };
	int r = 0;

	for (const struct hub_usb *u = client->hub->usbs; u != NULL && r == 0; u = u->next)
		r = ipc_send_fds(chan, &hdr, &u->item, sizeof(u->item), NULL, 0);
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}

void
usb_client_gone(struct hub *hub, uint64_t serial)
{
	for (struct hub_usb *u = hub->usbs, *next; u != NULL; u = next) {
		next = u->next;
		if (u->client == serial)
			end(u, "edgehub usb forward was ended");
	}
}
