/*
 * connectd: the process that talks to the network, and to nothing else. It is started under its own user without any
 * capability; startup() shows in which order it gives up the rest: read what root owns, then close the sandbox, then
 * meet the other processes, then send the first byte.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/drop.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/policy.h"
#include "connectd/caps.h"
#include "connectd/control.h"
#include "connectd/dial.h"
#include "connectd/link.h"
#include "connectd/netenv.h"
#include "connectd/privchan.h"
#include "connectd/sandbox.h"
#include "connectd/svcstream.h"
#include "connectd/tls.h"
#include "connectd/upfetch.h"
#include "connectd/upgrader.h"
#include "connectd/upplace.h"
#include "connectd/workchan.h"
#include "proto/ipc/service.h"
#include "version.h"

#define LINK_BUSY	16384u	/* bytes that wait for the link: a download waits, too */

struct options {
	const char *conf, *policy, *rundir, *statedir;
	bool check, verbose;
};

struct connectd {
	struct options opt;
	struct conf conf;
	struct policy policy;
	struct device_caps device;
	struct loop *loop;
	struct netenv *env;
	struct notify notify;
	struct eventlog events;
	int statefd, listener;
	struct cred_store cred;
	struct clock_floor clock;
	struct mirror mirror;
	struct workchan work;
	struct privchan priv;
	struct upgrader upgrader;
	struct upgrade_place place;
	struct link link;
	struct control control;
};

static struct connectd self;

#define USAGE	"usage: connectd [-hnvV] [-c config] [-p policy] [-r rundir] [-s statedir]\n"

static const char help[] = USAGE
    "\n"
    "connectd is the part of Edgeward that talks to the network: it dials the hub, holds the connection and passes work\n"
    "and output between the hub and workerd. The service manager starts it (edgeward-connectd.service, or run-foreground\n"
    "where there is no systemd). By hand it is good for one thing, to look over what you have written:\n"
    "\n"
    "    connectd -n\n"
    "\n"
    "  -n        check configuration and policy; the first mistake is told with file and line; exit code 0 or 1\n"
    "  -c FILE   the configuration; default /etc/edgeward/edgeward.conf, see edgeward.conf(5)\n"
    "  -p FILE   the policy; default /etc/edgeward/policy.conf, see policy.conf(5)\n"
    "  -r DIR    where the sockets are; default /run/edgeward\n"
    "  -s DIR    its state, with the credential; default /var/lib/edgeward/connectd\n"
    "  -v        log for developers, too\n"
    "  -V        print the version;  -h, --help  this text\n"
    "\n"
    "How it is doing: edgectl status. Exit codes: 0 asked to stop, 1 could not go on, 2 wrong usage. More: connectd(8).\n";

static _Noreturn void
usage(void)
{
	fprintf(stderr, USAGE "connectd --help tells more\n");
	exit(2);
}

static void
parse_options(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	int c;

	*o = (struct options){ .conf = CONF_FILE, .policy = "/etc/edgeward/policy.conf",
		.rundir = "/run/edgeward", .statedir = "/var/lib/edgeward/connectd" };
	while ((c = getopt_long(argc, argv, "c:hnp:r:s:vV", longs, NULL)) != -1) {
		switch (c) {
		case 'c': o->conf = optarg; break;
		case 'h': fputs(help, stdout); exit(0);
		case 'n': o->check = true; break;
		case 'p': o->policy = optarg; break;
		case 'r': o->rundir = optarg; break;
		case 's': o->statedir = optarg; break;
		case 'v': o->verbose = true; break;
		case 'V': printf("connectd %s\n", EDGEWARD_VERSION); exit(0);
		default: usage();
		}
	}
	if (optind != argc)
		usage();
}

/* What only the network part understands: address, pins, proxy, trust. A mistake here is fatal, not worth a retry. */
static void
check_hub(const struct connectd *c)
{
	const struct proxy_env none = { 0 };
	struct hubconn_params hub = { .url = c->conf.hub_url, .pins = c->conf.hub_pin, .insecure = c->conf.hub_insecure,
		.proxy = c->conf.hub_proxy, .no_proxy = c->conf.hub_no_proxy };
	struct dial_params params;
	struct tls_trust *trust;
	struct url mirror;
	char err[200] = "";

	if (hub.url[0] == '\0')	/* it may come with a bundle */
		hub.url = "wss://localhost/";
	if (dial_params_init(&params, &hub, &none, err) < 0)
		fatal("%s: [hub] %s", c->opt.conf, err);
	explicit_bzero(&params.proxy, sizeof(params.proxy));
	if (c->conf.upgrade_mirror[0] != '\0' && url_parse(c->conf.upgrade_mirror, &mirror, err) < 0)
		fatal("%s: [upgrade] mirror: %s", c->opt.conf, err);
	if (!c->opt.check)	/* else it is loaded where it is used */
		return;
	if (tls_trust_new(c->conf.hub_ca_file, &trust, err) < 0)
		fatal("%s: [hub] ca-file: %s", c->opt.conf, err);
	tls_trust_free(trust);
}

/* Everything that an operator wrote; the first mistake ends the process with one line. */
static void
load_configuration(struct connectd *c)
{
	char err[CONF_ERR_SIZE];

	if (conf_load(&c->conf, c->opt.conf, err) < 0)
		fatal("%s", err);
	if (policy_open(&c->policy, c->opt.policy, c->opt.check ? geteuid() : policy_owner(c->opt.rundir)) < 0) {
		if (c->opt.check)
			fatal("%s", c->policy.problem);
		log_error("%s; nothing is started until that is put right", c->policy.problem);
	}
	if (caps_init(&c->device, c->conf.device_labels, err) < 0)
		fatal("%s: %s", c->opt.conf, err);
	check_hub(c);
	if (c->opt.check) {
		printf("connectd: %s\n", c->conf.missing ? "there is no " CONF_FILE ", so the defaults hold; the policy is good" :
		    "configuration and policy are good");
		exit(0);
	}
	if (c->conf.missing)
		log_warn("there is no " CONF_FILE "; the defaults hold");
	log_set_level(c->opt.verbose ? LOG_LEVEL_DEBUG : c->conf.log_level);
}

static void
load_state(struct connectd *c)
{
	bool damaged;

	c->statefd = open(c->opt.statedir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (c->statefd < 0)
		fatal("state directory %s: %s", c->opt.statedir, strerror(errno));
	cred_load(&c->cred, c->statefd);
	if (c->cred.note[0] != '\0')
		log_warn("%s", c->cred.note);
	eventlog_open(&c->events, c->statefd);
	eventlog_add(&c->events, "start", "", "connectd %s", EDGEWARD_VERSION);
	clock_init(&c->clock, c->statefd, EDGEWARD_BUILD_EPOCH * INT64_C(1000000000), &damaged);
	if (damaged)
		log_warn("the saved time was damaged and kept aside; going on with the build time");
	if (clock_implausible(&c->clock, monotime_wall_ns()))
		log_warn("the system clock is before the last time we know; certificates are checked against the latter");
}

static void
work_changed(void *ctx)
{
	struct connectd *c = ctx;

	if (c->work.pair == 0)
		privchan_reintroduce(&c->priv, c->work.fault);
	link_kick(&c->link);
}

static void
world_changed(const char *what, void *ctx)
{
	struct connectd *c = ctx;

	link_wake(&c->link, what);
}

/* Of what an operator wrote the policy alone is read again in place; no session and no work is touched. */
static void
reload(struct connectd *c)
{
	notify_send(&c->notify, "RELOADING=1");
	if (policy_reload(&c->policy, c->opt.policy, policy_owner(c->opt.rundir)) == 0) {
		log_info("%s has been read again", c->opt.policy);
		link_policy_news(&c->link);
	} else {
		log_error("%s; what was in force before stays in force", c->policy.problem);
	}
	eventlog_add(&c->events, "policy", c->policy.problem[0] != '\0' ? "policy-bad" : "", "%s", c->policy.problem[0] != '\0' ? c->policy.problem : "read again");
	notify_send(&c->notify, "READY=1");
}

static void
on_signal(int signo, void *ctx)
{
	struct connectd *c = ctx;

	if (signo == SIGHUP) {
		reload(c);
		return;
	}
	log_info("asked to stop by signal %d", signo);
	loop_stop(c->loop);
}

static void
prepare(struct connectd *c)
{
	char err[200] = "";
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	signal(SIGPIPE, SIG_IGN);
	if (loop_new(&c->loop) < 0 || loop_signals(c->loop, &set, on_signal, c) < 0)
		fatal("no event loop: %s", strerror(errno));
	if (notify_init(&c->notify, c->loop) < 0)
		log_warn("the service manager's notification socket cannot be used");
	if (netenv_new(c->loop, c->conf.hub_ca_file, &c->env, err) < 0)
		fatal("%s", err);
	if (netenv_watch(c->env, world_changed, c) < 0)
		log_warn("changes of addresses, resolver and clock will not be noticed at once");
}

static bool
services_have_sockets(const struct conf *conf)
{
	char name[SERVICE_NAME_SIZE];
	struct service_target t;

	for (const char *i = NULL; (i = keyfile_list_next(&conf->services, i)) != NULL;)
		if (service_declared_parse(i, name, &t) == 0 && t.scheme == SERVICE_UNIX)
			return true;
	return false;
}

static void
enter_sandbox(struct connectd *c)
{
	int abi;

	upplace_find(&c->place, c->opt.statedir, c->opt.conf);
	abi = connectd_sandbox_enter(c->opt.statedir, c->conf.hub_token_file, c->opt.policy, c->place.releases, c->place.keys,
	    services_have_sockets(&c->conf));

	if (abi < 0)
		fatal("the sandbox could not be entered: %s", strerror(-abi));
	if (abi == 0)
		log_warn("this kernel has no Landlock; files are protected by the unit's mounts and by permissions only");
}

/* The line belongs to the link first. */
static bool
link_is_busy(void *ctx)
{
	const struct connectd *c = ctx;

	return c->link.conn != NULL && hubconn_queued(c->link.conn) > LINK_BUSY;
}

static void
upgrade_news(void *ctx)
{
	struct connectd *c = ctx;

	link_upgrade_news(&c->link);
}

static void
begin_upgrader(struct connectd *c)
{
	static const struct upgrader_net net = { .start = upfetch_start, .free = upfetch_free };
	struct upgrader_params params = { .loop = c->loop, .env = c->env, .net = &net, .conf = &c->conf, .policy = &c->policy,
		.clock = &c->clock, .statedir = c->statefd, .releases = c->place.releases, .keys = c->place.keys, .managed = c->place.managed,
		.helper = c->place.helper, .sequence = c->place.sequence, .busy = link_is_busy, .news = upgrade_news, .ctx = c };

	upgrader_init(&c->upgrader, &params);
	c->device.upgrader = &c->upgrader;
}

static void
meet_the_others(struct connectd *c)
{
	struct link_params params = { .loop = c->loop, .env = c->env, .conf = &c->conf, .policy = &c->policy,
		.device = &c->device, .cred = &c->cred, .clock = &c->clock, .mirror = &c->mirror, .work = &c->work,
		.notify = &c->notify, .events = &c->events, .upgrader = &c->upgrader, .services = &svcstream_services };

	mirror_init(&c->mirror);
	workchan_init(&c->work, c->loop, &c->mirror, work_changed, c);
	if (privchan_init(&c->priv, c->loop, &c->work, c->opt.rundir) < 0)
		fatal("run directory: the path is too long");
	begin_upgrader(c);
	link_init(&c->link, &params);
	if (control_init(&c->control, c->loop, c->listener, &c->link, &c->priv) < 0)
		fatal("control socket: %s", strerror(errno));
	privchan_start(&c->priv);
	link_kick(&c->link);
	notify_send(&c->notify, "READY=1");
}

static void
startup(struct connectd *c, int argc, char **argv)
{
	parse_options(&c->opt, argc, argv);
	log_init("connectd", c->opt.verbose ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
	c->listener = fd_listen_fds() > 0 ? 3 : -1;
	load_configuration(c);
	if (drop_everything() < 0)
		fatal("must run as an ordinary user without capabilities");
	load_state(c);
	prepare(c);
	enter_sandbox(c);
	meet_the_others(c);
}

static void
wind_up(struct connectd *c)
{
	notify_send(&c->notify, "STOPPING=1");
	control_done(&c->control);
	link_done(&c->link);
	upgrader_done(&c->upgrader);
	privchan_done(&c->priv);
	workchan_done(&c->work);
	mirror_done(&c->mirror);
	netenv_free(c->env);
	cred_wipe(&c->cred);
	notify_done(&c->notify);
	loop_free(c->loop);
	eventlog_add(&c->events, "stop", "", "asked to");
	eventlog_close(&c->events);
	close(c->statefd);
}

int
main(int argc, char **argv)
{
	int r;

	startup(&self, argc, argv);
	r = loop_run(self.loop);
	if (r < 0)
		fatal("event loop: %s", strerror(-r));
	wind_up(&self);
	return 0;
}
