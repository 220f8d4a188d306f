/*
 * launcher: main process of edgeward-workerd.service. Holds CAP_SETUID and CAP_SETGID, the cgroup subtree and what belongs
 * to the workloads; keeps workerd, its child, running. Its compromise equals root: a process that may set uids may write any
 * uid into a child's uid_map. So it is small, reads the command line, the pool file (root's) and the records of held.c, and
 * no configuration.
 *
 * Who calls: systemd or run-foreground, with the listener of workerd.sock as descriptor 3, which is handed on. On error at
 * start: one line and exit 1. When workerd ends it is started again; before the first one was ready, that is an error too.
 * SIGHUP replaces workerd and touches no workload; SIGTERM ends all work.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/drop.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/pool.h"
#include "common/sandbox.h"
#include "version.h"
#include "workerd/launcher/launcher.h"

#define DELAY_MIN	50		/* ms between starts of workerd */
#define DELAY_MAX	1000
#define STABLE_MS	2000
#define QUEUE_MAX	(4u << 20)	/* HELD of every workload */
#define WORKER_CHANNEL	3
#define WORKER_LISTENER	4
#define USAGE "usage: launcher [-nvV] [-c conf] [-p policy] [-r rundir] [-s statedir] [-P poolfile] [-w workerd]\n"

static struct launcher self;

/* What neither we nor any workload needs. Inherited by workloads: nothing that ordinary programs use. */
static const struct sandbox_rule deny[] = {
	{ .nr = SCMP_SYS(bpf) }, { .nr = SCMP_SYS(perf_event_open) }, { .nr = SCMP_SYS(kexec_load) },
	{ .nr = SCMP_SYS(kexec_file_load) }, { .nr = SCMP_SYS(init_module) }, { .nr = SCMP_SYS(finit_module) },
	{ .nr = SCMP_SYS(delete_module) }, { .nr = SCMP_SYS(reboot) }, { .nr = SCMP_SYS(swapon) },
	{ .nr = SCMP_SYS(swapoff) }, { .nr = SCMP_SYS(acct) }, { .nr = SCMP_SYS(settimeofday) },
	{ .nr = SCMP_SYS(clock_settime) }, { .nr = SCMP_SYS(iopl) }, { .nr = SCMP_SYS(ioperm) },
	{ .nr = SCMP_SYS(quotactl) }, { .nr = SCMP_SYS(add_key) }, { .nr = SCMP_SYS(keyctl) },
	{ .nr = SCMP_SYS(request_key) }, { .nr = SCMP_SYS(open_by_handle_at) }, { .nr = SCMP_SYS(userfaultfd) },
	{ .nr = SCMP_SYS(vhangup) }, { .nr = SCMP_SYS(mknod), 1, { SANDBOX_MASK(1, S_IFMT, S_IFBLK) } },
};

static void
start_worker(struct loop_timer *timer)
{
	struct launcher *l = &self;
	sigset_t none;
	int fds[2], r = ipc_pair(1 << 18, fds, NULL);

	if (r < 0 || (l->worker = fork()) < 0)
		fatal("cannot start workerd: %s", strerror(r < 0 ? -r : errno));
	if (l->worker == 0) {
		sigemptyset(&none);
		sigprocmask(SIG_SETMASK, &none, NULL);
		if (dup2(fds[1], WORKER_CHANNEL) < 0 || (l->listener >= 0 && dup2(l->listener, WORKER_LISTENER) < 0) ||
		    close_range(WORKER_LISTENER + 1, ~0u, 0) < 0 || setrlimit(RLIMIT_NOFILE, &l->nofile) < 0)
			_exit(1);
		execv(l->worker_argv[0], l->worker_argv);
		fatal("cannot run %s: %s", l->worker_argv[0], strerror(errno));
	}
	close(fds[1]);
	l->worker_since = monotime_now();
	r = ipc_chan_init(&l->chan, l->loop, fds[0], &l->conf);
	if (r < 0 || ipc_send_hello(&l->chan, IPC_ROLE_LAUNCHER, 0) < 0)
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
	if (l->stopping)
		return;
	log_warn("workerd ended (%s %d)", WIFSIGNALED(status) ? "signal" : "exit",
	    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	if (!l->worker_up) {
		loop_stop(l->loop);
		return;
	}
	if (monotime_diff_ms(monotime_now(), l->worker_since) >= STABLE_MS)
		l->delay = DELAY_MIN;
	loop_timer_set_ms(l->loop, &l->restart, l->delay);
	l->delay = l->delay * 2 < DELAY_MAX ? l->delay * 2 : DELAY_MAX;
}

static void
on_signal(int signo, void *ctx)
{
	struct launcher *l = ctx;
	struct rusage ru;
	int status;

	if (signo == SIGHUP && l->worker > 0) {
		kill(l->worker, SIGTERM);
	} else if (signo == SIGTERM || signo == SIGINT) {
		l->stopping = true;
		loop_stop(l->loop);
	}
	for (pid_t pid; (pid = wait4(-1, &status, WNOHANG, &ru)) > 0; ) {
		if (pid == l->worker)
			worker_ended(l, status);
		else
			held_reaped(l, pid, status, &ru);
	}
}

/* Nothing is inherited by accident: standard input, low descriptors, signal dispositions, the file mode mask. */
static void
set_state(struct launcher *l)
{
	struct rlimit all;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	l->listener = fd_listen_fds() == 1 ? fcntl(3, F_DUPFD_CLOEXEC, FD_CHILD_END) : -1;
	if (null < 0 || dup2(null, 0) < 0)
		fatal("/dev/null: %s", strerror(errno));
	for (int fd = 3; fd < FD_CHILD_END; fd++)
		if (fd != null && dup3(null, fd, O_CLOEXEC) < 0)
			fatal("descriptors: %s", strerror(errno));
	for (int sig = 1; sig < SIGRTMAX; sig++)
		signal(sig, SIG_DFL);
	umask(022);
	if (getrlimit(RLIMIT_NOFILE, &l->nofile) < 0)
		fatal("RLIMIT_NOFILE: %s", strerror(errno));
	all = (struct rlimit){ l->nofile.rlim_max, l->nofile.rlim_max };
	setrlimit(RLIMIT_NOFILE, &all);
}

static void
confine(struct launcher *l, const char *pool_file)
{
	static const cap_value_t keep[] = { CAP_SETUID, CAP_SETGID };
	struct pool pool;
	int r = pool_load(pool_file, &pool);

	if (r < 0)
		fatal("%s: %s", pool_file, r == -EPERM ? "must belong to root and be writable for nobody else" :
		    r == -EINVAL ? "expected one line: first uid, count, gid" : strerror(-r));
	if (geteuid() == 0)
		fatal("must not run as root: start it as edgeward-work with CAP_SETUID and CAP_SETGID");
	r = drop_to_caps(keep, pool.count != 0 ? 2 : 0);
	if (r < 0)
		fatal("capabilities: %s%s", strerror(-r), r == -EPERM ? " (a pool needs CAP_SETUID and CAP_SETGID)" : "");
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		fatal("dumpable: %s", strerror(errno));
	l->ready.pool_first = pool.first;
	l->ready.pool_count = pool.count;
	l->ready.pool_gid = pool.gid;
	l->uid = getuid();
	l->gid = getgid();
	l->ready.pid = getpid();
	snprintf(l->ready.build, sizeof(l->ready.build), "%s", EDGEWARD_VERSION);
	if (getrandom(&l->ready.instance, sizeof(l->ready.instance), 0) != (ssize_t)sizeof(l->ready.instance))
		fatal("no random numbers");
	held_init(l);
	r = sandbox_seccomp_deny(deny, sizeof(deny) / sizeof(deny[0]));
	if (r < 0)
		fatal("seccomp: %s", strerror(-r));
}

static int
serve(struct launcher *l)
{
	sigset_t mask;
	int r = loop_new(&l->loop);

	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGHUP);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGTERM);
	if (r == 0)
		r = loop_signals(l->loop, &mask, on_signal, l);
	if (r < 0)
		fatal("event loop: %s", strerror(-r));
	l->conf = (struct ipc_conf){ .rules = held_rules, .nrules = held_nrules, .max_payload = IPC_MAX_LAUNCH,
		.queue_max = QUEUE_MAX, .ctx = l, .ended = channel_ended };
	l->delay = DELAY_MIN;
	if (notify_init(&l->notify, l->loop) < 0)
		log_warn("the service manager's notification socket cannot be used");
	loop_timer_init(&l->restart, start_worker, l);
	start_worker(&l->restart);
	r = loop_run(l->loop);
	held_end(l);
	if (l->worker > 0)
		kill(l->worker, SIGTERM);
	return l->stopping && r == 0 ? 0 : 1;
}

int
main(int argc, char **argv)
{
	const char *pool_file = "/etc/edgeward/pool";
	static char worker[4096];
	enum log_level level = LOG_LEVEL_INFO;
	bool only_check = false;
	char *slash;
	int opt, n = 1;

	opterr = 0;

	if (readlink("/proc/self/exe", worker, sizeof(worker) - sizeof("/workerd")) > 0 &&
	    (slash = strrchr(worker, '/')) != NULL)
		memcpy(slash, "/workerd", sizeof("/workerd"));
	self.worker_argv[0] = worker;
	while ((opt = getopt(argc, argv, "nvVc:p:r:s:P:w:")) != -1) {
		static char names[][3] = { "-n", "-v", "-c", "-p", "-r", "-s" };
		const char *known = "nvcprs", *at = strchr(known, opt);

		if (opt == 'V')
			return puts("launcher " EDGEWARD_VERSION) < 0;
		if (opt == '?' || n > 12) {
			fputs(USAGE, stderr);
			return 2;
		}
		only_check |= opt == 'n';
		level = opt == 'v' ? LOG_LEVEL_DEBUG : level;
		pool_file = opt == 'P' ? optarg : pool_file;
		self.worker_argv[0] = opt == 'w' ? optarg : self.worker_argv[0];
		if (at != NULL)
			self.worker_argv[n++] = names[at - known];
		if (at != NULL && optarg != NULL)
			self.worker_argv[n++] = optarg;
	}
	if (optind != argc)
		return fputs(USAGE, stderr) < 0 ? 1 : 2;
	log_init("launcher", level);
	if (only_check)
		return execv(self.worker_argv[0], self.worker_argv) < 0;
	set_state(&self);
	confine(&self, pool_file);
	log_info("%s, %s, pool of %u", EDGEWARD_VERSION, self.ready.tree == LAUNCH_TREE_CGROUP ? "cgroups" :
	    self.ready.tree == LAUNCH_TREE_PIDNS ? "pid namespaces" : "no way to end a tree of processes",
	    self.ready.pool_count);
	return serve(&self);
}
