/*
 * A segment on its way to a run of a device. The CLI hands over a stream socket; its bytes are the records of a stream of kind l2
 * (edgeward.md section 4), which this hub carries and does not look at: the device does. It lives as long as the CLI that asked, the
 * session and the interface on the device do; whatever ends, ends the others.
 */
#include "hub/l2.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "hub/streams.h"

#define FORWARDS_MAX	64u

struct hub_l2 {
	struct hub_stream st;		/* first */
	struct hub_l2 *next;
	struct hub *hub;
	uint64_t client;
	struct ipc_hdr asked;		/* the client's request; id 0 = answered */
	int fd;				/* the CLI's, until it is watched */
	struct loop_io io;
	struct loop_timer timer;	/* end it, from the loop */
	char why[200], device[DEVICE_ID_SIZE], id[32];
};

static struct client *
client_of(const struct hub_l2 *l)
{
	struct client *c = l->hub->clients;

	while (c != NULL && c->serial != l->client)
		c = c->next;
	return c;
}

/* The last of it. The channel is closed already. */
static void
drop(struct hub_l2 *l, const char *why)
{
	struct hub_l2 **p = &l->hub->l2s;
	struct client *c = client_of(l);
	struct admin_text text = { 0 };

	log_info("device %s: segment %s: %s", l->device, l->id, why);
	snprintf(text.text, sizeof(text.text), "%s", why);
	if (c != NULL && l->asked.id != 0)
		(void)client_say(c, &l->asked, -EREMOTEIO, "%s", why);
	else if (c != NULL)
		(void)ipc_send(&c->chan, ADMIN_EV_L2_END, &text, sizeof(text));
	while (*p != l)
		p = &(*p)->next;
	*p = l->next;
	l->hub->nl2s--;
	loop_timer_del(l->hub->loop, &l->timer);
	loop_io_del(l->hub->loop, &l->io);
	close(l->fd);
	free(l);
}

static void
end(struct hub_l2 *l, const char *why)
{
	mux_reset(&l->st.chan, STREAM_RESET_GONE, why);
	drop(l, why);
}

static void
end_soon(struct hub_l2 *l, const char *why)
{
	if (l->why[0] != '\0')
		return;
	snprintf(l->why, sizeof(l->why), "%s", why);
	loop_timer_set(l->hub->loop, &l->timer, monotime_now());
}

static void
timer_due(struct loop_timer *timer)
{
	struct hub_l2 *l = timer->ctx;

	end(l, l->why);
}

static void
watch(struct hub_l2 *l, uint32_t more, uint32_t less)
{
	if (l->why[0] == '\0')
		loop_io_set(l->hub->loop, &l->io, (l->io.events | more) & ~less);
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct hub_l2 *l = c->ctx;
	ssize_t n = l->why[0] == '\0' ? write(l->fd, data, len) : (ssize_t)len;

	if (n < 0 && errno != EAGAIN) {
		end_soon(l, "its end here was closed");
		return (ssize_t)len;
	}
	if (n < (ssize_t)len)
		watch(l, EPOLLOUT, 0);
	return n < 0 ? 0 : n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct hub_l2 *l = c->ctx;
	ssize_t n;

	if (l->why[0] != '\0' || l->asked.id != 0)
		return 0;
	n = read(l->fd, buf, max);
	if (n > 0)
		return n;
	if (n < 0 && errno == EAGAIN)
		watch(l, EPOLLIN, 0);
	else
		end_soon(l, "its end here was closed");
	return 0;
}

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct hub_l2 *l = io->ctx;

	if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0) {
		watch(l, 0, EPOLLIN | EPOLLOUT);
		end_soon(l, "its end here was closed");
		return;
	}
	watch(l, 0, events & (EPOLLIN | EPOLLOUT));
	if ((events & EPOLLIN) != 0)
		mux_want(&l->st.chan);
	if ((events & EPOLLOUT) != 0)
		mux_resume(&l->st.chan);
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	end_soon(c->ctx, "the device ended it");
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct hub_l2 *l = c->ctx;

	drop(l, l->st.refused[0] != '\0' ? l->st.refused : reason);
}

static const struct mux_kind kind = { .class = MUX_L2, .take = take, .ended = ended, .fill = fill, .closed = closed };

static void
opened(struct hub_stream *st, const struct json *payload)
{
	struct hub_l2 *l = (struct hub_l2 *)st;
	struct admin_l2_item item = { 0 };
	struct client *c = client_of(l);
	bool offload = false;
	int64_t mtu = 0;

	json_copy_str(payload, "interface", item.interface, sizeof(item.interface));
	json_copy_str(payload, "mac", item.mac, sizeof(item.mac));
	json_get_int(payload, "mtu", 0, UINT16_MAX, &mtu);
	json_get_bool(payload, "offload", &offload);
	item.mtu = (uint32_t)mtu;
	item.offload = offload;
	if (c != NULL && l->asked.id != 0)
		(void)ipc_answer(&c->chan, &l->asked, 0, &item, sizeof(item));
	l->asked.id = 0;
	if (loop_io_add(l->hub->loop, &l->io, l->fd, EPOLLIN, on_socket, l) < 0)
		end_soon(l, "out of memory");
}

static void
send_open(struct session *s, struct json_w *w, const struct admin_l2 *req)
{
	json_w_str(w, "kind", "l2");
	json_w_str(w, "device_id", req->id);
	json_w_str(w, "handle", req->handle);
	json_w_str(w, "name", req->name);
	if (req->mac[0] != '\0')
		json_w_str(w, "mac", req->mac);
	if (req->mtu != 0)
		json_w_int(w, "mtu", req->mtu);
	json_w_bool(w, "offload", req->offload != 0);
	json_w_arr(w, "addresses");
	for (unsigned i = 0; i < sizeof(req->addrs) / sizeof(req->addrs[0]); i++)
		if (req->addrs[i][0] != '\0')
			json_w_str(w, NULL, req->addrs[i]);
	json_w_end_arr(w);
	frame_end(w);
	session_send(s, w);
}

static int
forward(struct client *client, struct session *s, const struct ipc_msg *msg, const struct admin_l2 *req, int *fd)
{
	struct hub *hub = client->hub;
	struct hub_l2 *l = hub->nl2s < FORWARDS_MAX && fd_set_nonblock(*fd) == 0 ? calloc(1, sizeof(*l)) : NULL;
	struct json_w w;
	int r;

	if (l == NULL)
		return client_say(client, &msg->hdr, -ENOSPC, "%u segments are forwarded, as many as this hub can", hub->nl2s);
	l->hub = hub;
	l->client = client->serial;
	l->asked = msg->hdr;
	l->st.opened = opened;
	l->io.fd = -1;
	loop_timer_init(&l->timer, timer_due, l);
	snprintf(l->device, sizeof(l->device), "%s", s->device);
	memcpy(l->id, req->id, sizeof(l->id));
	r = streams_begin(s, &l->st, &kind, l, &w, "device_open", NULL);
	if (r < 0) {
		free(l);
		return client_say(client, &msg->hdr, r, r == -ENOTSUP ? "this device speaks no edgeward.1: it cannot be lent segments" :
		    "the device has too much to answer already");
	}
	l->fd = *fd;
	*fd = -1;
	l->next = hub->l2s;
	hub->l2s = l;
	hub->nl2s++;
	send_open(s, &w, req);
	return 0;
}

int
client_l2(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct store_device d;
	struct admin_l2 req;
	struct session *s;
	int fd, r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_l2_ok(&req))
		return -EPROTO;
	r = store_device_find(client->hub->store, req.device, &d);
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOTUNIQ ? "more than one device fits %s: give the id (edgehub devices)" :
		    "no device %s", req.device);
	s = session_find(client->hub, d.id);
	if (d.revoked || s == NULL)
		return client_say(client, &msg->hdr, -ENOTCONN, "device %s is %s", req.device, d.revoked ? "revoked" : "not connected");
	fd = ipc_take_fd(msg, 0);
	r = forward(client, s, msg, &req, &fd);
	if (fd >= 0)
		close(fd);
	return r;
}

void
l2_client_gone(struct hub *hub, uint64_t serial)
{
	for (struct hub_l2 *l = hub->l2s, *next; l != NULL; l = next) {
		next = l->next;
		if (l->client == serial)
			end(l, "edgehub l2 forward was ended");
	}
}
