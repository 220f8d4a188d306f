/*
 * From the browser: heads are checked and rewritten by the gate (proto/hub/svcgate.h), what comes of it waits in out until the stream takes it.
 * The stream is opened when a whole head is there: a device has few of them. To the browser: bytes as they come. Neither side is read while the other one is full, so a browser that stalls stalls its own stream.
 */
#include "hub/proxyconn.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hub/adminpipe.h"

#define BACK_MAX	65536u
#define ASK_MAX		16384u
#define LINGER_MS	1000
#define NO_HUB		"the hub is gone; it is waited for"
#define HEAD_MS		30000	/* for the first head to be there */

struct proxyconn {
	struct proxyconn *next;
	struct proxyconns *all;
	uint32_t id;			/* of the request to the hub for a stream; 0 = no head has come yet */
	bool opened, browser_ended, device_ended, refusing, lingering;
	bool passed;			/* a request has gone on its way */
	bool broken;			/* the stream has not ended in good order */
	unsigned late;			/* status of the answer of our own that comes behind those of the device; 0 = none */
	const char *late_why;
	bool browser_ready, device_ready;	/* to be read, as the loop said; a read for nothing is a system call for nothing */
	struct loop_io browser, device;
	int device_fd;
	struct loop_timer timer;	/* its end, from the loop */
	struct svcgate gate;
	size_t in_off, in_len;		/* what the browser sent and the gate has not taken */
	size_t out_off, out_len;	/* for the device */
	size_t back_off, back_len;	/* for the browser */
	uint8_t in[ASK_MAX];
	char out[SVCHEAD_MAX];
	uint8_t back[BACK_MAX];
};

struct proxyconns {
	struct cli *cli;
	const char *device;
	const struct svcgate_conf *gate;
	struct proxyconn *list;
	unsigned n;
};

static void
drop(struct loop_timer *timer)
{
	struct proxyconn *c = timer->ctx;
	struct proxyconn **p = &c->all->list;
	struct loop *loop = c->all->cli->loop;
	int browser = c->browser.fd, device = c->device_fd;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	c->all->n--;
	loop_timer_del(loop, &c->timer);
	loop_io_del(loop, &c->browser);
	loop_io_del(loop, &c->device);
	if (browser >= 0)
		close(browser);
	if (device >= 0)
		close(device);
	explicit_bzero(c, sizeof(*c));
	free(c);
}

static void
drop_soon(struct proxyconn *c)
{
	loop_timer_set(c->all->cli->loop, &c->timer, monotime_now());
}

/* An answer of our own, behind which the connection is closed. */
static void
refuse(struct proxyconn *c, unsigned status, const char *why)
{
	int n;

	if (c->refusing)
		return;
	c->refusing = c->device_ended = c->browser_ended = true;
	c->in_len = c->in_off = c->out_len = c->out_off = 0;
	n = snprintf((char *)c->back + c->back_len, sizeof(c->back) - c->back_len, "HTTP/1.1 %u edgehub\r\nContent-Type: text/plain; "
	    "charset=utf-8\r\nContent-Length: %zu\r\n%sConnection: close\r\n\r\nedgehub proxy: %s\n", status, strlen(why) + 16,
	    status == 503 ? "Retry-After: 2\r\n" : "", why);
	if (n > 0 && (size_t)n < sizeof(c->back) - c->back_len)
		c->back_len += (size_t)n;
}

static void on_io(struct loop_io *io, uint32_t events);

static int
open_stream(struct proxyconn *c)
{
	struct admin_pipe req = { .purpose = "svc" };
	struct cli *cli = c->all->cli;
	int ends[2], r;

	if (!cli->up)
		return -ENOTCONN;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	snprintf(req.device, sizeof(req.device), "%s", c->all->device);
	loop_timer_del(cli->loop, &c->timer);
	r = loop_io_add(cli->loop, &c->device, ends[0], 0, on_io, c);
	if (r < 0)
		close(ends[0]);
	else
		c->device_fd = ends[0];
	if (r == 0)
		r = ipc_request(&cli->chan, ADMIN_REQ_PIPE, &req, sizeof(req), &ends[1], 1, &c->id);
	close(ends[1]);
	return r;
}

/* True when something moved. */
static bool
to_device(struct proxyconn *c)
{
	const char *why = "";
	size_t used = 0;
	unsigned status = 0;
	bool moved = false;

	if (c->late != 0)
		c->in_off = c->in_len;	/* nothing behind it is looked at */
	if (c->out_off == c->out_len && c->in_off < c->in_len && !c->refusing) {
		c->out_off = 0;
		status = svcgate_take(&c->gate, c->in + c->in_off, c->in_len - c->in_off, &used, c->out, &c->out_len, &why);
		c->in_off += used;
		moved = used > 0;
		/* Amid answers of the device another one would be taken for a part of them: it waits until they have ended. */
		if (status != 0 && c->passed) {
			c->late = status;
			c->late_why = why;
		} else if (status != 0) {
			refuse(c, status, why);
		}
		if (status != 0)
			return true;
	}
	if (c->out_off < c->out_len && c->device_fd < 0 && !c->refusing && open_stream(c) < 0)
		refuse(c, 503, c->all->cli->up ? "edgehub is busy" : NO_HUB);
	if (c->opened && c->out_off < c->out_len) {
		ssize_t n = send(c->device_fd, c->out + c->out_off, c->out_len - c->out_off, MSG_NOSIGNAL | MSG_DONTWAIT);

		c->passed = c->passed || n > 0;
		if (n > 0)
			c->out_off += (size_t)n;
		else if (n < 0 && errno != EAGAIN)
			c->out_off = c->out_len;	/* its end shows where it is read */
		moved = moved || n > 0;
	}
	return moved;
}

static bool
from_browser(struct proxyconn *c)
{
	ssize_t n;

	if (c->in_off < c->in_len || c->browser_ended || !c->browser_ready)
		return false;
	n = read(c->browser.fd, c->in, sizeof(c->in));
	c->browser_ready = n == (ssize_t)sizeof(c->in);
	c->in_off = c->in_len = 0;
	if (n > 0)
		c->in_len = (size_t)n;
	else if (n == 0 || errno != EAGAIN)
		c->browser_ended = true;
	return n > 0;
}

static bool
to_browser(struct proxyconn *c)
{
	ssize_t n;

	if (c->back_off == c->back_len)
		return false;
	n = send(c->browser.fd, c->back + c->back_off, c->back_len - c->back_off, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0)
		c->back_off += (size_t)n;
	else if (n < 0 && errno != EAGAIN)
		drop_soon(c);
	if (c->back_off == c->back_len)
		c->back_off = c->back_len = 0;
	return n > 0;
}

static bool
from_device(struct proxyconn *c)
{
	ssize_t n;

	if (!c->opened || c->device_ended || c->back_len > 0 || !c->device_ready)
		return false;
	n = read(c->device_fd, c->back, sizeof(c->back));
	c->device_ready = n == (ssize_t)sizeof(c->back);
	if (n > 0)
		c->back_len = (size_t)n;
	else if (n == 0 || errno != EAGAIN)
		c->device_ended = true;
	return n > 0;
}

/* Closed with bytes unread, the connection would be reset, and the answer with it. The stream is given back at once. */
static void
linger(struct proxyconn *c)
{
	struct loop *loop = c->all->cli->loop;

	c->lingering = true;
	loop_io_del(loop, &c->device);
	if (c->device_fd >= 0)
		close(c->device_fd);
	c->device_fd = -1;
	if (shutdown(c->browser.fd, SHUT_WR) < 0 || loop_io_set(loop, &c->browser, EPOLLIN) < 0)
		drop_soon(c);
	else
		loop_timer_set_ms(loop, &c->timer, LINGER_MS);
}

static void
discard(struct proxyconn *c)
{
	ssize_t n = read(c->browser.fd, c->in, sizeof(c->in));

	if (n == 0 || (n < 0 && errno != EAGAIN))
		drop_soon(c);
}

static void
go_on(struct proxyconn *c)
{
	struct loop *loop = c->all->cli->loop;
	bool moved = true;
	uint32_t browser, device;

	/* A few rounds, then the others have theirs. */
	for (unsigned i = 0; moved && i < 8; i++) {
		moved = from_browser(c);
		moved = to_device(c) || moved;
		moved = from_device(c) || moved;
		moved = to_browser(c) || moved;
	}
	if ((c->browser_ended || c->late != 0) && c->in_off == c->in_len && c->out_off == c->out_len && c->opened && !c->device_ended)
		shutdown(c->device_fd, SHUT_WR);
	if (c->device_ended && c->back_len == 0 && c->late != 0 && !c->broken && !c->refusing) {
		refuse(c, c->late, c->late_why);
		to_browser(c);
	}
	if (c->device_ended && c->back_len == 0) {
		linger(c);
		return;
	}
	if (c->browser_ended && c->device_fd < 0 && !c->refusing) {
		drop_soon(c);
		return;
	}
	browser = (c->in_off == c->in_len && !c->browser_ended ? EPOLLIN : 0u) | (c->back_len > 0 ? EPOLLOUT : 0u);
	device = (c->back_len == 0 && !c->device_ended ? EPOLLIN : 0u) | (c->out_off < c->out_len || c->in_off < c->in_len ? EPOLLOUT : 0u);
	loop_io_set(loop, &c->browser, browser);
	if (c->opened)
		loop_io_set(loop, &c->device, device);
}

static void
on_io(struct loop_io *io, uint32_t events)
{
	struct proxyconn *c = io->ctx;

	/* A hang-up on a side that is not awaited would make the loop hot. */
	if ((events & (EPOLLHUP | EPOLLERR)) != 0 && io->events == 0) {
		/* Before it is opened the hub's word on it, or the hub's own end, is still to come. */
		if (io == &c->device && !c->opened) {
			loop_io_del(c->all->cli->loop, io);
			c->device_ready = true;
		} else {
			drop_soon(c);
		}
		return;
	}
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && io == &c->browser)
		c->browser_ready = true;
	else if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
		c->device_ready = true;
	if (c->lingering)
		discard(c);
	else
		go_on(c);
}

/* ---- from the outside ---- */

/* Whoever has waited longest for his own head gives way. */
static bool
make_room(struct proxyconns *all)
{
	struct proxyconn *oldest = NULL;

	for (struct proxyconn *c = all->list; c != NULL; c = c->next)
		if (c->device_fd < 0 && !c->refusing)
			oldest = c;	/* the newest is first */
	if (all->n >= PROXYCONN_MAX && oldest != NULL)
		drop(&oldest->timer);
	return all->n < PROXYCONN_MAX;
}

void
proxyconns_add(struct proxyconns *all, int fd)
{
	static const char busy[] = "HTTP/1.1 503 edgehub\r\nContent-Length: 0\r\nRetry-After: 2\r\nConnection: close\r\n\r\n";
	struct proxyconn *c = make_room(all) ? calloc(1, sizeof(*c)) : NULL;

	if (c == NULL) {
		(void)send(fd, busy, sizeof(busy) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		close(fd);
		return;
	}
	c->all = all;
	c->browser.fd = c->device.fd = c->device_fd = -1;
	loop_timer_init(&c->timer, drop, c);
	svcgate_init(&c->gate, all->gate);
	c->next = all->list;
	all->list = c;
	all->n++;
	if (loop_io_add(all->cli->loop, &c->browser, fd, EPOLLIN, on_io, c) < 0) {
		close(fd);
		drop_soon(c);
	} else {
		loop_timer_set_ms(all->cli->loop, &c->timer, HEAD_MS);
	}
}

void
proxyconns_told(struct proxyconns *all, const struct ipc_msg *msg)
{
	struct proxyconn *c = all->list;
	struct admin_text text = { "" };
	char clean[sizeof(text.text)];

	while (c != NULL && c->id != msg->hdr.id)
		c = c->next;
	if (c == NULL || c->id == 0)
		return;
	if (msg->hdr.len == sizeof(text))
		memcpy(&text, msg->data, sizeof(text));
	cli_text(clean, sizeof(clean), admin_text_ok(&text) && text.text[0] != '\0' ? text.text : "the stream to the device has ended");
	if (msg->hdr.type == ADMIN_EV_PIPE_END) {
		c->broken = true;
		fprintf(stderr, "edgehub: %s\n", clean);
	} else if (msg->hdr.status == 0) {
		c->opened = true;
	} else {
		refuse(c, msg->hdr.status == -ENOSPC || strncmp(clean, "busy:", 5) == 0 ? 503 : 502, clean);
	}
	if (!c->lingering)
		go_on(c);
}

void
proxyconns_hub_gone(struct proxyconns *all)
{
	for (struct proxyconn *c = all->list; c != NULL; c = c->next) {
		c->id = 0;	/* the next hub counts anew */
		c->broken = true;
		if (c->device_fd < 0 || c->opened || c->refusing)
			continue;
		refuse(c, 503, NO_HUB);
		go_on(c);
	}
}

int
proxyconns_new(struct cli *cli, const char *device, const struct svcgate_conf *gate, struct proxyconns **ret_conns)
{
	struct proxyconns *all = calloc(1, sizeof(*all));

	if (all == NULL)
		return -ENOMEM;
	*all = (struct proxyconns){ .cli = cli, .device = device, .gate = gate };
	*ret_conns = all;
	return 0;
}

void
proxyconns_free(struct proxyconns *all)
{
	if (all == NULL)
		return;
	while (all->list != NULL)
		drop(&all->list->timer);
	free(all);
}
