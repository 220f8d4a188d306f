#include "tests/unit/introrig.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

static const enum ipc_role roles[SIDES] = { IPC_ROLE_CONNECTD, IPC_ROLE_WORKERD };
static char dir[64], path[96];
static int listener = -1;
static struct loop *loop;
static struct introducer in;
static int64_t clock_ns = 1000000000;

static int64_t
mock_clock(void)
{
	return clock_ns;
}

void
pass_time(int64_t ms)
{
	clock_ns += ms * 1000000;
}

unsigned
strikes(void)
{
	return in.strikes[C].n + in.strikes[W].n + in.strikes[SIDE_EITHER].n;
}

void
start(uid_t net, uid_t work)
{
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(introduce_init(&in, loop, listener, net, work), 0);
}

void
stop(void)
{
	loop_io_del(loop, &in.listen);
	for (unsigned i = 0; i < SIDES * PEERS_A_UID; i++)
		ipc_chan_done(&in.peers[i / PEERS_A_UID][i % PEERS_A_UID].chan);
	loop_free(loop);
}

void
settle(void)
{
	for (int i = 0; i < 6; i++)
		assert_int_equal(loop_turn(loop, 0), 0);
}

int
setup(void **state)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	snprintf(dir, sizeof(dir), "/tmp/edgeward-unit-XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/introduce.sock", dir);
	memcpy(sun.sun_path, path, strlen(path) + 1);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(listener, 16), 0);
	monotime_set_source(mock_clock, NULL);
	start(getuid(), getuid());
	return 0;
}

int
teardown(void **state)
{
	stop();
	monotime_set_source(NULL, NULL);
	close(listener);
	unlink(path);
	rmdir(dir);
	return 0;
}

void
hang_up(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

void
die(struct client *c)
{
	hang_up(c);
	if (c->work >= 0)
		close(c->work);
	*c = (struct client){ .fd = -1, .work = -1 };
}

void
dial(struct client *c)
{
	c->fd = ipc_connect(path);
	assert_true(c->fd >= 0);
	c->eof = false;
}

void
put(struct client *c, const struct ipc_hdr *hdr, const void *data, size_t len, const int *fds, unsigned nfds)
{
	union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int) * 8)]; } ctl = { 0 };
	struct iovec iov[2] = { { (void *)hdr, sizeof(*hdr) }, { (void *)data, len } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };

	if (nfds > 0) {
		struct cmsghdr *cm;

		mh.msg_control = ctl.buf;
		mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
		cm = CMSG_FIRSTHDR(&mh);
		*cm = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(sizeof(int) * nfds) };
		memcpy(CMSG_DATA(cm), fds, sizeof(int) * nfds);
	}
	assert_true(sendmsg(c->fd, &mh, MSG_NOSIGNAL) >= 0);
}

void
say_hello(struct client *c, uint32_t role, uint64_t have)
{
	struct ipc_hdr hdr = { .type = IPC_HELLO, .version = IPC_VERSION, .len = sizeof(struct ipc_hello) };
	struct ipc_hello hello = { .role = role, .pid = 1, .have_work = have, .build = "test" };

	put(c, &hdr, &hello, sizeof(hello), NULL, 0);
}

static void
take_peer(struct client *c, const uint8_t *data, int fd)
{
	struct priv_peer peer;

	memcpy(&peer, data, sizeof(peer));
	assert_true(fd >= 0);
	assert_true(peer.pair != 0);
	if (c->work >= 0)
		close(c->work);
	c->work = fd;
	c->pair = peer.pair;
	c->max_data = peer.max_data;
	c->peers++;
}

/* Everything the introducer has said by now. */
void
listen_to(struct client *c)
{
	struct { struct ipc_hdr hdr; uint8_t data[IPC_MAX_PRIV]; } rec;
	union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int) * 8)]; } ctl;

	while (c->fd >= 0 && !c->eof) {
		struct iovec iov = { &rec, sizeof(rec) };
		struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl.buf, .msg_controllen = sizeof(ctl) };
		ssize_t n = recvmsg(c->fd, &mh, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct cmsghdr *cm = n > 0 ? CMSG_FIRSTHDR(&mh) : NULL;
		int fd = -1;

		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			c->eof = true;
			return;
		}
		assert_int_equal(ipc_check(&rec.hdr, (size_t)n, IPC_MAX_PRIV, cm != NULL), 0);
		if (cm != NULL)
			memcpy(&fd, CMSG_DATA(cm), sizeof(fd));
		if (rec.hdr.type == IPC_HELLO)
			c->hellos++;
		else if (rec.hdr.type == PRIV_EV_PEER)
			take_peer(c, rec.data, fd);
		else if (rec.hdr.type == PRIV_EV_GONE)
			c->gone++;
		else
			fail_msg("unknown record 0x%x", rec.hdr.type);
	}
}

void
settle_with(struct client *c, struct client *w)
{
	settle();
	if (c != NULL)
		listen_to(c);
	if (w != NULL)
		listen_to(w);
}

void
come(struct client *c, enum side side, uint64_t have)
{
	dial(c);
	say_hello(c, roles[side], have);
}

void
assert_joined(struct client *c, struct client *w)
{
	char buf[8] = "";

	assert_true(c->pair != 0 && c->pair == w->pair);
	assert_int_equal(send(c->work, "over", 5, 0), 5);
	assert_int_equal(recv(w->work, buf, sizeof(buf), MSG_DONTWAIT), 5);
	assert_int_equal(send(w->work, "back", 5, 0), 5);
	assert_int_equal(recv(c->work, buf, sizeof(buf), MSG_DONTWAIT), 5);
}
