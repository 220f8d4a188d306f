/*
 * l2 forward: joins a TAP of this machine, or a stream socket, to an interface in the network of a run. The hub gets the descriptor and all is
 * done. A TAP is made here, when the device has said whether it does offload: that takes a right which the hub has not and does not need.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"
#include "hub/adminl2.h"
#include "hub/cli_forward.h"
#include "proto/hub/l2rec.h"

#define USAGE	"l2 forward DEVICE [--for HANDLE] (--tap NAME | --unix PATH) [--name eth1] [--address A/P]... [--mac M] [--mtu N] [--offload] [--id NAME]"
static struct {
	struct cli_forward f;
	int sock;			/* our end of what the hub was given with the request; -1: it is a socket's far end */
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

/* The hub carries its frames from now on; it is gone when the last of us has closed it, and we do so now. */
static int
hand_over(const struct admin_l2_item *item, const char *name)
{
	struct cli *cli = self.f.cli;
	struct admin_l2_tap req = { 0 };
	struct admin_text text;
	char clean[sizeof(text.text)];
	int tap = open_tap(name, item->offload != 0), r;

	if (tap < 0)
		return CLI_FAILED;
	memcpy(req.id, item->id, sizeof(req.id));
	r = cli_call(cli, ADMIN_REQ_L2_TAP, &req, sizeof(req), &tap, 1);
	close(tap);
	if (r < 0)
		return cli_say_unreachable(cli, r);
	if (cli->status < 0 && cli_answer(cli, &text, sizeof(text)) && admin_text_ok(&text))
		return cli_fail(CLI_FAILED, "%s", cli_text(clean, sizeof(clean), text.text));
	return cli->status < 0 ? cli_fail(CLI_FAILED, "the hub: %s", strerror(-cli->status)) : 0;
}

static int
stay(const struct admin_l2_item *item, const char *tap)
{
	int r = tap != NULL ? hand_over(item, tap) : 0;

	if (r != 0)
		return r;
	print_item(self.f.cli, item);
	return cli_forward_stay(&self.f);
}

/* What an operator can do about it: connect(2) says ECONNREFUSED of a file and of a socket whose program has ended. */
static int
end_failed(const char *path, int r)
{
	struct stat st;
	const char *why = strerror(-r);

	if (path == NULL)
		return cli_fail(CLI_FAILED, "socketpair: %s", why);
	if (r == -ENAMETOOLONG)
		why = "the path of a socket has at most 107 bytes";
	else if (stat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
		why = "it is no socket";
	else if (r == -EPROTOTYPE)
		why = "it is no stream socket";
	else if (r == -ECONNREFUSED)
		why = "nobody listens there";
	return cli_fail(CLI_FAILED, "%s: %s", path, why);
}

/* The hub's end of it. */
static int
make_end(const char *unix_path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	_cleanup_close_ int fd = -1;
	int ends[2];

	if (unix_path == NULL) {
		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
			return -errno;
		self.sock = ends[0];
		return ends[1];
	}
	if (snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", unix_path) >= (int)sizeof(sun.sun_path))
		return -ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	return fd < 0 || connect(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0 ? -errno : take_fd(&fd);
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
	if (!good || argc - optind != 1 || (tap == NULL) == (path == NULL) || (tap != NULL && strlen(tap) >= IFNAMSIZ) || (path != NULL && path[0] == '\0') ||
	    !cli_forward_copy(req.device, sizeof(req.device), argv[optind]))
		return cli_usage(USAGE);
	if (req.id[0] == '\0')
		cli_forward_name(req.id, "l2");
	if (!admin_l2_ok(&req))
		return cli_fail(CLI_USAGE, "--for is the handle of a run; --address one of a host, such as 192.0.2.2/24; --mac locally "
		    "administered, such as 02:00:00:00:00:01; --name that of an interface; --id 1 to 31 of a-z 0-9 -");
	self.sock = -1;
	req.tap = tap != NULL;
	fd = make_end(path);
	if (fd < 0)
		return end_failed(path, fd);
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
