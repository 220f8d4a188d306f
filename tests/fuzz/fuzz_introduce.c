/*
 * privhelper from the socket on, with the verbs but without a vhci_hcd: up to four connections that say anything, in any order, with and without
 * descriptors. What is sent is of /dev/null, which is no network: an interface is refused before anything is asked of it. It never ends, and
 * leaves no descriptor behind. Between two steps a refusal is over (33 s), so that what comes after a bad record is reached, too.
 *
 * Input: steps of one byte (bits 0-1 connection, 2 hang up and dial again first, 3 with a descriptor, 4 let the loop turn), one byte
 * of length and that many bytes: a record.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "privhelper/usb.h"
#include "proto/ipc/priv.h"

#define CLIENTS	4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct sockaddr_un name = { .sun_family = AF_UNIX };	/* autobind: an abstract name */

/* The real ones would fill the terminal; what is fatal would hide as an exit. */
void log_info(const char *fmt, ...) { }
void log_warn(const char *fmt, ...) { }
void log_error(const char *fmt, ...) { }
void fatal(const char *fmt, ...) { abort(); }

static int64_t clock_ns;
static struct usb usb;

static int64_t
mock_clock(void)
{
	return clock_ns;
}

static int
dial(int listener)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sun;
	socklen_t len = sizeof(sun);

	if (fd < 0 || getsockname(listener, (struct sockaddr *)&sun, &len) < 0)
		abort();
	if (connect(fd, (struct sockaddr *)&sun, len) == 0)
		return fd;
	close(fd);
	return -1;
}

static void
say(int fd, const uint8_t *data, size_t len, bool with_fd)
{
	union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int))]; } ctl = { 0 };
	struct iovec iov = { (void *)data, len };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	_cleanup_close_ int null = -1;

	if (with_fd) {
		null = open("/dev/null", O_RDONLY | O_CLOEXEC);
		if (null < 0)
			abort();
		mh.msg_control = ctl.buf;
		mh.msg_controllen = sizeof(ctl.buf);
		*CMSG_FIRSTHDR(&mh) = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
			.cmsg_len = CMSG_LEN(sizeof(int)) };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), &null, sizeof(null));
	}
	sendmsg(fd, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void
play(struct loop *loop, int listener, const uint8_t *data, size_t size)
{
	int clients[CLIENTS] = { -1, -1, -1, -1 };

	while (size >= 2) {
		int *fd = &clients[data[0] % CLIENTS];
		size_t len = data[1] < size - 2 ? data[1] : size - 2;

		if ((data[0] & 4) != 0 && *fd >= 0) {
			close(*fd);
			*fd = -1;
		}
		if (*fd < 0)
			*fd = dial(listener);
		if (*fd >= 0)
			say(*fd, data + 2, len, (data[0] & 8) != 0);
		for (int i = 0; i < 3 && (data[0] & 16) != 0; i++)
			loop_turn(loop, 0);
		clock_ns += 33 * (int64_t)1000000000;
		data += 2 + len;
		size -= 2 + len;
	}
	for (int i = 0; i < 6; i++)
		loop_turn(loop, 0);
	for (int i = 0; i < CLIENTS; i++)
		if (clients[i] >= 0)
			close(clients[i]);
}

/* What the verbs do when workerd has gone is not under test here. */
static void
nothing(struct loop_timer *timer)
{
	(void)timer;
}

static void
run(const uint8_t *data, size_t size)
{
	static struct introducer in;
	struct loop *loop;
	int before, after, listener;

	before = dup(0);
	close(before);
	monotime_set_source(mock_clock, NULL);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (bind(listener, (const struct sockaddr *)&name, sizeof(name.sun_family)) < 0 || listen(listener, 8) < 0 ||
	    loop_new(&loop) < 0 || introduce_init(&in, loop, listener, getuid(), getuid()) < 0)
		abort();
	in.conf[SIDE_WORKERD].no_fds = false;	/* as with l2 = yes */
	in.usb = &usb;
	usb.asker = &in.live[SIDE_WORKERD];
	usb.loop = loop;
	loop_timer_init(&usb.timer, nothing, NULL);
	loop_timer_init(&usb.refusals, nothing, &usb);
	play(loop, listener, data, size);
	loop_io_del(loop, &in.listen);
	for (unsigned i = 0; i < SIDES * PEERS_A_UID; i++)
		ipc_chan_done(&in.peers[i / PEERS_A_UID][i % PEERS_A_UID].chan);
	loop_timer_del(loop, &usb.timer);
	loop_timer_del(loop, &usb.refusals);
	loop_free(loop);
	close(listener);
	after = dup(0);
	close(after);
	if (after != before)
		abort();
}

/* A verb behind a door that is shut would be fuzzed in vain: a good record of an interface reaches its handler, and gets nothing. */
static void
reaches_tap(void)
{
	struct {
		uint8_t step, len;
		struct ipc_hdr hdr;
		struct ipc_hello hello;
		uint8_t step2, len2;
		struct ipc_hdr hdr2;
		struct priv_tap tap;
	} __attribute__((packed)) input = {
		17, sizeof(struct ipc_hdr) + sizeof(struct ipc_hello),
		{ .type = IPC_HELLO, .version = IPC_VERSION, .len = sizeof(struct ipc_hello) }, { .role = IPC_ROLE_WORKERD, .build = "x" },
		25, sizeof(struct ipc_hdr) + sizeof(struct priv_tap),
		{ .type = PRIV_REQ_TAP, .version = IPC_VERSION, .nfds = 1, .len = sizeof(struct priv_tap), .id = 1 },
		{ .name = "eth1", .mac = { 2 }, .mtu = 1500 },
	};
	char text[2 * AUDIT_LINE] = "";

	run((const uint8_t *)&input, sizeof(input));
	if (pread(usb.audit.fd, text, sizeof(text) - 1, 0) < 0 || strstr(text, "tap name=eth1 mtu=1500 offload=0 result=EPERM") == NULL)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!usb.ready) {
		usb = (struct usb){ .ready = true, .permitted = true, .l2 = true, .taps.control = -1, .grants.dir = -1,
			.audit = { .fd = memfd_create("audit", MFD_CLOEXEC), .head = audit_first } };
		reaches_tap();
	}
	run(data, size);
	if (ftruncate(usb.audit.fd, 0) < 0)
		abort();
	return 0;
}
