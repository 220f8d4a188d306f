/*
 * An http stream (edgeward.md section 3) of a device, joined to a socket that the CLI hands over. This hub carries the bytes and does not look at
 * them: the CLI is the client of HTTP, the device the server. Each direction ends by itself; what goes wrong ends both, and the CLI is told why.
 */
#include "hub/pipe.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "hub/adminpipe.h"
#include "hub/streams.h"

#define PIPES_MAX	512u

struct hub_pipe {
	struct hub_stream st;		/* first */
	struct hub_pipe *next;
	struct hub *hub;
	uint64_t client;
	struct ipc_hdr asked;		/* the client's request */
	bool answered, read_ended;
	bool readable, hup;		/* there may be bytes to read; its other end is gone, and nothing tells of them any more */
	int fd;				/* the CLI's */
	struct loop_io io;		/* ... from opened() on */
	char device[DEVICE_ID_SIZE];
};

/* The last of it. The channel is closed already. why "": both sides have ended in good order. */
static void
drop(struct hub_pipe *p, const char *why)
{
	struct hub_pipe **q = &p->hub->pipes;
	struct client *c = client_find(p->hub, p->client);
	struct ipc_hdr hdr = { .type = ADMIN_EV_PIPE_END, .id = p->asked.id };
	struct admin_text text = { 0 };

	log_debug("device %s: http stream: %s", p->device, why[0] != '\0' ? why : "ended");
	snprintf(text.text, sizeof(text.text), "%s", why);
	if (c != NULL && !p->answered)
		(void)client_say(c, &p->asked, -EREMOTEIO, "%s", why);
	else if (c != NULL && why[0] != '\0')
		(void)ipc_send_fds(&c->chan, &hdr, &text, sizeof(text), NULL, 0);
	while (*q != p)
		q = &(*q)->next;
	*q = p->next;
	p->hub->npipes--;
	stream_end_off(&p->st);
	loop_io_del(p->hub->loop, &p->io);
	close(p->fd);
	free(p);
}

static void
end(struct hub_pipe *p, const char *why)
{
	mux_reset(&p->st.chan, STREAM_RESET_GONE, why);
	drop(p, why);
}

static void
over(struct hub_stream *st, const char *why)
{
	drop((struct hub_pipe *)st, why);
}

static void
watch(struct hub_pipe *p, uint32_t more, uint32_t less)
{
	if (p->st.why[0] == '\0')
		loop_io_set(p->hub->loop, &p->io, (p->io.events | more) & ~less);
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct hub_pipe *p = c->ctx;
	ssize_t n = p->st.why[0] == '\0' ? send(p->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) : (ssize_t)len;

	if (n < 0 && errno != EAGAIN) {
		stream_end_soon(&p->st, "its end here was closed", 0);
		return (ssize_t)len;
	}
	if (n < (ssize_t)len)
		watch(p, EPOLLOUT, 0);
	return n < 0 ? 0 : n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct hub_pipe *p = c->ctx;
	ssize_t n;

	if (p->st.why[0] != '\0' || !p->answered || p->read_ended || !p->readable)
		return 0;
	n = read(p->fd, buf, max);
	/* Less than was asked for is all there was: another read would be a system call for nothing. */
	p->readable = n == (ssize_t)max || p->hup;
	if (n == 0) {
		p->read_ended = true;
		mux_end(c, NULL);
	} else if (n < 0 && errno != EAGAIN) {
		stream_end_soon(&p->st, "its end here was closed", 0);
	} else if (!p->readable) {
		watch(p, EPOLLIN, 0);
	}
	return n > 0 ? n : 0;
}

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct hub_pipe *p = io->ctx;

	if ((events & (EPOLLHUP | EPOLLERR)) != 0 && (events & EPOLLIN) == 0) {
		loop_io_del(p->hub->loop, io);
		p->hup = p->readable = true;
		if (!p->read_ended)
			mux_want(&p->st.chan);	/* what is still to be read, and the end */
		else
			stream_end_soon(&p->st, "its end here was closed", 0);
		return;
	}
	/* Told again of what nobody has read since: the device takes nothing, and this loop must not become hot. */
	watch(p, 0, events & (p->readable ? EPOLLIN | EPOLLOUT : EPOLLOUT));
	if ((events & EPOLLIN) != 0) {
		p->readable = true;
		mux_want(&p->st.chan);
	}
	if ((events & EPOLLOUT) != 0)
		mux_resume(&p->st.chan);
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	struct hub_pipe *p = c->ctx;

	shutdown(p->fd, SHUT_WR);
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct hub_pipe *p = c->ctx;

	drop(p, p->st.refused[0] != '\0' ? p->st.refused : code != 0 ? reason : "");
}

static const struct mux_kind kind = { .class = MUX_HTTP, .take = take, .ended = ended, .fill = fill, .closed = closed };

static void
opened(struct hub_stream *st, const struct json *payload)
{
	struct hub_pipe *p = (struct hub_pipe *)st;
	struct client *c = client_find(p->hub, p->client);

	if (p->answered || c == NULL)
		return;
	p->answered = true;
	(void)ipc_answer(&c->chan, &p->asked, 0, NULL, 0);
	if (loop_io_add(p->hub->loop, &p->io, p->fd, EPOLLIN, on_socket, p) < 0)
		stream_end_soon(&p->st, "out of memory", 0);
}

static int
forward(struct client *client, struct session *s, const struct ipc_msg *msg, const struct admin_pipe *req, int *fd)
{
	struct hub *hub = client->hub;
	struct hub_pipe *p = hub->npipes < PIPES_MAX && fd_set_nonblock(*fd) == 0 ? calloc(1, sizeof(*p)) : NULL;
	char actor[32];
	struct json_w w;
	int r;

	if (p == NULL)
		return client_say(client, &msg->hdr, -ENOSPC, "%u streams are open, as many as this hub can", hub->npipes);
	p->hub = hub;
	p->client = client->serial;
	p->asked = msg->hdr;
	p->st.opened = opened;
	p->io.fd = -1;
	stream_end_init(&p->st, hub, over);
	snprintf(p->device, sizeof(p->device), "%s", s->device);
	r = streams_begin(s, &p->st, &kind, p, &w, "stream_open", "http");
	if (r < 0) {
		free(p);
		return client_say(client, &msg->hdr, r, r == -ENOTSUP ? "this device speaks no edgeward.1: it serves nothing" :
		    "the device has too much to answer already");
	}
	p->fd = *fd;
	*fd = -1;
	p->next = hub->pipes;
	hub->pipes = p;
	hub->npipes++;
	snprintf(actor, sizeof(actor), "uid %u", (unsigned)client->chan.peer.uid);
	json_w_str(&w, "purpose", req->purpose);
	json_w_str(&w, "actor", actor);
	frame_end(&w);
	session_send(s, &w);
	return 0;
}

int
client_pipe(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct store_device d;
	struct admin_pipe req;
	struct session *s;
	int fd, r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_pipe_ok(&req))
		return -EPROTO;
	if (!client_device(client, &msg->hdr, req.device, &d, &r))
		return r;
	s = client_session(client, &msg->hdr, &d, &r);
	if (s == NULL)
		return r;
	fd = ipc_take_fd(msg, 0);
	r = forward(client, s, msg, &req, &fd);
	if (fd >= 0)
		close(fd);
	return r;
}

void
pipe_client_gone(struct hub *hub, uint64_t serial)
{
	for (struct hub_pipe *p = hub->pipes, *next; p != NULL; p = next) {
		next = p->next;
		if (p->client == serial)
			end(p, "edgehub was ended");
	}
}
