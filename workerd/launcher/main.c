/*
 * launcher: main process of edgeward-workerd.service. Holds CAP_SETUID and CAP_SETGID, the cgroup subtree and what belongs
 * to the workloads; keeps workerd, its child, running. Its compromise equals root: a process that may set uids may write any
 * uid into a child's uid_map. So it is small, reads the command line, the pool file (root's) and the records of held.c, and
 * no configuration.
 *
 * Who calls: systemd or run-foreground, with the listener of workerd.sock as descriptor 3, which is handed on. On error at
 * start: one line and exit 1. When workerd ends it is started again; before the first one was ready, that is an error too.
 * SIGHUP replaces workerd, and the launcher itself when its file is another one by then, and touches no workload; SIGTERM ends
 * all work.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/drop.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/pool.h"
#include "common/spawn.h"
#include "common/trim.h"
#include "version.h"
#include "workerd/launcher/launcher.h"

#define DELAY_MIN	50		/* ms between starts of workerd */
#define DELAY_MAX	1000
#define STABLE_MS	2000
#define RELOAD_MAX	10000	/* ms */
#define TRIAL_MS	10000
#define QUEUE_MAX	(4u << 20)	/* HELD of every workload */
#define CHANNEL_BUFFER	(1 << 18)
#define USAGE "usage: launcher [-hnvV] [-c conf] [-p policy] [-r rundir] [-s statedir] [-P poolfile] [-w workerd]\n"
#define HELP USAGE "launcher keeps workerd running and starts the workloads it is told to, each under its own uid. The service\n" \
    "manager starts it, or run-foreground; by hand only -n is of use. -P: file with the ids for workloads, FIRST COUNT GID,\n" \
    "default /etc/edgeward/pool. -w: the program workerd. For the other options see workerd --help and workerd(8).\n"

static struct launcher self = { .pool_file = "/etc/edgeward/pool" };

static void
start_worker(struct loop_timer *timer)
{
	struct launcher *l = timer->ctx;
	int fds[2], give[2] = { -1, l->listener }, r;

	if (l->trial > 0) {
		kill(l->trial, SIGKILL);
		return;
	}
	if (handover_wanted(l) && (l->trial = handover_try(l)) > 0) {
		loop_timer_set_ms(l->loop, timer, TRIAL_MS);
		return;		/* trial_ended() goes on */
	}
	if (l->ready.pool_count == 0 && l->ready.pool_first == LAUNCH_POOL_AWAITED)
		pool_load_foreign(l->pool_file, l->uid, l->gid, &l->ready.pool_first, &l->ready.pool_count, &l->ready.pool_gid);
	r = ipc_pair(CHANNEL_BUFFER, fds, NULL);
	give[0] = r == 0 ? fds[1] : -1;
	if (r < 0 || (l->worker = spawn_daemon(l->worker_argv, give, 2, &l->nofile)) < 0)
		fatal("cannot start workerd: %s", strerror(r < 0 ? -r : -l->worker));
	close(fds[1]);
	l->worker_since = monotime_now();
	r = ipc_chan_init(&l->chan, l->loop, fds[0], &l->conf);
	if (r < 0 || (r = ipc_send_hello(&l->chan, IPC_ROLE_LAUNCHER, 0)) < 0)
		fatal("channel to workerd: %s", strerror(-r));
}

/* What a workerd does that breaks the protocol costs it its life, never a workload's. */
static void
channel_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct launcher *l = ctx;

	if (err < 0)
		log_error("workerd's channel: %s", strerror(-err));
	ipc_chan_done(chan);
	if (l->worker > 0)
		kill(l->worker, SIGKILL);
}

static void
worker_ended(struct launcher *l, int status)
{
	ipc_chan_done(&l->chan);
	l->worker = 0;
	log_warn("workerd ended (%s %d)", WIFSIGNALED(status) ? "signal" : "exit",
	    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	notify_send(&l->notify, "STATUS=workerd-down: it is started again");
	if (!l->worker_up)
		loop_stop(l->loop);
	if (monotime_diff_ms(monotime_now(), l->worker_since) >= STABLE_MS)
		l->delay = DELAY_MIN;
	loop_timer_set_ms(l->loop, &l->restart, l->delay);
	l->delay = l->delay * 2 < DELAY_MAX ? l->delay * 2 : DELAY_MAX;
}

static void
reload_over(struct loop_timer *timer)
{
	notify_send(&((struct launcher *)timer->ctx)->notify, "READY=1");
}

static void
trial_ended(struct launcher *l, int status)
{
	int r = status == 0 ? handover_exec(l) : -EINVAL;

	log_error("the launcher's new file is not used (%s): this one goes on", status == 0 ? strerror(-r) : "it failed its check");
	l->trial = 0;
	loop_timer_del(l->loop, &l->restart);
	if (stat(l->path, &l->refused) < 0)
		l->refused.st_ino = 0;
	start_worker(&l->restart);
}

static void
reap(struct launcher *l)
{
	struct rusage ru;
	int status;

	for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &ru)) > 0; ) {
		if (pid == l->worker)
			worker_ended(l, status);
		else if (pid == l->trial)
			trial_ended(l, status);
		else
			held_reaped(l, pid, status, &ru);
	}
}

static void
on_signal(int signo, void *ctx)
{
	struct launcher *l = ctx;

	if (signo == SIGHUP && l->worker > 0) {
		notify_send(&l->notify, "RELOADING=1");
		loop_timer_set_ms(l->loop, &l->reloaded, RELOAD_MAX);
		kill(l->worker, SIGHUP);	/* it looks whether its successor will be able to start, and ends */
	} else if (signo == SIGTERM || signo == SIGINT) {
		l->stopping = true;
		loop_stop(l->loop);
	}
	reap(l);
}

static void
load_pool(struct launcher *l)
{
	int r = pool_load_foreign(l->pool_file, getuid(), getgid(), &l->ready.pool_first, &l->ready.pool_count, &l->ready.pool_gid);

	if (r < 0)
		fatal("%s: %s", l->pool_file, pool_error(r));
}

static void
confine(struct launcher *l, int state)
{
	static const cap_value_t keep[] = { CAP_SETUID, CAP_SETGID };
	int r;

	l->uid = getuid();
	l->gid = getgid();
	l->ready.pid = getpid();
	load_pool(l);
	if (geteuid() == 0)
		fatal("must not run as root: start it as edgeward-work with CAP_SETUID and CAP_SETGID");
	if (l->ready.pool_count == 0 && drop_is_permitted(CAP_SETUID) && drop_is_permitted(CAP_SETGID))
		l->ready.pool_first = LAUNCH_POOL_AWAITED;
	r = drop_to_caps(keep, l->ready.pool_first != 0 ? 2 : 0);
	if (r < 0)
		fatal("capabilities: %s%s", strerror(-r), r == -EPERM ? " (a pool needs CAP_SETUID and CAP_SETGID)" : "");
	snprintf(l->ready.build, sizeof(l->ready.build), "%s", EDGEWARD_VERSION);
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
	    getrandom(&l->ready.instance, sizeof(l->ready.instance), 0) != (ssize_t)sizeof(l->ready.instance))
		fatal("dumpable, or random numbers: %s", strerror(errno));
	l->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (l->proc < 0)
		fatal("/proc: %s", strerror(errno));
	confine_init(&l->confine, &l->ready, l->ready.pool_count != 0 ? l->ready.pool_first : 0, l->ready.pool_gid);
	if (state >= 0)
		handover_take(l, state);
	else
		held_init(l);
	r = confine_launcher();
	if (r < 0)
		fatal("seccomp: %s", strerror(-r));
	trim_memory();	/* what the filters were made in; a clone copies less */
}

static int
serve(struct launcher *l)
{
	static const int signals[] = { SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGPIPE };	/* PIPE: only blocked */
	sigset_t mask;
	int r = loop_new(&l->loop);

	sigemptyset(&mask);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaddset(&mask, signals[i]);
	if (r == 0)
		r = loop_signals(l->loop, &mask, on_signal, l);
	if (r < 0)
		fatal("event loop: %s", strerror(-r));
	l->conf = (struct ipc_conf){ .rules = held_rules, .nrules = held_nrules, .max_payload = IPC_MAX_LAUNCH,
		.queue_max = QUEUE_MAX, .ctx = l, .ended = channel_ended };
	l->delay = DELAY_MIN;
	if (notify_init(&l->notify, l->loop) < 0)
		log_warn("the service manager's notification socket cannot be used");
	if (l->notify.period_ms > 0)
		setenv(LAUNCH_WATCHDOG, l->manager[1], 1);	/* workerd, too, must not hang */
	loop_timer_init(&l->restart, start_worker, l);
	loop_timer_init(&l->reloaded, reload_over, l);
	start_worker(&l->restart);
	held_resume(l);
	reap(l);	/* what ended while we became another */
	r = loop_run(l->loop);
	held_end(l);
	if (l->worker > 0)
		kill(l->worker, SIGTERM);
	return l->stopping && r == 0 ? 0 : 1;
}

int
main(int argc, char **argv)
{
	static char worker[PATH_MAX];
	enum log_level level = LOG_LEVEL_INFO;
	bool only_check = false, bad = false;
	static const char hidden[HIDE_OWN + 1] = "cprsP";	/* most of it is workerd's, and none a workload's to see */
	static const struct option longs[] = { { "help", no_argument, NULL, 'h' }, { 0 } };
	int opt, r, state;

	opterr = 0;
	spawn_beside("workerd", worker, sizeof(worker));
	self.worker_argv = argv;	/* it takes the same options and leaves out ours */
	while ((opt = getopt_long(argc, argv, "hnvVc:p:r:s:P:w:", longs, NULL)) != -1) {
		if (strchr(hidden, opt) != NULL)
			self.confine.view.own[strchr(hidden, opt) - hidden] = hide_absolute(optarg);
		switch (opt) {
		case 'P': self.pool_file = optarg; break;
		case 'w': snprintf(worker, sizeof(worker), "%s", optarg); break;
		case 'h': return fputs(HELP, stdout) < 0;
		case 'n': only_check = true; break;
		case 'v': level = LOG_LEVEL_DEBUG; break;
		case 'V': return puts("launcher " EDGEWARD_VERSION) < 0;
		case '?': bad = true;
		}
	}
	if (bad || optind != argc) {
		fputs(USAGE, stderr);
		return 2;
	}
	argv[0] = worker;
	log_init("launcher", level);
	state = handover_received();
	if (only_check && state >= 0) {
		load_pool(&self);
		handover_take(&self, state);
	}
	if (only_check && execv(worker, argv) < 0)
		fatal("cannot run %s: %s", worker, strerror(errno));
	handover_init(&self);
	self.listener = fd_listen_fds() == 1 ? fcntl(3, F_DUPFD_CLOEXEC, FD_CHILD_END) : -1;
	r = spawn_set_state(FD_CHILD_END, &self.nofile);
	if (r < 0)
		fatal("descriptors: %s", strerror(-r));
	confine(&self, state);
	log_info("%s, %s, pool of %u", EDGEWARD_VERSION, self.ready.tree == LAUNCH_TREE_CGROUP ? "cgroups" :
	    self.ready.tree == LAUNCH_TREE_PIDNS ? "pid namespaces" : "no way to end a tree of processes",
	    self.ready.pool_count);
	if ((LAUNCH_PARTS_ALL & ~self.ready.parts) != 0)
		log_warn("this machine does not give all of the sandbox: %#x is missing", LAUNCH_PARTS_ALL & ~self.ready.parts);
	return serve(&self);
}
