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
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/parse.h"
#include "hub/adminl2.h"
#include "hub/cli.h"
#include "proto/hub/l2rec.h"

#define USAGE	"l2 forward DEVICE --for HANDLE (--tap NAME | --unix PATH) [--name eth1] [--address A/P]... [--mac M] [--mtu N] [--offload] [--id NAME]"
#define BUFFER	(256u * 1024)

static struct {
	struct cli *cli;
	bool ended, stopped, offload;
	char why[256];
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
	loop_io_set(self.cli->loop, &self.sock_io, self.len > 0 ? EPOLLIN | EPOLLOUT : EPOLLIN);
	loop_io_set(self.cli->loop, &self.tap_io, self.len > 0 ? 0 : EPOLLIN);	/* its queue waits, and drops */
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
		snprintf(self.why, sizeof(self.why), "the interface: %s", strerror(errno));
		self.ended = true;
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
		loop_io_del(self.cli->loop, io);	/* the reason follows */
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
	self.ended = true;
	cli_text(self.why, sizeof(self.why), admin_text_ok(&text) ? text.text : "the hub ended it");
	return 0;
}

static void
on_signal(int signo, void *ctx)
{
	self.stopped = true;
}

static void
print_item(const struct cli *cli, const struct admin_l2_item *item)
{
	static char buf[1024];
	char name[32], mac[32];
	struct json_w w;

	if (!cli->json) {
		printf("%s: %s, MTU %u%s\n", cli_text(name, sizeof(name), item->interface), cli_text(mac, sizeof(mac), item->mac), item->mtu,
		    item->offload != 0 ? ", offload" : "");
	} else {
		json_w_init(&w, buf, sizeof(buf));
		json_w_obj(&w, NULL);
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
		if (loop_io_add(self.cli->loop, &self.tap_io, self.tap, EPOLLIN, on_tap, NULL) < 0 ||
		    loop_io_add(self.cli->loop, &self.sock_io, self.sock, EPOLLIN, on_sock, NULL) < 0)
			return cli_fail(CLI_FAILED, "out of memory");
	}
	print_item(self.cli, item);
	while (!self.ended && !self.stopped && self.cli->up)
		loop_turn(self.cli->loop, -1);
	if (self.stopped)
		return CLI_OK;
	return self.ended ? cli_fail(CLI_FAILED, "%s", self.why) : cli_say_unreachable(self.cli, -ECONNRESET);
}

static int
ask(struct cli *cli, const struct admin_l2 *req, int fd, const char *tap)
{
	struct admin_l2_item item;
	struct admin_text text;
	char clean[sizeof(text.text)];
	sigset_t mask;
	int r = cli_open(cli);

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	r = r < 0 ? r : loop_signals(cli->loop, &mask, on_signal, NULL);
	cli->event = on_event;
	self.cli = cli;
	r = r < 0 ? r : cli_call(cli, ADMIN_REQ_L2, req, sizeof(*req), &fd, 1);
	close(fd);		/* the hub has it: its end must be the end */
	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (cli->status < 0 && cli_answer(cli, &text, sizeof(text)) && admin_text_ok(&text))
		return cli_fail(CLI_FAILED, "%s", cli_text(clean, sizeof(clean), text.text));
	if (cli->status < 0 || !cli_answer(cli, &item, sizeof(item)))
		return cli_fail(CLI_FAILED, "the hub answers in a way this edgehub does not know");
	return stay(&item, tap);
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

static bool
copy(char *dst, size_t size, const char *src)
{
	return snprintf(dst, size, "%s", src) < (int)size;
}

static int
cli_forward(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "for", required_argument, NULL, 'f' }, { "tap", required_argument, NULL, 't' }, { "unix", required_argument, NULL, 'u' },
		{ "name", required_argument, NULL, 'n' }, { "address", required_argument, NULL, 'a' }, { "mac", required_argument, NULL, 'm' },
		{ "mtu", required_argument, NULL, 'M' }, { "offload", no_argument, NULL, 'o' }, { "id", required_argument, NULL, 'i' }, { 0 },
	};
	struct admin_l2 req = { .name = "eth1" };
	const char *tap = NULL, *path = NULL;
	unsigned n = 0;
	bool good = true;
	uint16_t v = 0;
	int opt, fd;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'f': good = good && copy(req.handle, sizeof(req.handle), optarg); break;
		case 't': tap = optarg; break;
		case 'u': path = optarg; break;
		case 'n': memset(req.name, 0, sizeof(req.name)); good = good && copy(req.name, sizeof(req.name), optarg); break;
		case 'a': good = good && n < 4 && copy(req.addrs[n++], sizeof(req.addrs[0]), optarg); break;
		case 'm': good = good && copy(req.mac, sizeof(req.mac), optarg); break;
		case 'M': good = good && parse_u32(optarg, 576, 9000, &req.mtu) == 0; break;
		case 'o': req.offload = 1; break;
		case 'i': good = good && copy(req.id, sizeof(req.id), optarg); break;
		default: good = false;
		}
	}
	if (!good || argc - optind != 1 || (tap == NULL) == (path == NULL) || (tap != NULL && strlen(tap) >= IFNAMSIZ) ||
	    !copy(req.device, sizeof(req.device), argv[optind]))
		return cli_usage(USAGE);
	if (req.id[0] == '\0' && getrandom(&v, sizeof(v), 0) == (ssize_t)sizeof(v))
		snprintf(req.id, sizeof(req.id), "l2-%04x", v);
	if (!admin_l2_ok(&req))
		return cli_fail(CLI_USAGE, "--for is the handle of a run; --address one of a host, such as 192.0.2.2/24; --mac locally "
		    "administered, such as 02:00:00:00:00:01; --name that of an interface; --id 1 to 31 of a-z 0-9 -");
	self.tap = self.sock = -1;
	fd = make_end(path);
	if (fd < 0)
		return cli_fail(CLI_FAILED, "%s: %s", path != NULL ? path : "socketpair", strerror(-fd));
	return ask(cli, &req, fd, tap);
}

int
cli_l2(struct cli *cli, int argc, char *argv[])
{
	if (argc > 2 && strcmp(argv[1], "forward") == 0)
		return cli_forward(cli, argc - 1, argv + 1);
	return cli_usage(USAGE);
}
