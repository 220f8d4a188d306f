/*
 * Who calls: client.c through usb.c and l2.c; the mux for bytes; the loop. Both directions stop where the other side does not take what
 * there is: nothing is kept here but what the mux promised.
 */
#include "hub/forward.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"

struct client *
forward_client(const struct hub_forward *f)
{
	struct client *c = f->hub->clients;

	while (c != NULL && c->serial != f->client)
		c = c->next;
	return c;
}

#define VERDICT_MS	5000

/* The last of it. The channel is closed already. */
static void
drop(struct hub_forward *f, const char *why)
{
	struct hub_forward **p = &f->hub->forwards;
	struct client *c = forward_client(f);

	log_info("device %s: %s %s: %s", f->device, f->kind->what, f->id, why);
	if (c != NULL && f->asked.id != 0)
		(void)client_say(c, &f->asked, -EREMOTEIO, "%s", why);
	else if (c != NULL)
		f->kind->over(f, c, why);
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	stream_end_off(&f->st);
	loop_io_del(f->hub->loop, &f->io);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

static void
end(struct hub_forward *f, const char *why)
{
	mux_reset(&f->st.chan, STREAM_RESET_GONE, why);
	drop(f, why);
}

/* Later where the device has not answered: what a usbipd said before it went is its to judge, and says more than that it went. */
static void
end_soon(struct hub_forward *f, const char *why)
{
	bool judged = f->asked.id == 0 || !f->kind->early;

	stream_end_soon(&f->st, why, judged ? 0 : VERDICT_MS);
}

static void
over(struct hub_stream *st, const char *why)
{
	drop((struct hub_forward *)st, why);
}

/* ---- bytes ---- */

static void
watch(struct hub_forward *f, uint32_t more, uint32_t less)
{
	loop_io_set(f->hub->loop, &f->io, (f->io.events | more) & ~less);
}

ssize_t
forward_write(struct hub_forward *f, const uint8_t *data, size_t len)
{
	ssize_t n = write(f->fd, data, len);

	if (n < (ssize_t)len && (n >= 0 || errno == EAGAIN))
		watch(f, EPOLLOUT, 0);
	return n;
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct hub_forward *f = c->ctx;
	ssize_t n = (ssize_t)len;

	if (f->st.why[0] == '\0')
		n = f->kind->write != NULL ? f->kind->write(f, data, len) : forward_write(f, data, len);
	if (n < 0 && errno != EAGAIN) {
		end_soon(f, f->kind->ended);
		return (ssize_t)len;
	}
	f->out += n > 0 ? (uint64_t)n : 0;
	return n < 0 ? 0 : n;
}

ssize_t
forward_read(struct hub_forward *f, uint8_t *buf, size_t max, bool *ret_more)
{
	ssize_t n = read(f->fd, buf, max);

	/* Less than was asked for is all there was: another read would be a system call for nothing. */
	*ret_more = n == (ssize_t)max;
	if (n == 0)
		errno = ECONNRESET;
	return n == 0 ? -1 : n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct hub_forward *f = c->ctx;
	ssize_t n;

	if (f->st.why[0] != '\0' || (f->asked.id != 0 && !f->kind->early) || !f->readable)
		return 0;
	n = f->kind->read != NULL ? f->kind->read(f, buf, max, &f->readable) : forward_read(f, buf, max, &f->readable);
	if (n > 0)
		f->in += (uint64_t)n;
	else if (errno != EAGAIN)
		end_soon(f, f->kind->ended);
	if (!f->readable)
		watch(f, EPOLLIN, 0);
	return n > 0 ? n : 0;
}

/* Told again of what nobody has read since: the device takes nothing, and this loop must not become hot. */
static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct hub_forward *f = io->ctx;

	if ((events & (EPOLLHUP | EPOLLERR)) != 0 && ((events & EPOLLIN) == 0 || f->st.why[0] != '\0')) {
		loop_io_del(f->hub->loop, io);
		end_soon(f, f->kind->ended);
		return;
	}
	watch(f, 0, events & (f->readable ? EPOLLIN | EPOLLOUT : EPOLLOUT));
	if ((events & EPOLLIN) != 0) {
		f->readable = true;
		mux_want(&f->st.chan);
	}
	if ((events & EPOLLOUT) != 0)
		mux_resume(&f->st.chan);
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	end_soon(c->ctx, "the device ended it");
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct hub_forward *f = c->ctx;

	drop(f, f->st.refused[0] != '\0' ? f->st.refused : reason);
}

static void
opened(struct hub_stream *st, const struct json *payload)
{
	struct hub_forward *f = (struct hub_forward *)st;

	f->kind->opened(f, forward_client(f), payload);
	f->asked.id = 0;
	if (!f->kind->early)
		watch(f, EPOLLIN, 0);
}

int
forward_replace(struct hub_forward *f, int fd)
{
	int r = fd_set_nonblock(fd);

	if (r < 0)
		return r;
	loop_io_del(f->hub->loop, &f->io);
	close(f->fd);
	f->fd = -1;
	f->readable = false;
	r = loop_io_add(f->hub->loop, &f->io, fd, EPOLLIN, on_socket, f);
	if (r < 0) {
		end_soon(f, "this descriptor cannot be watched");
		return r;
	}
	f->fd = fd;
	mux_resume(&f->st.chan);
	return 0;
}

/* ---- beginning ---- */

static const struct mux_kind muxes[] = {
	{ .class = MUX_USB, .take = take, .ended = ended, .fill = fill, .closed = closed },
	{ .class = MUX_L2, .take = take, .ended = ended, .fill = fill, .closed = closed },
};

/* NULL: the client was told why. */
static struct session *
find_session(struct client *client, const struct ipc_hdr *asked, const char *device, int *ret_r)
{
	struct store_device d;

	return client_device(client, asked, device, &d, ret_r) ? client_session(client, asked, &d, ret_r) : NULL;
}

/* 0, or what client_say() was told. */
static int
look_for_room(const struct session *s, const struct hub_forward_kind *kind, const char *id, char why[120])
{
	unsigned n = 0;

	why[0] = '\0';
	for (const struct hub_forward *f = s->hub->forwards; f != NULL; f = f->next) {
		n += f->kind == kind;
		if (f->session == s && strcmp(f->id, id) == 0) {
			snprintf(why, 120, "a device of the name %s is forwarded to it already", id);
			return -EEXIST;
		}
	}
	if (n < FORWARDS_MAX)
		return 0;
	snprintf(why, 120, "%u %s are forwarded, as many as this hub can", n, kind->many);
	return -ENOSPC;
}

/* The channel, and the frame begun. */
static int
begin(struct hub_forward *f, struct json_w *w)
{
	const struct hub_forward_kind *k = f->kind;
	int r = streams_begin(f->session, &f->st, k->class == MUX_USB ? &muxes[0] : &muxes[1], f, w, "device_open", k->name);

	if (r < 0)
		return r;
	json_w_str(w, "device_id", f->id);
	f->next = f->hub->forwards;
	f->hub->forwards = f;
	return 0;
}

struct hub_forward *
forward_begin(struct client *client, struct ipc_msg *msg, const struct hub_forward_kind *kind, size_t size, const char *device,
    const char *id, struct json_w *w, int *ret_r)
{
	_cleanup_close_ int fd = ipc_take_fd(msg, 0);
	struct session *s = find_session(client, &msg->hdr, device, ret_r);
	struct hub_forward *f;
	char why[120];
	int r = s == NULL ? 0 : look_for_room(s, kind, id, why);

	if (s == NULL)
		return NULL;
	if (r < 0) {
		*ret_r = client_say(client, &msg->hdr, r, "%s", why);
		return NULL;
	}
	f = calloc(1, size);
	if (f == NULL || fd_set_nonblock(fd) < 0 || loop_io_add(client->hub->loop, &f->io, fd, kind->early ? EPOLLIN : 0, on_socket, f) < 0) {
		free(f);
		*ret_r = client_say(client, &msg->hdr, -ENOMEM, "out of memory");
		return NULL;
	}
	f->kind = kind;
	f->fd = fd;
	f->hub = client->hub;
	f->session = s;
	f->client = client->serial;
	f->asked = msg->hdr;
	f->st.opened = opened;
	stream_end_init(&f->st, client->hub, over);
	snprintf(f->device, sizeof(f->device), "%s", s->device);
	snprintf(f->id, sizeof(f->id), "%s", id);
	r = begin(f, w);
	if (r < 0) {
		loop_io_del(client->hub->loop, &f->io);
		free(f);
		*ret_r = client_say(client, &msg->hdr, r, r == -ENOTSUP ? "this device speaks no edgeward.1: it cannot be lent %s" :
		    "the device has too much to answer already for more %s", kind->many);
		return NULL;
	}
	take_fd(&fd);
	*ret_r = 0;
	return f;
}

void
forward_send(struct hub_forward *f, struct json_w *w)
{
	frame_end(w);
	session_send(f->session, w);
	mux_widen(&f->st.chan, MUX_WINDOW_BULK);
	conn_deadline(f->session->conn, FORWARD_SILENCE_MS);
}

void
forward_client_gone(struct hub *hub, uint64_t serial)
{
	for (struct hub_forward *f = hub->forwards, *next; f != NULL; f = next) {
		next = f->next;
		if (f->client == serial)
			end(f, "the command that forwarded it was ended");
	}
}

bool
forward_any(const struct session *s)
{
	for (const struct hub_forward *f = s->hub->forwards; f != NULL; f = f->next)
		if (f->session == s)
			return true;
	return false;
}
