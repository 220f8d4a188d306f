/*
 * l2 forward: joins a TAP of this machine, or a stream socket, to an interface in the network of a run. For a socket the hub
 * gets it and all is done; for a TAP the frames are made into records here, so that the hub needs no right but to pass bytes on.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/parse.h"
#include "hub/adminl2.h"
#include "hub/cli_forward.h"
#include "proto/hub/l2rec.h"

#define USAGE	"l2 forward DEVICE [--for HANDLE] (--tap NAME | --unix PATH) [--name eth1] [--address A/P]... [--mac M] [--mtu N] [--offload] [--id NAME]"
#define BUFFER	(256u * 1024)

static struct {
	struct cli_forward f;
	bool offload;
	int tap, sock;			/* -1: the hub has it itself */
	struct loop_io tap_io, sock_io;
	struct l2rec rec;
	size_t len, sent;		/* of out: records on their way to the hub */
	uint8_t out[BUFFER];
} self;

/* ---- the TAP ---- */

static int
open_tap(const char *name, bool offload)
{
	struct ifreq ifr = { .ifr_flags = (short)(IFF_TAP | IFF_NO_PI | (offload ? IFF_VNET_HDR : 0)) };
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), little = 1, size = L2REC_VNET;

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0 || (offload && (ioctl(fd, TUNSETVNETHDRSZ, &size) < 0 ||
	    ioctl(fd, TUNSETVNETLE, &little) < 0 || ioctl(fd, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) < 0))) {
		cli_fail(CLI_FAILED, "%s: %s%s", name, strerror(errno), errno == EPERM ? ": making an interface needs root" : "");
		return -1;
	}
	return fd;
}

static void
to_tap(const uint8_t *data, size_t len, enum l2rec_verdict verdict, void *ctx)
{
	/* What it does not take is lost, as on any cable. */
	if (verdict == L2REC_GOOD)
		(void)!write(self.tap, data, len);
}

static void
flush(void)
{
	ssize_t n = write(self.sock, self.out + self.sent, self.len - self.sent);

	if (n > 0)
		self.sent += (size_t)n;
	if (self.sent == self.len)
		self.sent = self.len = 0;
	loop_io_set(self.f.cli->loop, &self.sock_io, self.len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
	loop_io_set(self.f.cli->loop, &self.tap_io, self.len > 0 ? 0 : EPOLLIN);	/* its queue waits, and drops */
}

static void
on_tap(struct loop_io *io, uint32_t events)
{
	size_t head = l2rec_head(self.offload);
	ssize_t n = 1;

	while (n > 0 && sizeof(self.out) - self.len >= L2REC_ROOM) {
		n = read(self.tap, self.out + self.len + head, L2REC_MAX);
		if (n <= 0)
			break;
		l2rec_put_head(self.out + self.len, self.offload, (size_t)n);
		self.len += head + (size_t)n;
	}
	if (n < 0 && errno != EAGAIN) {
		snprintf(self.f.why, sizeof(self.f.why), "the interface: %s", strerror(errno));
		self.f.ended = true;
	}
	if (self.len > 0)
		flush();
}

static void
on_sock(struct loop_io *io, uint32_t events)
{
	static uint8_t buf[65536];
	ssize_t n = read(self.sock, buf, sizeof(buf));

	if (n > 0 && l2rec_take(&self.rec, buf, (size_t)n, to_tap, NULL) < 0)
		n = 0;
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		loop_io_del(self.f.cli->loop, io);	/* the reason follows */
		return;
	}
	if ((events & EPOLLOUT) != 0)
		flush();
}

/* ---- the hub ---- */

static int
on_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct admin_text text;

	if (msg->hdr.type != ADMIN_EV_L2_END)
		return -EPROTO;
	memcpy(&text, msg->data, sizeof(text));
	self.f.ended = true;
	cli_text(self.f.why, sizeof(self.f.why), admin_text_ok(&text) ? text.text : "the hub ended it");
	return 0;
}

static void
print_item(const struct cli *cli, const struct admin_l2_item *item)
{
	static char buf[1024];
	char id[32], name[32], mac[32];
	struct json_w w;

	if (!cli->json) {
		printf("%s: %s, %s, MTU %u%s\n", cli_text(id, sizeof(id), item->id), cli_text(name, sizeof(name), item->interface),
		    cli_text(mac, sizeof(mac), item->mac), item->mtu, item->offload != 0 ? ", offload" : "");
	} else {
		json_w_init(&w, buf, sizeof(buf));
		json_w_obj(&w, NULL);
		json_w_str(&w, "name", item->id);
		json_w_str(&w, "interface", item->interface);
		json_w_str(&w, "mac", item->mac);
		json_w_int(&w, "mtu", item->mtu);
		json_w_bool(&w, "offload", item->offload != 0);
		json_w_end_obj(&w);
		cli_print_json(&w);
	}
	fflush(stdout);
}

static int
stay(const struct admin_l2_item *item, const char *tap)
{
	self.offload = item->offload != 0;
	if (tap != NULL) {
		self.tap = open_tap(tap, self.offload);
		if (self.tap < 0)
			return CLI_FAILED;
		l2rec_init(&self.rec, self.offload, item->mtu);
		if (loop_io_add(self.f.cli->loop, &self.tap_io, self.tap, EPOLLIN, on_tap, NULL) < 0 ||
		    loop_io_add(self.f.cli->loop, &self.sock_io, self.sock, EPOLLIN, on_sock, NULL) < 0)
			return cli_fail(CLI_FAILED, "out of memory");
	}
	print_item(self.f.cli, item);
	return cli_forward_stay(&self.f);
}

/* The hub's end of it. */
static int
make_end(const char *unix_path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int ends[2], fd;

	if (unix_path == NULL) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
			return -errno;
		self.sock = ends[0];
		return ends[1];
	}
	if (snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", unix_path) >= (int)sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return fd < 0 || connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 ? -errno : fd;
}

static int
forward(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "for", required_argument, NULL, 'f' }, { "tap", required_argument, NULL, 't' }, { "unix", required_argument, NULL, 'u' },
		{ "name", required_argument, NULL, 'n' }, { "address", required_argument, NULL, 'a' }, { "mac", required_argument, NULL, 'm' },
		{ "mtu", required_argument, NULL, 'M' }, { "offload", no_argument, NULL, 'o' }, { "id", required_argument, NULL, 'i' }, { 0 },
	};
	struct admin_l2 req = { .name = "eth1" };
	struct admin_l2_item item;
	const char *tap = NULL, *path = NULL;
	unsigned n = 0;
	bool good = true;
	int opt, fd, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'f': good = good && cli_forward_copy(req.handle, sizeof(req.handle), optarg); break;
		case 't': tap = optarg; break;
		case 'u': path = optarg; break;
		case 'n': good = good && cli_forward_copy(req.name, sizeof(req.name), optarg); break;
		case 'a': good = good && n < 4 && cli_forward_copy(req.addrs[n++], sizeof(req.addrs[0]), optarg); break;
		case 'm': good = good && cli_forward_copy(req.mac, sizeof(req.mac), optarg); break;
		case 'M': good = good && parse_u32(optarg, 576, 9000, &req.mtu) == 0; break;
		case 'o': req.offload = 1; break;
		case 'i': good = good && cli_forward_copy(req.id, sizeof(req.id), optarg); break;
		default: good = false;
		}
	}
	if (!good || argc - optind != 1 || (tap == NULL) == (path == NULL) || (tap != NULL && strlen(tap) >= IFNAMSIZ) ||
	    !cli_forward_copy(req.device, sizeof(req.device), argv[optind]))
		return cli_usage(USAGE);
	if (req.id[0] == '\0')
		cli_forward_name(req.id, "l2");
	if (!admin_l2_ok(&req))
		return cli_fail(CLI_USAGE, "--for is the handle of a run; --address one of a host, such as 192.0.2.2/24; --mac locally "
		    "administered, such as 02:00:00:00:00:01; --name that of an interface; --id 1 to 31 of a-z 0-9 -");
	self.tap = self.sock = -1;
	fd = make_end(path);
	if (fd < 0)
		return cli_fail(CLI_FAILED, "%s: %s", path != NULL ? path : "socketpair", strerror(-fd));
	self.f.cli = cli;
	cli->event = on_event;
	r = cli_forward_ask(&self.f, ADMIN_REQ_L2, &req, sizeof(req), fd, &item, sizeof(item));
	return r != 0 ? r : stay(&item, tap);
}

int
cli_l2(struct cli *cli, int argc, char *argv[])
{
	if (argc > 2 && strcmp(argv[1], "forward") == 0)
		return forward(cli, argc - 1, argv + 1);
	return cli_usage(USAGE);
}
