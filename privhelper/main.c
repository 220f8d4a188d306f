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
#include <sys/un.h>
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
#define SYSFS		"/sys"
#define NO_UID		((uint32_t)-1)

static struct introducer self;
static struct usb usb;

/* Descriptor 3 must be the listener it is said to be, and nothing else may stay open. */
static void
check_listener(const char *rundir)
{
	struct sockaddr_un sun = { 0 }, want = { 0 };
	int type = 0, listening = 0, n = snprintf(want.sun_path, sizeof(want.sun_path), "%s/introduce.sock", rundir);
	socklen_t len = sizeof(sun), tlen = sizeof(type), llen = sizeof(listening);

	if (fd_listen_fds() != 1)
		fatal("no listener was handed over (LISTEN_FDS=1): start edgeward-introduce.socket");
	if (getsockopt(LISTENER, SOL_SOCKET, SO_TYPE, &type, &tlen) < 0 || type != SOCK_SEQPACKET ||
	    getsockopt(LISTENER, SOL_SOCKET, SO_ACCEPTCONN, &listening, &llen) < 0 || listening == 0 ||
	    getsockname(LISTENER, (struct sockaddr *)&sun, &len) < 0 || sun.sun_family != AF_UNIX ||
	    n >= (int)sizeof(want.sun_path) || strncmp(sun.sun_path, want.sun_path, sizeof(sun.sun_path)) != 0)
		fatal("descriptor 3 is not the listener of %s/introduce.sock", rundir);
	if (close_range(LISTENER + 1, ~0u, 0) < 0 || fd_set_nonblock(LISTENER) < 0)
		fatal("descriptors: %s", strerror(errno));
}

static void
on_signal(int signo, void *ctx)
{
	loop_stop(ctx);
}

static void
serve(uid_t net_uid, uid_t work_uid, const char *sysroot, bool lend_usb)
{
	struct loop *loop;
	struct notify notify;
	sigset_t mask;
	int r = loop_new(&loop);

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	r = r < 0 ? r : loop_signals(loop, &mask, on_signal, loop);
	r = r < 0 ? r : notify_init(&notify, loop);
	r = r < 0 ? r : introduce_init(&self, loop, LISTENER, net_uid, work_uid);
	self.usb = lend_usb ? &usb : NULL;
	r = r < 0 ? r : sandbox_narrow(sysroot);
	r = r < 0 ? r : lend_usb ? /* the thread loads it for both */ usb_start(&usb, loop, &self.live[SIDE_WORKERD], sandbox_filter) : sandbox_filter();
	if (r < 0)
		fatal("cannot start: %s", strerror(-r));
	log_info("%s serves uids %u and %u", EDGEWARD_VERSION, net_uid, work_uid);
	notify_send(&notify, "READY=1\nSTATUS=introduces connectd and workerd");
	r = loop_run(loop);
	if (r < 0)
		fatal("event loop: %s", strerror(-r));
	introduce_done(&self);
	notify_done(&notify);
	loop_free(loop);
}

int
main(int argc, char **argv)
{
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	const char *rundir = "/run/edgeward", *statedir = "/var/lib/edgeward", *classes = NULL;
	uint32_t net_uid = NO_UID, work_uid = NO_UID;
	enum log_level level = LOG_LEVEL_INFO;
	int opt, r = 0;

	while (r == 0 && (opt = getopt_long(argc, argv, "N:W:hr:s:u:vV", longs, NULL)) != -1) {
		switch (opt) {
		case 'N': r = parse_u32(optarg, 0, NO_UID - 1, &net_uid); break;
		case 'W': r = parse_u32(optarg, 0, NO_UID - 1, &work_uid); break;
		case 'h': return fputs(help, stdout) < 0;
		case 'r': rundir = optarg; break;
		case 's': statedir = optarg; break;
		case 'u': classes = optarg; break;
		case 'v': level = LOG_LEVEL_DEBUG; break;
		case 'V': return puts("privhelper " EDGEWARD_VERSION) < 0;
		default: r = -EINVAL;
		}
	}
	if (r < 0 || optind != argc || net_uid == NO_UID || work_uid == NO_UID) {
		fputs(USAGE, stderr);
		return 2;
	}
	log_init("privhelper", level);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);	/* nothing to read again */
	check_listener(rundir);
	r = classes != NULL ? usb_open(&usb, rundir, statedir, SYSFS, classes) : 0;
	if (r < 0)
		fatal("cannot start: %s", r == -EINVAL ? "-u: USB classes, such as \"ff 07 08\"" : strerror(-r));
	serve(net_uid, work_uid, SYSFS, classes != NULL);
	return 0;
}
