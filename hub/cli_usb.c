/*
 * usb forward: dials a usbipd, hands the connection to the hub and stays until it ends; usb list. What goes over the connection is
 * between the usbipd and the device.
 */
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hub/adminusb.h"
#include "hub/cli_forward.h"
#include "proto/ipc/device.h"

#define USAGE	"usb forward DEVICE --busid B [--server HOST:3240] [--for HANDLE] [--name NAME] [--match VVVV:PPPP] | usb list"
#define PORT	"3240"
#define LOST_S	25	/* a usbipd whose machine is gone is noticed within this time */

struct usb_forward {
	struct cli_forward f;
	struct admin_usb_item last;
};

/* ---- the usbipd ---- */

static void
watch_peer(int fd)
{
	static const struct { int level, name, value; } options[] = {
		{ SOL_SOCKET, SO_KEEPALIVE, 1 }, { IPPROTO_TCP, TCP_NODELAY, 1 }, { IPPROTO_TCP, TCP_KEEPIDLE, 10 },
		{ IPPROTO_TCP, TCP_KEEPINTVL, 5 }, { IPPROTO_TCP, TCP_KEEPCNT, 3 }, { IPPROTO_TCP, TCP_USER_TIMEOUT, LOST_S * 1000 },
	};

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(options[i].value));
}

/* "host", "host:port", "[v6]:port". A descriptor, or -1 when it has been said why. */
static int
dial(const char *server)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	char host[256], *port, *name = host;
	struct addrinfo *all;
	int fd = -1, r;

	snprintf(host, sizeof(host), "%s", server);
	port = strrchr(host, ':');
	if (host[0] == '[' && strchr(host, ']') != NULL) {
		name = host + 1;
		port = strchr(host, ']')[1] == ':' ? strchr(host, ']') + 1 : NULL;
		*strchr(host, ']') = '\0';
	} else if (port != NULL && strchr(host, ':') != port) {
		port = NULL;	/* a bare IPv6 address */
	}
	if (port != NULL)
		*port++ = '\0';
	r = getaddrinfo(name, port != NULL ? port : PORT, &hints, &all);
	if (r != 0) {
		cli_fail(CLI_FAILED, "%s: %s", server, gai_strerror(r));
		return -1;
	}
	for (const struct addrinfo *ai = all; ai != NULL && fd < 0; ai = ai->ai_next) {
		fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
		if (fd >= 0 && connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
			r = errno;
			close(fd);
			fd = -1;
			errno = r;
		}
	}
	if (fd < 0)
		cli_fail(CLI_FAILED, "%s: %s; is a usbipd there (usbipd -D)?", server, strerror(errno));
	else
		watch_peer(fd);
	freeaddrinfo(all);
	return fd;
}

/* ---- forward ---- */

static void
put_item(struct json_w *w, const struct admin_usb_item *item)
{
	json_w_obj(w, NULL);
	json_w_str(w, "device", item->device);
	json_w_str(w, "name", item->id);
	json_w_str(w, "busid", item->busid);
	json_w_str(w, "handle", item->handle);
	json_w_bool(w, "opened", item->opened != 0);
	json_w_int(w, "port", item->port);
	json_w_str(w, "nodes", item->nodes);
	json_w_int(w, "bytes_from_usbipd", (int64_t)item->from_usbipd);
	json_w_int(w, "bytes_to_usbipd", (int64_t)item->to_usbipd);
	cli_json_time(w, "since", item->since);
	json_w_end_obj(w);
}

static void
print_item(const struct cli *cli, const struct admin_usb_item *item)
{
	static char buf[4096];
	char nodes[sizeof(item->nodes)];
	struct json_w w;

	if (!cli->json) {
		printf("%s: port %u%s%s\n", item->id, item->port, item->nodes[0] != '\0' ? ", " : "",
		    cli_text(nodes, sizeof(nodes), item->nodes));
	} else {
		json_w_init(&w, buf, sizeof(buf));
		put_item(&w, item);
		cli_print_json(&w);
	}
	fflush(stdout);
}

static int
on_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	struct usb_forward *u = ctx;

	memcpy(&u->last, msg->data, sizeof(u->last));
	u->f.ended = msg->hdr.type == ADMIN_EV_USB_END;
	if (!u->f.ended)
		print_item(cli, &u->last);
	cli_text(u->f.why, sizeof(u->f.why), u->last.error);
	return 0;
}

static int
ask(struct cli *cli, const struct admin_usb *req, int fd)
{
	struct usb_forward u = { .f.cli = cli };
	int r;

	cli->event = on_event;
	cli->ctx = &u;
	r = cli_forward_ask(&u.f, ADMIN_REQ_USB, req, sizeof(*req), fd, &u.last, sizeof(u.last));
	if (r != 0)
		return r;
	print_item(cli, &u.last);
	return cli_forward_stay(&u.f);
}

static bool
take_match(const char *arg, struct admin_usb *req)
{
	if (strlen(arg) != 9 || arg[4] != ':' || strspn(arg, "0123456789abcdefABCDEF") != 4 ||
	    strspn(arg + 5, "0123456789abcdefABCDEF") != 4)
		return false;
	memcpy(req->vendor, arg, 4);
	memcpy(req->product, arg + 5, 4);
	return true;
}

static int
cli_forward(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = {
		{ "busid", required_argument, NULL, 'b' }, { "server", required_argument, NULL, 's' }, { "for", required_argument, NULL, 'f' },
		{ "name", required_argument, NULL, 'n' }, { "match", required_argument, NULL, 'm' }, { 0 },
	};
	struct admin_usb req = { 0 };
	const char *server = "127.0.0.1";
	char prefix[24];
	bool good = true;
	int opt, fd;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'b': good = good && cli_forward_copy(req.busid, sizeof(req.busid), optarg); break;
		case 's': server = optarg; break;
		case 'f': good = good && cli_forward_copy(req.handle, sizeof(req.handle), optarg); break;
		case 'n': good = good && cli_forward_copy(req.id, sizeof(req.id), optarg); break;
		case 'm': good = good && take_match(optarg, &req); break;
		default: good = false;
		}
	}
	if (!good || argc - optind != 1 || !cli_forward_copy(req.device, sizeof(req.device), argv[optind]))
		return cli_usage(USAGE);
	snprintf(prefix, sizeof(prefix), "usb%.18s", req.busid);
	if (req.id[0] == '\0')
		cli_forward_name(req.id, prefix);
	if (!admin_usb_ok(&req))
		return cli_fail(CLI_USAGE, "--busid is 1 to 31 of 0-9 . : - (usbip list -l), --name 1 to 31 of a-z 0-9 -, --for a handle");
	fd = dial(server);
	return fd < 0 ? CLI_FAILED : ask(cli, &req, fd);
}

/* ---- list ---- */

static int
print_row(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	static char buf[4096];
	unsigned *n = ctx;
	struct admin_usb_item item;
	char t[32], nodes[sizeof(item.nodes)];
	struct json_w w;

	memcpy(&item, msg->data, sizeof(item));
	if (cli->json) {
		json_w_init(&w, buf, sizeof(buf));
		put_item(&w, &item);
		printf("%s", (*n)++ > 0 ? "," : "[");
		cli_print_json(&w);
		return 0;
	}
	if ((*n)++ == 0)
		printf("%-24s  %-16s  %-10s  %-8s  %-20s  %s\n", "NAME", "DEVICE", "BUSID", "STATE", "SINCE", "NODES");
	printf("%-24s  %-16s  %-10s  %-8s  %-20s  %s\n", item.id, item.device, item.busid, item.opened != 0 ? "opened" : "opening",
	    cli_time(t, item.since), cli_text(nodes, sizeof(nodes), item.nodes));
	return 0;
}

static int
cli_list(struct cli *cli)
{
	unsigned n = 0;
	int r;

	cli->event = print_row;
	cli->ctx = &n;
	r = cli_request(cli, ADMIN_REQ_USB_LIST, NULL, 0);
	if (r == 0 && cli->json)
		printf("%s]\n", n == 0 ? "[" : "");
	return r;
}

int
cli_usb(struct cli *cli, int argc, char *argv[])
{
	if (argc == 2 && strcmp(argv[1], "list") == 0)
		return cli_list(cli);
	if (argc > 2 && strcmp(argv[1], "forward") == 0)
		return cli_forward(cli, argc - 1, argv + 1);
	return cli_usage(USAGE);
}
