#include "hub/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/parse.h"
#include "hub/attach.h"
#include "hub/bundle.h"
#include "hub/client.h"
#include "hub/listen.h"
#include "hub/prune.h"
#include "hub/run.h"
#include "hub/sandbox.h"
#include "hub/shipfile.h"
#include "proto/hub/limits.h"

#define LISTEN_DEFAULT	"127.0.0.1:8443"
#define CONNS_MAX	4096u
#define KEEP_MS		(30LL * 24 * 3600 * 1000)
#define KEEP_MAX_MS	(36500LL * 24 * 3600 * 1000)
#define STOP_MS		500	/* for close frames to get out */

static struct hub self;

struct options {
	const char *datadir, *sock;
	char host[64];
	uint16_t port;
	const char *cert, *key, *url;
	const char *names[PKI_NAMES_MAX];
	size_t nnames;
	int64_t keep_ms;
};

static struct loop_io tcp_io, admin_io;
static struct loop_timer stop_timer;
static struct notify notify;

static void
tcp_ready(struct loop_io *io, uint32_t events)
{
	(void)events;
	conn_accept(&self, io->fd);
}

static void
admin_ready(struct loop_io *io, uint32_t events)
{
	(void)events;
	client_accept(&self, io->fd);
}

static void
stop_now(struct loop_timer *timer)
{
	(void)timer;
	loop_stop(self.loop);
}

static void
on_signal(int signo, void *ctx)
{
	struct conn *next;
	unsigned devices = 0;

	(void)ctx;
	log_info("signal %d: stopping", signo);
	notify_send(&notify, "STOPPING=1");
	if (loop_timer_armed(&stop_timer)) {
		loop_stop(self.loop);
		return;
	}
	for (const struct session *s = self.sessions; s != NULL; s = s->next)
		devices += s->welcomed && !s->gone;
	attach_hub_stops(&self);
	for (struct conn *c = self.conns; c != NULL; c = next) {
		next = c->next;
		if (c->session != NULL && c->session->welcomed && !c->session->gone)
			session_bye(c->session, "the hub is restarting", devices);
		else
			conn_kill(c);
	}
	loop_timer_set_ms(self.loop, &stop_timer, self.conns != NULL ? STOP_MS : 0);
}

/* HOST:PORT, [V6]:PORT, :PORT or PORT. */
static int
parse_listen(const char *s, struct options *o)
{
	const char *colon = strrchr(s, ':'), *port = colon != NULL ? colon + 1 : s;
	size_t len = colon != NULL ? (size_t)(colon - s) : 0;
	uint32_t n;

	if (parse_u32(port, 0, 65535, &n) < 0)
		return -EINVAL;
	if (len >= 2 && s[0] == '[' && s[len - 1] == ']') {
		s++;
		len -= 2;
	} else if (memchr(s, ':', len) != NULL) {
		return -EINVAL;
	}
	if (len >= sizeof(o->host))
		return -EINVAL;
	memcpy(o->host, s, len);
	o->host[len] = '\0';
	o->port = (uint16_t)n;
	return 0;
}

static void
raise_nofile(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	rl.rlim_cur = rl.rlim_max;
	setrlimit(RLIMIT_NOFILE, &rl);
	self.conns_max = rl.rlim_cur / 2 < CONNS_MAX ? (unsigned)(rl.rlim_cur / 2) : CONNS_MAX;
}

/* What bundles say: the operator's URL, or the first name given, or the address we listen on. */
static void
set_url(const struct options *o, unsigned port)
{
	const char *host = o->nnames > 0 ? o->names[0] : o->host;
	bool any = host[0] == '\0' || strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
	char name[256] = "localhost";

	if (o->url != NULL) {
		snprintf(self.url, sizeof(self.url), "%s", o->url);
		return;
	}
	if (any && (gethostname(name, sizeof(name) - 1) < 0 || name[0] == '\0'))
		snprintf(name, sizeof(name), "localhost");
	if (!any)
		snprintf(name, sizeof(name), "%s", host);
	snprintf(self.url, sizeof(self.url), strchr(name, ':') != NULL ? "wss://[%s]:%u%s" : "wss://%s:%u%s", name, port,
	    HUB_PATH);
}

static void
open_datadir(const struct options *o)
{
	/* Nothing in it can be listed, but an agent on this machine may be pointed at the CA certificate. */
	if (mkdir(o->datadir, 0711) < 0 && errno != EEXIST)
		fatal("cannot make %s: %s", o->datadir, strerror(errno));
	self.datafd = open(o->datadir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (self.datafd < 0)
		fatal("cannot open %s: %s", o->datadir, strerror(errno));
	if (mkdirat(self.datafd, "logs", 0700) < 0 && errno != EEXIST)
		fatal("cannot make %s/logs: %s", o->datadir, strerror(errno));
	self.logfd = openat(self.datafd, "logs", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (self.logfd < 0)
		fatal("cannot open %s/logs: %s", o->datadir, strerror(errno));
}

static void
set_up_tls(const struct options *o, bool *ret_new)
{
	char err[256] = "", cert[4096], key[4096];

	if (o->cert == NULL && pki_setup(self.datafd, o->names, o->nnames, ret_new, err) < 0)
		fatal("%s: %s", o->datadir, err);
	if (snprintf(cert, sizeof(cert), "%s/server.pem", o->datadir) >= (int)sizeof(cert) ||
	    snprintf(key, sizeof(key), "%s/server.key", o->datadir) >= (int)sizeof(key))
		fatal("the path of the data directory is too long");
	if (pki_server_ctx(o->cert != NULL ? o->cert : cert, o->cert != NULL ? o->key : key, &self.ssl_ctx, err) < 0 ||
	    pki_pin(self.ssl_ctx, self.pin) < 0)
		fatal("certificate: %s", err);
}

static void
set_up_store(const struct options *o)
{
	char err[256] = "", path[4096];

	if (snprintf(path, sizeof(path), "%s/hub.db", o->datadir) >= (int)sizeof(path))
		fatal("the path of the data directory is too long");
	if (syncer_new(self.loop, self.nosync, &self.syncer) < 0 || syncer_new(self.loop, false, &self.digests) < 0)
		fatal("cannot watch what the threads do");
	if (store_open(path, self.syncer, err, &self.store) < 0)
		fatal("%s: %s", path, err);
	if (pki_hub_key(self.datafd, "hub.key", self.key, err) < 0)
		fatal("%s: %s", o->datadir, err);
}

static void
set_up_sockets(const struct options *o)
{
	char err[256] = "";
	int tcp = listen_tcp(o->host, o->port, err, sizeof(err)), admin;

	if (tcp < 0)
		fatal("cannot listen on %s port %u: %s", o->host[0] != '\0' ? o->host : "any address", o->port, err);
	admin = listen_admin(o->sock);
	if (admin < 0)
		fatal("cannot listen on %s: %s", o->sock, strerror(-admin));
	set_url(o, listen_port(tcp));
	if (loop_io_add(self.loop, &tcp_io, tcp, EPOLLIN, tcp_ready, NULL) < 0 ||
	    loop_io_add(self.loop, &admin_io, admin, EPOLLIN, admin_ready, NULL) < 0)
		fatal("cannot watch the listeners");
}

static void
tear_down(const struct options *o)
{
	while (self.clients != NULL)
		client_free(self.clients);
	for (struct conn *c = self.conns; c != NULL; c = c->next)
		conn_kill(c);
	while (self.conns != NULL)
		loop_turn(self.loop, 0);
	unlink(o->sock);
	loop_timer_del(self.loop, &self.scrub);
	syncer_free(self.digests);
	syncer_free(self.syncer);
	while (self.runs != NULL)
		run_free(self.runs);
	store_free(self.store);
	SSL_CTX_free(self.ssl_ctx);
	close(tcp_io.fd);
	close(admin_io.fd);
	loop_free(self.loop);
	close(self.logfd);
	close(self.datafd);
	free(self.scratch);
}

static bool
parse_options(int argc, char *argv[], struct options *o)
{
	int opt;

	optind = 1;
	while ((opt = getopt(argc, argv, "C:K:d:k:l:n:u:vy:x:")) != -1) {
		switch (opt) {
		case 'C':
			o->cert = optarg;
			break;
		case 'K':
			o->key = optarg;
			break;
		case 'd':
			o->datadir = optarg;
			break;
		case 'k':
			if (parse_duration_ms(optarg, 1000, KEEP_MAX_MS, &o->keep_ms) < 0)
				return fprintf(stderr, "edgehub: -k %s: not a duration such as 720h\n", optarg), false;
			break;
		case 'l':
			if (parse_listen(optarg, o) < 0)
				return fprintf(stderr, "edgehub: -l %s: not ADDRESS:PORT\n", optarg), false;
			break;
		case 'n':
			if (o->nnames >= PKI_NAMES_MAX - 4)
				return fprintf(stderr, "edgehub: too many names\n"), false;
			o->names[o->nnames++] = optarg;
			break;
		case 'u':
			o->url = optarg;
			break;
		case 'v':
			log_set_level(LOG_LEVEL_DEBUG);
			break;
		case 'x':
			if (strcmp(optarg, "cloop") != 0 && strcmp(optarg, HUB_SUBPROTOCOL) != 0)
				return fprintf(stderr, "edgehub: -x %s: not cloop or " HUB_SUBPROTOCOL "\n", optarg), false;
			self.cloop_only = strcmp(optarg, "cloop") == 0;
			break;
		case 'y':
			if (strcmp(optarg, "disk") != 0 && strcmp(optarg, "cache") != 0)
				return fprintf(stderr, "edgehub: -y %s: not disk or cache\n", optarg), false;
			self.nosync = strcmp(optarg, "cache") == 0;
			break;
		default:
			return false;
		}
	}
	if ((o->cert == NULL) != (o->key == NULL))
		return fprintf(stderr, "edgehub: -C and -K go together\n"), false;
	return optind == argc;
}

/* Threads inherit what is given up before they start, and the filter comes over all of them. */
static void
confine(const struct options *o)
{
	int abi = hub_sandbox_files(o->datadir, o->sock), r = abi < 0 ? abi : 0;

	if (r == 0 && (syncer_start(self.syncer) < 0 || syncer_start(self.digests) < 0))
		fatal("cannot start a thread");
	if (r == 0)
		r = hub_sandbox_calls();
	if (r < 0)
		fatal("the sandbox could not be entered: %s", strerror(-r));
	if (abi == 0)
		log_warn("this kernel has no Landlock; files are protected by permissions only");
}

int
serve_main(int argc, char *argv[], const char *datadir, const char *sock)
{
	struct options o = { .datadir = datadir, .sock = sock, .keep_ms = KEEP_MS };
	static char out[1024];
	char path[4096];
	sigset_t mask;
	bool new_ca = false;
	int r;

	parse_listen(LISTEN_DEFAULT, &o);
	if (!parse_options(argc, argv, &o))
		return 2;
	if (o.sock == NULL) {
		snprintf(path, sizeof(path), "%s/" ADMIN_SOCK, o.datadir);
		o.sock = path;
	}
	umask(0022);
	signal(SIGPIPE, SIG_IGN);
	/* A buffer of our own: before it makes one libc asks a device that is no pty whether it is a terminal, which the filter forbids. */
	setvbuf(stdout, out, _IOLBF, sizeof(out));
	raise_nofile();
	self.started = monotime_wall_ns();
	self.scratch = malloc(HUB_SCRATCH);
	if (self.scratch == NULL || loop_new(&self.loop) < 0)
		fatal("cannot start");
	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	if (loop_signals(self.loop, &mask, on_signal, NULL) < 0)
		fatal("cannot take signals");
	loop_timer_init(&stop_timer, stop_now, NULL);
	run_scrub_init(&self);
	bundles_init(&self);
	if (notify_init(&notify, self.loop) < 0)
		fatal("the service manager's socket cannot be used");
	open_datadir(&o);
	set_up_store(&o);
	shipfiles_sweep(&self);
	set_up_tls(&o, &new_ca);
	for (size_t i = 0; i < o.nnames; i++)
		snprintf(self.hosts[self.nhosts++], sizeof(self.hosts[0]), "%s", o.names[i]);
	set_up_sockets(&o);
	confine(&o);
	if (new_ca)
		log_info("made a private CA");
	printf("listening %s\npin %s\nca %s/ca.pem\n", self.url, self.pin, o.datadir);
	fflush(stdout);
	prune_start(&self, o.keep_ms);
	notify_send(&notify, "READY=1");
	r = loop_run(self.loop);
	prune_stop(&self);
	notify_done(&notify);
	tear_down(&o);
	return r < 0 ? 1 : 0;
}
