/*
 * proxy: a service of a device as a web page of this machine. Listens on loopback unless told otherwise; who may use it is said in
 * proto/hub/svcgate.h. What the device permits is its own affair.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"
#include "hub/adminpipe.h"
#include "hub/cli_stream.h"
#include "hub/proxyconn.h"

#define USAGE	"proxy DEVICE --to SERVICE [--listen 127.0.0.1:PORT] [--host NAME] [--tls-insecure] [--any-address]"
#define BACKLOG	64
#define RETRY_MS	500	/* the next look for the hub */

static struct {
	struct cli *cli;
	bool stopped;
	struct loop_io listener;
	struct proxyconns *conns;
	struct svcgate_conf gate;
	char target[SERVICE_AUTHORITY_SIZE + 16];
} self;

union address {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
};

/* ADDRESS:PORT, [ADDRESS]:PORT. */
static bool
parse_listen(const char *text, union address *ret, bool *ret_loopback)
{
	struct service_target t;
	const char *colon = strrchr(text, ':');
	char url[128];
	uint8_t addr[16];
	uint32_t port;

	memset(ret, 0, sizeof(*ret));
	if (colon == NULL || parse_u32(colon + 1, 0, 65535, &port) < 0 ||
	    snprintf(url, sizeof(url), "http://%.*s", (int)(colon - text), text) >= (int)sizeof(url) ||
	    service_target_parse(url, false, &t) < 0)
		return false;
	if (strcmp(t.host, "localhost") == 0)
		snprintf(t.host, sizeof(t.host), "127.0.0.1");
	else if (!t.ip)
		return false;
	if (t.ip6) {
		ret->in6.sin6_family = AF_INET6;
		ret->in6.sin6_port = htons((uint16_t)port);
		inet_pton(AF_INET6, t.host, &ret->in6.sin6_addr);
		memcpy(addr, &ret->in6.sin6_addr, 16);
	} else {
		ret->in.sin_family = AF_INET;
		ret->in.sin_port = htons((uint16_t)port);
		inet_pton(AF_INET, t.host, &ret->in.sin_addr);
		service_map_v4((const uint8_t *)&ret->in.sin_addr, addr);
	}
	*ret_loopback = service_is_loopback(addr);
	return true;
}

static void
on_listener(struct loop_io *io, uint32_t events)
{
	int fd = accept4(io->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0)
		proxyconns_add(self.conns, fd);
}

static int
open_listener(union address *a)
{
	socklen_t len = a->sa.sa_family == AF_INET6 ? sizeof(a->in6) : sizeof(a->in);
	int fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, r = 0;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 || bind(fd, &a->sa, len) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, &a->sa, &len) < 0)
		r = -errno;
	if (r == 0)
		r = loop_io_add(self.cli->loop, &self.listener, fd, EPOLLIN, on_listener, NULL);
	if (r < 0)
		close(fd);
	return r;
}

/* The names under which a browser may come. Answers with the first. */
static const char *
fill_hosts(const union address *a, const char *host)
{
	unsigned port = ntohs(a->sa.sa_family == AF_INET6 ? a->in6.sin6_port : a->in.sin_port);
	char text[INET6_ADDRSTRLEN] = "?";

	if (a->sa.sa_family == AF_INET6)
		inet_ntop(AF_INET6, &a->in6.sin6_addr, text, sizeof(text));
	else
		inet_ntop(AF_INET, &a->in.sin_addr, text, sizeof(text));
	snprintf(self.gate.hosts[0], sizeof(self.gate.hosts[0]), a->sa.sa_family == AF_INET6 ? "[%s]:%u" : "%s:%u", text, port);
	snprintf(self.gate.hosts[1], sizeof(self.gate.hosts[1]), "localhost:%u", port);
	if (host != NULL) {
		snprintf(self.gate.hosts[2], sizeof(self.gate.hosts[2]), "%.250s:%u", host, port);
		snprintf(self.gate.hosts[3], sizeof(self.gate.hosts[3]), "%.250s", port == 80 ? host : "");
	}
	return self.gate.hosts[0];
}

static int
on_event(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	if (msg->hdr.type != ADMIN_EV_PIPE_END)
		return -EPROTO;
	proxyconns_told(self.conns, msg);
	return 0;
}

static void
on_other(struct cli *cli, const struct ipc_msg *msg, void *ctx)
{
	proxyconns_told(self.conns, msg);
}

static void
on_signal(int signo, void *ctx)
{
	self.stopped = true;
}

/* For the next one, as long as it takes: a hub that restarts is back in a moment. -errno: it is of no use. */
static int
wait_for_hub(struct cli *cli)
{
	int r = cli->connect_err;

	fprintf(stderr, "edgehub: the hub is gone (%s); waiting for it\n", strerror(-r));
	proxyconns_hub_gone(self.conns);
	while (!self.stopped && (r = cli_open(cli)) < 0 && r != -EPROTO) {
		monotime_t next = monotime_add_ms(monotime_now(), RETRY_MS);

		for (int64_t left = RETRY_MS; left > 0 && !self.stopped; left = monotime_diff_ms(next, monotime_now()))
			if (loop_turn(cli->loop, (int)left) < 0)
				return -EIO;
	}
	if (r == 0)
		fprintf(stderr, "edgehub: the hub is back\n");
	return self.stopped ? 0 : r;
}

/* Until Ctrl-C. */
static int
stay(struct cli *cli)
{
	int r = 0;

	while (!self.stopped && r == 0) {
		while (!self.stopped && cli->up && r == 0)
			r = loop_turn(cli->loop, -1);
		if (!self.stopped && r == 0)
			r = wait_for_hub(cli);
	}
	return r == 0 ? CLI_OK : cli_say_unreachable(cli, r);
}

static int
serve(struct cli *cli, const char *device, union address *a, const char *host)
{
	char buf[512];
	const char *at;
	struct json_w w;
	sigset_t mask;
	int r, listener;

	sigemptyset(&mask);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	r = loop_signals(cli->loop, &mask, on_signal, NULL);
	if (r == 0)
		r = proxyconns_new(cli, device, &self.gate, &self.conns);
	if (r == 0)
		r = open_listener(a);
	if (r < 0)
		return cli_fail(CLI_FAILED, "the listener: %s", strerror(-r));
	cli->event = on_event;
	cli->other = on_other;
	at = fill_hosts(a, host);
	if (cli->json) {
		json_w_init(&w, buf, sizeof(buf));
		json_w_obj(&w, NULL);
		json_w_str(&w, "listen", at);
		json_w_str(&w, "target", self.target);
		json_w_end_obj(&w);
		cli_print_json(&w);
	} else {
		printf("http://%s/\n", at);
	}
	fflush(stdout);
	r = stay(cli);
	listener = self.listener.fd;
	loop_io_del(cli->loop, &self.listener);
	close(listener);
	proxyconns_free(self.conns);
	return r;
}

int
cli_proxy(struct cli *cli, int argc, char *argv[])
{
	static const struct option options[] = { { "to", required_argument, NULL, 't' }, { "listen", required_argument, NULL, 'l' },
		{ "host", required_argument, NULL, 'h' }, { "tls-insecure", no_argument, NULL, 'k' }, { "any-address", no_argument, NULL, 'a' }, { 0 } };
	const char *to = NULL, *where = "127.0.0.1:0", *host = NULL;
	bool any = false, loopback = true, good = true;
	_cleanup_free_ char *status = NULL;
	union address a;
	size_t len = 0;
	int opt, r;

	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (opt) {
		case 't': to = optarg; break;
		case 'l': where = optarg; break;
		case 'h': host = optarg; break;
		case 'k': self.gate.insecure = true; break;
		case 'a': any = true; break;
		default: good = false;
		}
	}
	if (!good || to == NULL || argc - optind != 1 || strlen(argv[optind]) >= sizeof(((struct admin_pipe *)0)->device))
		return cli_usage(USAGE);
	if (!parse_listen(where, &a, &loopback))
		return cli_fail(CLI_USAGE, "--listen is ADDRESS:PORT, such as 127.0.0.1:8080");
	if (!loopback && !any)
		return cli_fail(CLI_USAGE, "--listen %s is not loopback: everybody who reaches it would be let in; --any-address says so", where);
	signal(SIGPIPE, SIG_IGN);
	self.cli = cli;
	r = cli_stream_target(cli, argv[optind], to, self.target, sizeof(self.target));
	if (r != CLI_OK)
		return r;
	self.gate.target = self.target;
	/* No name was looked up, so nobody has asked the device yet: what keeps it from being reached is better said now than in a browser. */
	r = cli->up ? CLI_OK : cli_stream_get(cli, argv[optind], "/status", &status, &len);
	if (r != CLI_OK)
		return r;
	return serve(cli, argv[optind], &a, host);
}
