/*
 * netprobe: one attempt to reach the hub as connectd makes it - the same configuration, name server, proxy, trust, pins, sandbox -
 * but without the credential, for edgectl doctor. It stops when the hub has answered the upgrade and says on standard output, as one
 * struct netprobe_report, how far it came.
 *
 *	netprobe [-c CONF] [-f FLOOR] [-s STATEDIR] [-u URL]
 *
 * FLOOR is the least time for certificates, in seconds; URL is used when neither the configuration nor the credential names a hub.
 * It must not be root: doctor starts it under connectd's user.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/conf.h"
#include "common/drop.h"
#include "common/fdutil.h"
#include "common/loop.h"
#include "common/parse.h"
#include "connectd/cred.h"
#include "connectd/dial.h"
#include "connectd/httpdate.h"
#include "connectd/netenv.h"
#include "connectd/outq.h"
#include "connectd/sandbox.h"
#include "connectd/upgrade.h"
#include "proto/ipc/netprobe.h"
#include "version.h"

#define STEP_MS		4000	/* without progress */
#define TOTAL_MS	7000	/* doctor has 10 s for everything */

struct netprobe {
	const char *conf_path, *statedir, *url;
	uint64_t floor_s;
	struct conf conf;
	char server[512], pins[256];	/* of the credential */
	struct loop *loop;
	struct netenv *env;
	struct dial_params params;
	struct dial *dial;
	struct transport t;
	struct upgrade upgrade;
	struct outq out;
	struct loop_io io;
	struct loop_timer total;
	struct netprobe_report report;
};

static struct netprobe self;

static void
fail(const char *code, const char *detail)
{
	snprintf(self.report.code, sizeof(self.report.code), "%s", code);
	snprintf(self.report.detail, sizeof(self.report.detail), "%s", detail);
	if (self.loop != NULL)
		loop_stop(self.loop);
}

static void
on_total(struct loop_timer *timer)
{
	(void)timer;
	fail("timeout", "the attempt did not come to an end within 7 s");
}

/* The hub's address and pin from the credential; the secret in it is wiped at once. */
static void
read_credential(void)
{
	_cleanup_close_ int dir = open(self.statedir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct cred cred = { 0 };
	uint8_t *data = NULL;
	size_t len = 0;
	int r = dir < 0 ? -errno : fd_read_file(dir, CRED_FILE, CRED_FILE_MAX, &data, &len);

	if (r == 0 && cred_parse(data, len, &cred) == 0) {
		snprintf(self.server, sizeof(self.server), "%s", cred.server);
		snprintf(self.pins, sizeof(self.pins), "%s", cred.pin);
	} else if (r == -EACCES) {
		self.report.flags |= NETPROBE_CRED_HIDDEN;
	}
	explicit_bzero(&cred, sizeof(cred));
	if (data != NULL)
		explicit_bzero(data, len);
	free(data);
}

static void
describe(void)
{
	const struct dial_params *p = &self.params;
	struct netprobe_report *r = &self.report;

	url_authority(&p->url, true, r->hub);
	r->flags |= p->url.tls ? 0 : NETPROBE_PLAIN;
	r->flags |= url_is_loopback(&p->url) ? NETPROBE_LOOPBACK : 0;
	r->pins = p->pins.n;
	if (p->proxy.kind == PROXY_NONE)
		return;
	r->flags |= NETPROBE_PROXIED | (p->proxy.auth ? NETPROBE_PROXY_AUTH : 0);
	snprintf(r->proxy, sizeof(r->proxy), "%s%s%s%s:%u", p->proxy.kind == PROXY_HTTP ? "http://" : "socks5://",
	    p->proxy.ip6 ? "[" : "", p->proxy.host, p->proxy.ip6 ? "]" : "", p->proxy.port);
}

/* What the attempt would use. False with the report filled. */
static bool
understand(void)
{
	const struct conf *c = &self.conf;
	struct hubconn_params hub = { .url = c->hub_url, .pins = c->hub_pin, .insecure = c->hub_insecure, .proxy = c->hub_proxy,
		.no_proxy = c->hub_no_proxy, .connect_timeout_ms = STEP_MS, .write_timeout_ms = STEP_MS,
		.min_wall_ns = (int64_t)self.floor_s * 1000000000 };
	char err[200] = "";

	if (hub.url[0] == '\0')
		hub.url = self.server[0] != '\0' ? self.server : self.url;
	if (hub.url[0] == '\0') {
		fail("unconfigured", "no hub is configured");
		return false;
	}
	if (hub.pins[0] == '\0' && self.pins[0] != '\0') {
		hub.pins = self.pins;
		self.report.flags |= NETPROBE_STORED_PIN;
	}
	if (netenv_new(self.loop, c->hub_ca_file, &self.env, err) < 0 ||
	    dial_params_init(&self.params, &hub, netenv_proxy(self.env), err) < 0) {
		fail("config", err);
		return false;
	}
	describe();
	return true;
}

static void
on_stage(enum hubconn_stage stage, void *ctx)
{
	static const enum netprobe_stage at[] = {
		[HUBCONN_RESOLVING] = NETPROBE_DNS, [HUBCONN_CONNECTING] = NETPROBE_CONNECT, [HUBCONN_PROXY] = NETPROBE_PROXY,
		[HUBCONN_TLS] = NETPROBE_TLS,
	};

	(void)ctx;
	self.report.stage = at[stage];
}

static void
on_failed(const struct hubconn_end *end, void *ctx)
{
	(void)ctx;
	self.report.http_status = (uint32_t)end->http_status;
	fail(end->code, end->detail);
}

/* Whatever the hub says to a request without a credential, it has spoken; doctor judges the status. */
static void
answered(void)
{
	const char *date = http_header(&self.upgrade.head, "Date");
	int64_t ns = date != NULL ? httpdate_parse(date) : -1;

	self.report.http_status = self.upgrade.head.status;
	self.report.hub_date = ns > 0 ? ns : 0;
	self.report.wall = monotime_wall_ns();
	self.report.stage = NETPROBE_DONE;
}

static void
on_bytes(struct loop_io *io, uint32_t events)
{
	uint8_t buf[2048];
	struct hubconn_end end;
	bool edgeward1;
	size_t used;
	ssize_t n;
	int r = 0;

	(void)io;
	(void)events;
	if (transport_push(&self.t, &self.out) == -EAGAIN)
		return;
	while (r == 0 && (n = transport_read(&self.t, buf, sizeof(buf))) > 0)
		r = upgrade_feed(&self.upgrade, buf, (size_t)n, &used, &edgeward1, &end);
	if (r == 0 && n == -EAGAIN)
		return;
	if (r == 0 && n == 0)
		upgrade_eof(&self.upgrade, &end);
	else if (r == 0)
		hubend_set_errno(&end, HUBCONN_UPGRADING, (int)n, "the hub");
	if (self.upgrade.head.done)
		answered();
	if (r == 1)
		loop_stop(self.loop);
	else
		fail(end.code, end.detail);
}

static void
on_done(const char *peer, void *ctx)
{
	(void)ctx;
	snprintf(self.report.peer, sizeof(self.report.peer), "%.127s", peer);
	self.report.stage = NETPROBE_UPGRADE;
	if (upgrade_start(&self.upgrade, &self.params.url, "", true, &self.out) < 0 ||
	    loop_io_add(self.loop, &self.io, self.t.fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, on_bytes, NULL) < 0)
		fail("internal", "this device is short of memory or randomness");
	else
		on_bytes(&self.io, 0);
}

static void
attempt(void)
{
	static const struct dial_cb cb = { .stage = on_stage, .done = on_done, .failed = on_failed };

	self.report.stage = NETPROBE_DNS;
	loop_timer_init(&self.total, on_total, NULL);
	loop_timer_set_ms(self.loop, &self.total, TOTAL_MS);
	if (dial_start(self.env, self.loop, &self.params, &cb, NULL, &self.t, &self.dial) < 0)
		fail("internal", "this device is short of memory or descriptors");
	else
		(void)loop_run(self.loop);
}

static bool
parse_options(int argc, char **argv)
{
	int c;

	self.conf_path = CONF_FILE;
	self.statedir = "/var/lib/edgeward/connectd";
	self.url = "";
	self.floor_s = EDGEWARD_BUILD_EPOCH;
	self.io.fd = self.t.fd = -1;
	while ((c = getopt(argc, argv, "c:f:s:u:")) != -1) {
		switch (c) {
		case 'c': self.conf_path = optarg; break;
		case 's': self.statedir = optarg; break;
		case 'u': self.url = optarg; break;
		case 'f':
			if (parse_u64(optarg, 0, INT64_MAX / 1000000000, &self.floor_s) < 0)
				return false;
			break;
		default: return false;
		}
	}
	return optind == argc;
}

static void
clean_up(void)
{
	dial_free(self.dial);
	loop_io_del(self.loop, &self.io);
	loop_timer_del(self.loop, &self.total);
	transport_done(&self.t);
	outq_done(&self.out);
	netenv_free(self.env);
	explicit_bzero(&self.params.proxy, sizeof(self.params.proxy));
	loop_free(self.loop);
}

int
main(int argc, char **argv)
{
	char err[CONF_ERR_SIZE];

	if (!parse_options(argc, argv)) {
		fprintf(stderr, "usage: netprobe [-c config] [-f floor] [-s statedir] [-u url]\n");
		return 2;
	}
	self.report.magic = NETPROBE_MAGIC;
	if (drop_everything() < 0 || loop_new(&self.loop) < 0) {
		fail("internal", "the probe must run as an ordinary user");
	} else if (conf_load(&self.conf, self.conf_path, err) < 0) {
		fail("config", err);
	} else {
		read_credential();
		if (understand()) {
			if (connectd_sandbox_enter(self.statedir, "", "", NULL, NULL, false) < 0)
				fail("sandbox", "connectd's sandbox cannot be entered");
			else
				attempt();
		}
	}
	if (self.loop != NULL)
		clean_up();
	return fd_write_all(STDOUT_FILENO, &self.report, sizeof(self.report)) < 0;
}
