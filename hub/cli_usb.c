/*
 * usb forward: dials a usbipd, hands the connection to the hub and stays until it ends; usb list. What goes over the connection is
 * between the usbipd and the device. A device that was lent and goes, as one does that is reset, or a link that drops, is asked for again
 * for some time: the same device, by vendor and product, in the same name.
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
#include <sys/time.h>
#include <unistd.h>

#include "common/parse.h"
#include "hub/adminusb.h"
#include "hub/cli_forward.h"
#include "proto/ipc/device.h"

#define USAGE	"usb forward DEVICE --busid B [--server HOST:3240] [--for HANDLE] [--name NAME] [--match VVVV:PPPP] [--retry S] | usb list"
#define PORT	"3240"
#define LOST_S	25	/* a usbipd whose machine is gone is noticed within this time */

#define DIAL_S	10	/* for the usbipd's machine to answer */
#define RETRY_S	60	/* for a device to come back, unless --retry says else */
#define RETRY_MAX_S	86400u
#define WAIT_FIRST_MS	500
#define WAIT_MAX_MS	8000
#define STABLE_MS	10000	/* lent for this long it was no failure */

struct usb_forward {
	struct cli_forward f;
	struct admin_usb_item last;
	bool lent;		/* once at least */
	bool final;		/* nothing can be lent there any more */
	int64_t lasted;		/* ms; -1: this time it was not lent */
	monotime_t gone;	/* when it ended last */
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
		const struct timeval limit = { .tv_sec = DIAL_S };

		fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC, ai->ai_protocol);
		if (fd >= 0)	/* connect() heeds it, the hub never blocks */
			setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
		if (fd >= 0 && connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
			r = errno;
			close(fd);
			fd = -1;
			errno = r;
		}
	}
	if (fd < 0)
		cli_fail(CLI_FAILED, "%s: %s; is a usbipd there (usbipd -D)?", server, strerror(errno == EINPROGRESS ? ETIMEDOUT : errno));
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
	json_w_str(w, "vendor_id", item->vendor);
	json_w_str(w, "product_id", item->product);
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

/* Lends it, until it ends: the exit code. */
static int
attach(struct usb_forward *u, const struct admin_usb *req, const char *server)
{
	struct cli *cli = u->f.cli;
	int fd = dial(server), r;
	monotime_t since;

	u->lasted = -1;
	u->f.ended = false;
	if (fd < 0)
		return CLI_FAILED;
	cli->event = on_event;
	cli->ctx = u;
	cli->status = 0;
	r = cli_forward_ask(&u->f, ADMIN_REQ_USB, req, sizeof(*req), fd, &u->last, sizeof(u->last));
	if (r != 0) {
		u->final = cli->status == -ESRCH;
		return r;
	}
	u->lent = true;
	since = monotime_now();
	print_item(cli, &u->last);
	r = cli_forward_stay(&u->f);
	u->gone = monotime_now();
	u->lasted = monotime_diff_ms(u->gone, since);
	return r;
}

/* True: ask again. False: told to end. */
static bool
wait_for_it(struct usb_forward *u, int64_t ms)
{
	monotime_t until = monotime_add_ms(monotime_now(), ms);

	while (!u->f.stopped && monotime_before(monotime_now(), until))
		loop_turn(u->f.cli->loop, (int)monotime_diff_ms(until, monotime_now()) + 1);
	return !u->f.stopped;
}

/* The same and no other: what may come back under that bus id is not what the run was promised. */
static void
pin(const struct usb_forward *u, struct admin_usb *req)
{
	memcpy(req->vendor, u->last.vendor, sizeof(req->vendor));
	memcpy(req->product, u->last.product, sizeof(req->product));
}

static int
keep_lent(struct cli *cli, struct admin_usb *req, const char *server, uint32_t retry_s)
{
	struct usb_forward u = { .f.cli = cli };
	int64_t wait = WAIT_FIRST_MS, left;
	int r = attach(&u, req, server);

	while (r != CLI_OK && u.lent && !u.final && retry_s > 0) {
		left = (int64_t)retry_s * 1000 - monotime_diff_ms(monotime_now(), u.gone);
		if (left <= 0)
			return cli_fail(r, "%s did not come back within %u s", req->id, retry_s);
		if (u.lasted >= STABLE_MS)
			wait = WAIT_FIRST_MS;
		wait = wait < left ? wait : left;
		fprintf(stderr, "edgehub: %s: asked for again in %lld.%lld s\n", req->id, (long long)wait / 1000, (long long)wait % 1000 / 100);
		if (!wait_for_it(&u, wait))
			return CLI_OK;
		wait = wait * 2 < WAIT_MAX_MS ? wait * 2 : WAIT_MAX_MS;
		if (req->vendor[0] == '\0')
			pin(&u, req);
		r = attach(&u, req, server);
	}
	return r;
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
		{ "name", required_argument, NULL, 'n' }, { "match", required_argument, NULL, 'm' },
		{ "retry", required_argument, NULL, 'r' }, { 0 },
	};
	struct admin_usb req = { 0 };
	const char *server = "127.0.0.1";
	uint32_t retry_s = RETRY_S;
	char prefix[24];
	bool good = true;
	int opt;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 'b': good = good && cli_forward_copy(req.busid, sizeof(req.busid), optarg); break;
		case 's': server = optarg; break;
		case 'f': good = good && cli_forward_copy(req.handle, sizeof(req.handle), optarg); break;
		case 'n': good = good && cli_forward_copy(req.id, sizeof(req.id), optarg); break;
		case 'm': good = good && take_match(optarg, &req); break;
		case 'r': good = good && parse_u32(optarg, 0, RETRY_MAX_S, &retry_s) == 0; break;
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
	return keep_lent(cli, &req, server, retry_s);
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
