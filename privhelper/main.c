/*
 * privhelper: root's part of Edgeward. It introduces connectd and workerd to each other, and attaches USB devices for workerd.
 *
 * Who calls: systemd (edgeward-privhelper.service) or run-foreground, with the listener of introduce.sock as descriptor 3.
 * What is trusted: the command line and that descriptor; no configuration is read, no path comes from a peer.
 * On error: one line and exit 1. Every surprise of its own is fatal: it never repairs, the service manager starts it
 * again. What a peer does wrong costs the peer its channel and not the process, see introduce.c.
 */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "common/notify.h"
#include "common/parse.h"
#include "privhelper/introduce.h"
#include "privhelper/sandbox.h"
#include "privhelper/usage.h"
#include "privhelper/usb.h"
#include "version.h"

#define LISTENER	3
#define NO_UID		((uint32_t)-1)

static struct introducer self;
static struct usb usb;

static void
serve(uid_t net_uid, uid_t work_uid, const struct usb_conf *conf)
{
	struct loop *loop;
	struct notify notify;
	int r = loop_new(&loop);

	r = r < 0 ? r : loop_stop_on_signals(loop);
	r = r < 0 ? r : notify_init(&notify, loop);
	r = r < 0 ? r : introduce_init(&self, loop, LISTENER, net_uid, work_uid);
	self.usb = conf->used ? &usb : NULL;
	r = r < 0 ? r : sandbox_narrow(conf);
	self.conf[SIDE_WORKERD].no_fds = !conf->l2;	/* of a TAP alone comes one; what close() of it waits for is a thread's to wait for */
	r = r < 0 || !conf->l2 ? r : closer_start(&self.closer);
	/* The thread loads the filter for both. */
	r = r < 0 ? r : conf->used ? usb_start(&usb, loop, &self.live[SIDE_WORKERD], sandbox_filter) : sandbox_filter();
	if (r < 0)
		fatal("cannot start: %s", strerror(-r));
	log_info("%s serves uids %u and %u", EDGEWARD_VERSION, net_uid, work_uid);
	notify_send(&notify, "READY=1\nSTATUS=introduces connectd and workerd");
	r = loop_run(loop);
	if (r < 0)
		fatal("event loop: %s", strerror(-r));
	if (self.usb != NULL)
		usb_stop(&usb);
}

int
main(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	struct usb_conf conf = { .rundir = "/run/edgeward", .statedir = "/var/lib/edgeward", .sysroot = "/sys", .devroot = "/dev" };
	uint32_t net_uid = NO_UID, work_uid = NO_UID;
	enum log_level level = LOG_LEVEL_INFO;
	int opt, l2 = 0, r = 0;

	while (r == 0 && (opt = getopt_long(argc, argv, "N:P:W:hl:r:s:u:vV", longs, NULL)) != -1) {
		switch (opt) {
		case 'N': r = parse_u32(optarg, 0, NO_UID - 1, &net_uid); break;
		case 'W': r = parse_u32(optarg, 0, NO_UID - 1, &work_uid); break;
		case 'P': r = optarg[0] != '\0' ? pool_parse(optarg, strlen(optarg), &conf.pool) : 0; break;
		case 'h': return fputs(help, stdout) < 0;
		case 'l': r = optarg[0] == '\0' ? 0 : parse_yes_no(optarg, &l2); break;
		case 'r': conf.rundir = optarg; break;
		case 's': conf.statedir = optarg; break;
		case 'u': conf.classes = optarg[0] != '\0' ? optarg : NULL; break;
		case 'v': level = LOG_LEVEL_DEBUG; break;
		case 'V': return puts("privhelper " EDGEWARD_VERSION) < 0;
		default: r = -EINVAL;
		}
	}
	if (r < 0 || optind != argc || net_uid == NO_UID || work_uid == NO_UID)
		return fputs(USAGE, stderr) < 0 ? 1 : 2;
	log_init("privhelper", level);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);	/* nothing to read again */
	r = fd_take_listener(LISTENER, SOCK_SEQPACKET, conf.rundir, "introduce.sock");
	if (r < 0)
		fatal("%s/introduce.sock: %s", conf.rundir, r == -ENOTCONN ? "no listener was handed over: start edgeward-introduce.socket" :
		    r == -ENOTSOCK ? "descriptor 3 is not its listener" : strerror(-r));
	if (conf.pool.count == 0)	/* then workloads run as workerd does */
		conf.pool = (struct pool){ work_uid, 1, work_uid };
	conf.l2 = l2 != 0;
	/* Also where nothing may be lent any more, to end what was. */
	conf.used = conf.l2 || conf.classes != NULL || usbledger_left(conf.rundir);
	r = conf.used ? usb_open(&usb, &conf) : 0;
	if (r < 0)
		fatal("cannot start: %s", r == -EINVAL ? "-u: USB classes, such as \"ff 07 08\"" : strerror(-r));
	serve(net_uid, work_uid, &conf);
	return 0;
}
