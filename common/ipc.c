#include "common/ipc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "version.h"

#define RECORDS_A_TURN	32	/* then other sources get their turn */
#define MAX_PARTS	3

struct ipc_queued {
	struct ipc_queued *next;
	int fds[IPC_MAX_FDS];
	unsigned nfds;
	size_t len;		/* header and payload */
	uint8_t data[];
};

union control {
	struct cmsghdr align;
	char buf[CMSG_SPACE(sizeof(int) * IPC_MAX_FDS)];
};

static void chan_ready(struct loop_io *io, uint32_t events);

int
ipc_chan_init(struct ipc_chan *chan, struct loop *loop, int fd, const struct ipc_conf *conf)
{
	_cleanup_free_ uint8_t *buf = malloc(conf->max_payload);
	socklen_t len = sizeof(chan->peer);
	int r = buf != NULL ? fd_set_nonblock(fd) : -ENOMEM;

	*chan = (struct ipc_chan){ .io.fd = -1, .loop = loop, .conf = conf, .state = IPC_ST_HELLO };
	if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &chan->peer, &len) < 0)
		r = -errno;
	if (r == 0)
		r = loop_io_add(loop, &chan->io, fd, EPOLLIN, chan_ready, chan);
	if (r < 0) {
		close(fd);
		return r;
	}
	chan->buf = take_ptr(&buf);
	return 0;
}

static void
queued_free(struct ipc_queued *q)
{
	for (unsigned i = 0; i < q->nfds; i++)
		close(q->fds[i]);
	free(q);
}

static void
chan_close(struct ipc_chan *chan)
{
	struct ipc_queued *q;
	int fd = chan->io.fd;

	loop_io_del(chan->loop, &chan->io);
	if (fd >= 0)
		close(fd);
	while ((q = chan->head) != NULL) {
		chan->head = q->next;
		queued_free(q);
	}
	chan->tail = NULL;
	chan->queued = 0;
	chan->want_writable = false;
	chan->paused = false;
}

void
ipc_chan_done(struct ipc_chan *chan)
{
	if (chan->loop == NULL)
		return;
	chan_close(chan);
	free(chan->buf);
	chan->buf = NULL;
	chan->state = 0;
	chan->loop = NULL;
	if (chan->gone != NULL)
		*chan->gone = true;
	chan->gone = NULL;
}

bool
ipc_chan_is_open(const struct ipc_chan *chan)
{
	return chan->loop != NULL && chan->io.fd >= 0 && (chan->state & IPC_ST_OPEN) != 0;
}

static int
watch(struct ipc_chan *chan)
{
	bool out = chan->head != NULL || chan->want_writable;

	return loop_io_set(chan->loop, &chan->io, (chan->paused ? 0 : EPOLLIN) | (out ? EPOLLOUT : 0));
}

void
ipc_chan_pause(struct ipc_chan *chan, bool paused)
{
	if (chan->loop == NULL || chan->paused == paused)
		return;
	chan->paused = paused;
	watch(chan);
}

static void
put_fds(struct msghdr *mh, union control *ctl, const int *fds, unsigned nfds)
{
	struct cmsghdr *c;

	if (nfds == 0)
		return;
	memset(ctl, 0, sizeof(*ctl));
	mh->msg_control = ctl->buf;
	mh->msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
	c = CMSG_FIRSTHDR(mh);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
	memcpy(CMSG_DATA(c), fds, sizeof(int) * nfds);
}

/* One sendmsg; 0 or -errno. A record goes whole or not at all. */
static int
send_now(int fd, const struct iovec *iov, unsigned niov, const int *fds, unsigned nfds)
{
	struct msghdr mh = { .msg_iov = (struct iovec *)iov, .msg_iovlen = niov };
	union control ctl;

	put_fds(&mh, &ctl, fds, nfds);
	for (;;) {
		if (sendmsg(fd, &mh, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
			return 0;
		if (errno != EINTR)
			return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	}
}

static int
enqueue(struct ipc_chan *chan, const struct ipc_hdr *hdr, const void *data, size_t len, const int *fds, unsigned nfds)
{
	struct ipc_queued *q;
	size_t size = sizeof(*hdr) + len;

	if (chan->queued + size > chan->conf->queue_max)
		return -ENOBUFS;
	q = malloc(sizeof(*q) + size);
	if (q == NULL)
		return -ENOMEM;
	*q = (struct ipc_queued){ .len = size };
	for (; q->nfds < nfds; q->nfds++) {
		q->fds[q->nfds] = fcntl(fds[q->nfds], F_DUPFD_CLOEXEC, 3);
		if (q->fds[q->nfds] < 0) {
			int saved = errno;

			queued_free(q);
			return -saved;
		}
	}
	memcpy(q->data, hdr, sizeof(*hdr));
	if (len > 0)
		memcpy(q->data + sizeof(*hdr), data, len);
	if (chan->tail != NULL)
		chan->tail->next = q;
	else
		chan->head = q;
	chan->tail = q;
	chan->queued += size;
	return watch(chan);
}

int
ipc_send_fds(struct ipc_chan *chan, const struct ipc_hdr *hdr, const void *data, size_t len, const int *fds,
    unsigned nfds)
{
	struct ipc_hdr h = *hdr;
	struct iovec iov[2] = { { &h, sizeof(h) }, { (void *)data, len } };
	int r = -EAGAIN;

	if (chan->loop == NULL || chan->io.fd < 0)
		return -EPIPE;
	if (nfds > IPC_MAX_FDS || len > chan->conf->max_payload)
		return -EMSGSIZE;
	h.version = IPC_VERSION;
	h.nfds = (uint8_t)nfds;
	h.len = (uint32_t)len;
	if (chan->head == NULL)
		r = send_now(chan->io.fd, iov, len > 0 ? 2 : 1, fds, nfds);
	return r == -EAGAIN ? enqueue(chan, &h, data, len, fds, nfds) : r;
}

int
ipc_send(struct ipc_chan *chan, uint16_t type, const void *data, size_t len)
{
	struct ipc_hdr hdr = { .type = type };

	return ipc_send_fds(chan, &hdr, data, len, NULL, 0);
}

int
ipc_request(struct ipc_chan *chan, uint16_t type, const void *data, size_t len, const int *fds, unsigned nfds,
    uint32_t *ret_id)
{
	struct ipc_hdr hdr = { .type = type };
	int r;

	if (++chan->next_id == 0)
		chan->next_id = 1;
	hdr.id = chan->next_id;
	r = ipc_send_fds(chan, &hdr, data, len, fds, nfds);
	if (r == 0)
		*ret_id = hdr.id;
	return r;
}

int
ipc_answer(struct ipc_chan *chan, const struct ipc_hdr *req, int status, const void *data, size_t len)
{
	struct ipc_hdr hdr = { .type = (uint16_t)(req->type + 1), .id = req->id, .status = status };

	return ipc_send_fds(chan, &hdr, data, len, NULL, 0);
}

int
ipc_answer_fd(struct ipc_chan *chan, const struct ipc_hdr *req, int status, const void *data, size_t len, int fd)
{
	struct ipc_hdr hdr = { .type = (uint16_t)(req->type + 1), .id = req->id, .status = status };

	return ipc_send_fds(chan, &hdr, data, len, &fd, status == 0);
}

int
ipc_try_sendv(struct ipc_chan *chan, uint16_t type, const struct iovec *iov, unsigned niov)
{
	struct ipc_hdr h = { .type = type, .version = IPC_VERSION };
	struct iovec all[1 + MAX_PARTS] = { { &h, sizeof(h) } };
	size_t len = 0;
	int r = -EAGAIN;

	if (chan->loop == NULL || chan->io.fd < 0)
		return -EPIPE;
	if (niov > MAX_PARTS)
		return -EINVAL;
	for (unsigned i = 0; i < niov; i++) {
		all[1 + i] = iov[i];
		len += iov[i].iov_len;
	}
	if (len > chan->conf->max_payload)
		return -EMSGSIZE;
	h.len = (uint32_t)len;
	if (chan->head == NULL)
		r = send_now(chan->io.fd, all, 1 + niov, NULL, 0);
	if (r == -EAGAIN) {
		chan->want_writable = true;
		watch(chan);
	}
	return r;
}

int
ipc_send_hello(struct ipc_chan *chan, enum ipc_role role, uint64_t have_work)
{
	struct ipc_hello hello = { .role = role, .pid = getpid(), .have_work = have_work };

	snprintf(hello.build, sizeof(hello.build), "%s", EDGEWARD_VERSION);
	return ipc_send(chan, IPC_HELLO, &hello, sizeof(hello));
}

int
ipc_take_hello(struct ipc_chan *chan, const struct ipc_msg *msg, enum ipc_role role, struct ipc_hello *ret_hello)
{
	struct ipc_hello hello;

	memcpy(&hello, msg->data, sizeof(hello));
	if (hello.role != (uint32_t)role || !ipc_str_ok(hello.build, sizeof(hello.build)))
		return -EPROTO;
	chan->state = IPC_ST_OPEN;
	if (ret_hello != NULL)
		*ret_hello = hello;
	return 0;
}

int
ipc_take_fd(struct ipc_msg *msg, unsigned i)
{
	return i < msg->nfds ? take_fd(&msg->fds[i]) : -1;
}

static void
drop_fd(const struct ipc_conf *conf, int fd)
{
	if (conf->closer != NULL)
		closer_drop(conf->closer, fd);
	else
		close(fd);
}

/* Every descriptor that arrived, whatever else is wrong with the record; surplus ones are closed here. */
static void
collect_fds(const struct ipc_conf *conf, struct msghdr *mh, struct ipc_msg *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(mh); c != NULL; c = CMSG_NXTHDR(mh, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
			if (msg->nfds < IPC_MAX_FDS)
				msg->fds[msg->nfds++] = fd;
			else
				drop_fd(conf, fd);
		}
	}
}

static void
close_fds(const struct ipc_conf *conf, struct ipc_msg *msg)
{
	for (unsigned i = 0; i < msg->nfds; i++)
		if (msg->fds[i] >= 0)
			drop_fd(conf, msg->fds[i]);
	msg->nfds = 0;
}

/* Receives one record: its length, 0 = peer gone, -EAGAIN, -errno. */
static ssize_t
receive(struct ipc_chan *chan, struct ipc_msg *msg)
{
	const struct ipc_conf *conf = chan->conf;
	struct iovec iov[2] = { { &msg->hdr, sizeof(msg->hdr) }, { msg->data, conf->max_payload } };
	bool room = !conf->no_fds && (conf->closer == NULL || !closer_full(conf->closer));
	union control ctl;
	/* Those for which there is no room the kernel lets go by itself, without what close() does: MSG_CTRUNC. */
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = ctl.buf, .msg_controllen = room ? sizeof(ctl.buf) : 0 };
	ssize_t n;

	do
		n = recvmsg(chan->io.fd, &mh, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	collect_fds(conf, &mh, msg);
	if ((mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
		return -EMSGSIZE;
	return n;
}

static int
dispatch(struct ipc_chan *chan, struct ipc_msg *msg, size_t len)
{
	const struct ipc_conf *conf = chan->conf;
	const struct ipc_rule *rule;
	int r = ipc_check(&msg->hdr, len, conf->max_payload, msg->nfds);

	if (r < 0)
		return r;
	rule = ipc_rule_find(conf->rules, conf->nrules, chan->state, &msg->hdr);
	if (rule == NULL)
		return -EPROTO;
	return rule->handler(chan, msg, conf->ctx);
}

/* One record. 1 = go on, 0 = nothing more now, the peer closed or the channel is gone: *ret_end tells. */
static int
take_record(struct ipc_chan *chan, bool *gone, int *ret_end)
{
	const struct ipc_conf *conf = chan->conf;	/* a handler may change the channel's */
	struct ipc_msg msg = { .data = chan->buf };
	uint8_t *own = chan->conf->rx_buffer != NULL ? chan->conf->rx_buffer(chan, chan->conf->ctx) : NULL;
	ssize_t n;
	int r;

	if (own != NULL)
		msg.data = own;
	n = receive(chan, &msg);
	if (own != NULL && chan->conf->rx_unused != NULL && (n <= 0 ||
	    ipc_check(&msg.hdr, (size_t)n, chan->conf->max_payload, msg.nfds) < 0))
		chan->conf->rx_unused(chan, chan->conf->ctx);
	if (n == -EAGAIN)
		return 0;
	r = n > 0 ? dispatch(chan, &msg, (size_t)n) : (int)n;
	close_fds(conf, &msg);
	if (*gone)
		return 0;
	if (n > 0 && r >= 0)
		return chan->io.fd >= 0;
	*ret_end = r < 0 ? r : 1;
	return 0;
}

/* 0, or the error that ends the channel. */
static int
flush_queue(struct ipc_chan *chan)
{
	struct ipc_queued *q;

	while ((q = chan->head) != NULL) {
		struct iovec iov = { q->data, q->len };
		int r = send_now(chan->io.fd, &iov, 1, q->fds, q->nfds);

		if (r < 0)
			return r == -EAGAIN ? 0 : r;
		chan->head = q->next;
		if (chan->head == NULL)
			chan->tail = NULL;
		chan->queued -= q->len;
		queued_free(q);
	}
	return 0;
}

static void
chan_ready(struct loop_io *io, uint32_t events)
{
	struct ipc_chan *chan = io->ctx;
	uint64_t turn = loop_turns(chan->loop);
	int most = chan->lone && turn > chan->last_turn + 1 ? 1 : RECORDS_A_TURN, n = 0, end = 0;
	bool gone = false;

	chan->gone = &gone;
	if ((events & EPOLLOUT) != 0) {
		int r = flush_queue(chan);

		if (r < 0 && r != -EPIPE && r != -ECONNRESET)
			end = r;
		if (chan->head == NULL && chan->want_writable) {
			chan->want_writable = false;
			if (chan->conf->writable != NULL)
				chan->conf->writable(chan, chan->conf->ctx);
		}
		if (!gone)
			watch(chan);
	}
	while (n < most && !gone && end == 0 && !chan->paused && take_record(chan, &gone, &end) != 0)
		n++;
	/* epoll tells of a peer that is gone whether we want to read or not; waiting for the end of the pause would spin. */
	if (!gone && end == 0 && chan->paused && (events & (EPOLLHUP | EPOLLERR)) != 0)
		end = 1;
	if (gone)
		return;
	chan->lone = n <= 1;
	chan->last_turn = turn;
	chan->gone = NULL;
	if (end != 0) {
		chan_close(chan);
		chan->state = 0;
		/* That nobody was there to take an answer any more is the peer's end, too, and no fault of its. */
		chan->conf->ended(chan, end < 0 && end != -ECONNRESET && end != -EPIPE ? end : 0, chan->conf->ctx);
	}
}

int
ipc_pair(int size, int ret_fds[2], int *ret_size)
{
	int got = 0;
	socklen_t len = sizeof(got);

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ret_fds) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		if (setsockopt(ret_fds[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
			setsockopt(ret_fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (ret_size != NULL) {
		if (getsockopt(ret_fds[0], SOL_SOCKET, SO_SNDBUF, &got, &len) < 0)
			got = 0;
		*ret_size = got;
	}
	return 0;
}

int
ipc_connect(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;

	if (strlen(path) >= sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	memcpy(sun.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || connect(fd, (const struct sockaddr *)&sun, sizeof(sun)) < 0)
		return -errno;
	return take_fd(&fd);
}

int
ipc_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	return fd < 0 ? -errno : fd;
}

int
ipc_accept_from(int listener, struct ucred *ret_peer)
{
	_cleanup_close_ int fd = ipc_accept(listener);
	socklen_t len = sizeof(*ret_peer);

	if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_peer, &len) < 0)
		return -errno;
	return take_fd(&fd);
}

uint64_t
ipc_pair_id(uint64_t a, uint64_t b)
{
	uint64_t id = 0;

	while (id == 0 || id == a || id == b)
		if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id))
			return 0;
	return id;
}
