/*
 * workinit: the copy of the launcher that starts one workload, passes signals on to it, reaps, and says how it ended.
 *
 * The order, top to bottom in begin() and workinit(): limits, the runner's ids, a user namespace that knows these alone, and
 * in it pid 1 of a new pid namespace; the work directory, the other namespaces and the view, no capability, seccomp; and in the
 * payload's process Landlock. Until drop_to_runner() it is as strong as the launcher and reads nothing but the checked struct; what
 * the hub sent (the spec) is looked at only afterwards.
 *
 * The process that makes the pid namespace cannot be in it. It lends pid 1 its memory (no page is copied), becomes its elder
 * sibling (CLONE_PARENT), says its number and ends; the launcher waits for that.
 *
 * workinit is not dumpable, so the payload, which has the same uid, cannot look into it. What it has to say goes into the
 * report, where it outlives workerd. When its channel ends, workerd and launcher are both gone: it ends the tree, itself
 * included. Without a pid namespace a payload may kill it, and ends its own workload as lost.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/beneath.h"
#include "common/cgroup.h"
#include "common/drop.h"
#include "common/execpath.h"
#include "common/userns.h"
#include "proto/ipc/l2.h"
#include "proto/ipc/work.h"
#include "workerd/launcher/launcher.h"
#include "workerd/launcher/secretfs.h"

#define STRINGS_MAX	(WORK_ARGV_MAX > WORK_ENV_MAX ? WORK_ARGV_MAX : WORK_ENV_MAX)

#define FIRST_MAX_MS	5000	/* it takes a millisecond; cpu.max may stretch that */
#define STACK_GAP	8192	/* for what is left to do for the one whose stack it was */

static struct {
	const struct launcher *l;
	const struct launch_start *s;
	struct confine_who who;
} job;
static int own_net = -1;		/* ours, for who makes interfaces in it */
static char text[WORK_SPEC_MAX + 1];
static struct work_net net;
static struct netns netns;
static struct work_str words[2][STRINGS_MAX];
static char *lists[2][STRINGS_MAX + 1];
static struct {
	struct ipc_hdr hdr;
	struct launch_report report;
} out = { .hdr = { .type = INIT_EV_STARTED, .version = IPC_VERSION, .len = sizeof(struct launch_report) } };

static void
tell(uint32_t part)
{
	out.report.flags |= part;
	if (pwrite(FD_REPORT, &out.report, sizeof(out.report), 0) != (ssize_t)sizeof(out.report))
		_exit(1);
}

/* Ends the start if r is an error, or -1 with errno. */
static void
check(int r, enum init_stage stage)
{
	if (r >= 0)
		return;
	out.report.failed = (struct init_failed){ .stage = stage, .error = r == -1 ? errno : -r };
	tell(LAUNCH_REPORT_FAILED);
	_exit(1);
}

static int
arrange_fds(const struct workinit_fds *fds)
{
	int end = fds->cgroup >= 0 ? openat(fds->cgroup, "cgroup.kill", O_WRONLY | O_CLOEXEC) : fds->init;
	const int map[][2] = { { fds->report, FD_REPORT }, { fds->init, FD_INIT }, { end, FD_KILL },
		{ job.l->proc, FD_PROC },
		{ fds->root, FD_ROOT }, { fds->spec, FD_SPEC } };

	for (unsigned i = 0; i < sizeof(map) / sizeof(map[0]); i++)
		if (dup3(map[i][0], map[i][1], O_CLOEXEC) < 0)
			return -1;
	if (fds->input >= 0 && dup2(fds->input, 0) < 0)
		return -1;
	return dup2(fds->output, 1) < 0 || dup2(fds->output, 2) < 0 ? -1 : close_range(FD_CHILD_END, ~0u, 0);
}

static int
set_limits(const struct launcher *l, const struct launch_start *s)
{
	/*
	 * 1: no core file, and nothing for a program that core_pattern pipes to, which 0 would not stop. Memory may hold secrets. Where whoever
	 * started us allows less than 1, it cannot be raised: the units see to it that it is not so.
	 */
	struct rlimit core = { 1, 1 };
	struct rlimit nofile = l->nofile, had;
	char adj[] = "0000", *p = adj;

	if (getrlimit(RLIMIT_CORE, &had) == 0 && had.rlim_max < core.rlim_max)
		core = had;
	if (s->nofile != 0)
		nofile.rlim_cur = s->nofile < nofile.rlim_max ? s->nofile : nofile.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &nofile) < 0 || setrlimit(RLIMIT_CORE, &core) < 0 ||
	    (s->nice != 0 && setpriority(PRIO_PROCESS, 0, s->nice) < 0))
		return -1;
	/* By hand: printf would touch pages of the C library that each start then has to copy. */
	for (int i = 3, v = s->oom_score_adj; i >= 0; i--, v /= 10)
		adj[i] = (char)('0' + v % 10);
	while (*p == '0')
		p++;
	if (s->oom_score_adj != 0 && prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)	/* the file is root's otherwise */
		return -1;
	return s->oom_score_adj != 0 ? cgroup_write(AT_FDCWD, "/proc/self/oom_score_adj", p) : 0;
}

static int
read_spec(struct work_spec *spec)
{
	ssize_t n = pread(FD_SPEC, text, WORK_SPEC_MAX, 0);

	*spec = (struct work_spec){ .argv = words[0], .env = words[1], .net = &net };
	if (n < 0 || work_spec_decode(spec, text, (size_t)n) < 0)
		return n < 0 ? -errno : -EBADMSG;
	if ((spec->network == WORK_NETWORK_FILTERED) != ((job.who.parts & LAUNCH_PART_FILTER) != 0))
		return -EBADMSG;
	work_spec_strings(spec->argv, spec->argc, text, lists[0]);
	work_spec_strings(spec->env, spec->envc, text, lists[1]);
	return 0;
}

/*
 * Whoever owns the first step of the path can change all that is below. Every runner may make names in the root, so it may not
 * be what we were told to find or make; what is ours or root's nobody else can move.
 */
static int
open_top(char *path)
{
	char *slash = strchr(path, '/');
	struct stat st;
	int fd, r;

	if (slash != NULL)
		*slash = '\0';
	fd = beneath_make(FD_ROOT, path);
	if (fd >= 0) {
		close(fd);
		fd = openat(FD_ROOT, path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
		r = fd < 0 || fstat(fd, &st) < 0 ? -errno : st.st_uid != getuid() && st.st_uid != 0 ? -EACCES : 0;
		/* A link that passed is ours or root's: it cannot be swapped, and leads on by its name. */
		if (fd >= 0 && (r < 0 || S_ISLNK(st.st_mode))) {
			close(fd);
			fd = r < 0 ? r : beneath_open(FD_ROOT, path);
		}
	}
	if (slash != NULL)
		*slash = '/';
	return fd;
}

/* From there on by what was opened and judged: the name may be another one's by now. */
static int
open_dir(char *path)
{
	char *rest = strchr(path, '/');
	int top, fd;

	if (path[0] == '\0')
		return beneath_make(FD_ROOT, path);
	top = open_top(path);
	if (top < 0 || rest == NULL)
		return top;
	fd = beneath_make(top, rest + 1);
	close(top);
	return fd;
}

static int
enter_dir(const struct launcher *l, char *path)
{
	int fd = l->ready.pool_count != 0 ? open_dir(path) : beneath_make(FD_ROOT, path);

	if (fd < 0)
		return fd;
	return fchdir(fd) < 0 ? -errno : close_range(FD_ROOT, fd > FD_SPEC ? (unsigned)fd : FD_SPEC, 0);
}

static uint32_t
number(const char *p)
{
	uint32_t v = 0;

	while (*p >= '0' && *p <= '9')
		v = v * 10 + (uint32_t)(*p++ - '0');
	return v;
}

/* In the payload's process, which shares our memory until it runs the payload: what failed and where goes into failed. */
static void
become_payload(struct init_failed *failed)
{
	char self[12] = "";
	sigset_t none;
	int r = 0;

	sigemptyset(&none);
	failed->stage = INIT_STAGE_EXEC;
	if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || readlinkat(FD_PROC, "self", self, sizeof(self) - 1) < 0)
		r = -errno;
	out.report.started.pid = (int32_t)number(self);	/* as the machine counts, not as the pid namespace does */
	if (r == 0 && (job.who.parts & LAUNCH_PART_LANDLOCK) != 0 &&
	    (r = view_landlock(&job.l->confine.view, job.s->show, (job.who.parts & LAUNCH_PART_MOUNT) != 0)) < 0)
		failed->stage = INIT_STAGE_LANDLOCK;
	if (r == 0 && sigprocmask(SIG_SETMASK, &none, NULL) == 0)
		r = execpath(lists[0], lists[1]);
	failed->error = -r;
}

static pid_t
spawn(void)
{
	static struct init_failed failed;
	pid_t pid = vfork();

	if (pid == 0) {
		become_payload(&failed);
		_exit(127);
	}
	check(pid, INIT_STAGE_EXEC);
	check(-failed.error, failed.stage);
	return pid;
}

/* What workerd says, with the descriptor of a secret, or the two of an attach. */
struct said {
	struct ipc_hdr hdr;
	union {
		struct init_signal sig;
		struct init_secret secret;
		struct l2_addresses addresses;
		struct init_attach attach;
	};
};

static ssize_t
listen_to(struct said *m, int ret_fds[2])
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))];
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(FD_INIT, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;

	ret_fds[0] = ret_fds[1] = -1;
	if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= CMSG_LEN(sizeof(int)))
		memcpy(ret_fds, CMSG_DATA(c), c->cmsg_len >= CMSG_LEN(2 * sizeof(int)) ? 2 * sizeof(int) : sizeof(int));
	return n;
}

static void
drop_fds(const int fds[2])
{
	for (unsigned i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* A copy of this process holds the session from here on; if there can be none, workerd sees its channel end. */
static void
attach(const struct said *m, const int fds[2])
{
	const struct attached who = { &job.l->confine.view, job.s->show, job.who.parts, lists[1] };

	if (fds[1] >= 0 && init_attach_ok(&m->attach) && fork() == 0)
		attached_run(&who, &m->attach, fds[1], fds[0]);
}

static void
do_secret(const struct said *m, int content)
{
	int base = open(LAUNCH_SECRETS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct {
		struct ipc_hdr hdr;
		struct init_done done;
	} ans = { .hdr = { .type = INIT_ANS_SECRET, .version = IPC_VERSION, .len = sizeof(struct init_done), .id = m->hdr.id } };

	if (base < 0)
		ans.done.status = -errno;
	else
		ans.done = secretfs_do(base, &m->secret, content);
	close(base);
	send(FD_INIT, &ans, sizeof(ans), MSG_NOSIGNAL);
}

static bool
is_secret(const struct said *m, ssize_t n)
{
	return n == (ssize_t)(sizeof(m->hdr) + sizeof(m->secret)) && m->hdr.type == INIT_REQ_SECRET && m->hdr.version == IPC_VERSION &&
	    init_secret_ok(&m->secret);
}

static void
hear(pid_t pid)
{
	struct said m;
	int fds[2];
	ssize_t n = listen_to(&m, fds);

	if (n == (ssize_t)(sizeof(m.hdr) + sizeof(m.sig)) && m.hdr.type == INIT_EV_SIGNAL && m.hdr.version == IPC_VERSION)
		kill(pid, m.sig.signo);
	else if (is_secret(&m, n))
		do_secret(&m, fds[0]);
	else if (n == (ssize_t)(sizeof(m.hdr) + sizeof(m.attach)) && m.hdr.type == INIT_REQ_ATTACH && m.hdr.version == IPC_VERSION)
		attach(&m, fds);
	else if (n >= (ssize_t)sizeof(m.hdr) && m.hdr.version == IPC_VERSION)
		initlink_asked(&m.hdr, &m.addresses, (size_t)n - sizeof(m.hdr), own_net);
	drop_fds(fds);
	if (n != 0)
		return;
	if (write(FD_KILL, "1", 1) != 1)	/* no cgroup: the payload dies with us */
		_exit(1);
}

/*
 * Before the payload runs: its secret files, and what was taken back of them in the meantime. A signal waits for the payload.
 * The spec is wiped of them: what is left of it the payload has anyway.
 */
static int
place_secrets(const struct work_spec *spec)
{
	int base = open(LAUNCH_SECRETS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r, fds[2];
	char head[sizeof(struct ipc_hdr)];
	struct ipc_hdr hdr;
	struct said m;

	r = base < 0 ? -errno : secretfs_place(base, &spec->secrets);
	explicit_bzero(text + (spec->secrets.s - text), spec->secrets.len);
	if (base >= 0)
		close(base);
	while (r == 0 && recv(FD_INIT, head, sizeof(head), MSG_DONTWAIT | MSG_PEEK) == (ssize_t)sizeof(head)) {
		memcpy(&hdr, head, sizeof(hdr));
		if (hdr.type != INIT_REQ_SECRET)
			break;
		if (is_secret(&m, listen_to(&m, fds)))
			do_secret(&m, fds[0]);
		drop_fds(fds);
	}
	return r;
}

/* The payload has ended: nothing is left in memory that is given back. */
static void
wipe_secrets(void)
{
	int base = job.who.secrets ? open(LAUNCH_SECRETS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

	if (base < 0)
		return;
	secretfs_wipe(base);
	close(base);
}

static void
reap(pid_t payload)
{
	int status;

	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0; ) {
		if (pid == netns.pasta && netns.pasta != 0) {	/* without it the network is not the one that was promised */
			out.report.flags |= LAUNCH_REPORT_NETWORK;
			kill(payload, SIGKILL);
		}
		if (pid != payload)
			continue;
		wipe_secrets();
		out.report.exited = (struct init_exited){ .wstatus = status, .finished_at = monotime_wall_ns() };
		tell(LAUNCH_REPORT_EXITED);
		_exit(0);
	}
}

static _Noreturn void
workinit(void)
{
	struct pollfd p[2] = { { .fd = FD_INIT, .events = POLLIN }, { .events = POLLIN } };
	struct signalfd_siginfo si;
	enum init_stage stage;
	struct work_spec spec;
	sigset_t all;
	pid_t pid;
	int r;

	sigfillset(&all);
	check(prctl(PR_SET_NAME, "workinit", 0, 0, 0), INIT_STAGE_FDS);
	check(read_spec(&spec), INIT_STAGE_SPEC);
	check(enter_dir(job.l, spec.work_dir), INIT_STAGE_WORKDIR);
	job.who.secrets = spec.secrets.len > 0;
	r = confine_workload(&job.l->confine, &job.who, &stage);
	check(r, stage);
	if ((job.who.parts & LAUNCH_PART_CARRIER) != 0) {
		check((job.who.parts & LAUNCH_PART_LANDLOCK) == 0 ? 0 : view_landlock(&job.l->confine.view, job.s->show,
		    (job.who.parts & LAUNCH_PART_MOUNT) != 0), INIT_STAGE_LANDLOCK);
		carrier_run();
	}
	if (job.who.secrets)
		check((job.who.parts & LAUNCH_PART_MOUNT) != 0 ? place_secrets(&spec) : -EPERM, INIT_STAGE_SECRETS);
	if ((job.who.parts & LAUNCH_PART_LINKS) != 0)
		check(own_net = openat(FD_PROC, "self/ns/net", O_RDONLY | O_CLOEXEC), INIT_STAGE_NET);
	check(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), INIT_STAGE_FDS);
	check(p[1].fd = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK), INIT_STAGE_FDS);
	pid = spawn();
	close(FD_PROC);
	out.report.started.started_at = monotime_wall_ns();
	tell(LAUNCH_REPORT_STARTED);
	send(FD_INIT, &out, sizeof(out), MSG_NOSIGNAL);
	for (;;) {
		poll(p, 2, -1);
		if (p[0].revents != 0)
			hear(pid);
		while (read(p[1].fd, &si, sizeof(si)) > 0)
			;
		reap(pid);
	}
}

/* What is shared with the launcher is no business of one that will read what the hub sent. */
static void
unshare_first(void)
{
	check(munmap(job.l->confine.first, sizeof(*job.l->confine.first)), INIT_STAGE_NAMESPACES);
}

static int
first(void *ctx)
{
	unshare_first();
	workinit();
}

/* What the clone is first: the launcher's equal, then the runner. */
static _Noreturn void
begin(const struct workinit_fds *fds)
{
	uid_t pool = job.l->ready.pool_count != 0 ? job.who.uid : 0;
	/* Below our own frames: pages that are as fresh as any, and a stack whose bounds nobody needs to be told. */
	char *stack = (char *)__builtin_frame_address(0) - STACK_GAP;
	sigset_t all;
	int pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	check(arrange_fds(fds), INIT_STAGE_FDS);
	check(set_limits(job.l, job.s), INIT_STAGE_LIMITS);
	check(drop_to_runner(pool, job.who.gid), INIT_STAGE_IDS);
	if ((job.who.parts & LAUNCH_PART_USER) != 0)
		check(userns_enter(job.who.uid, job.who.gid), INIT_STAGE_USER);
	if ((job.who.parts & LAUNCH_PART_PID) == 0) {
		unshare_first();
		workinit();
	}
	/* The kernel writes the number before pid 1 runs, which takes the page away from us both. */
	pid = clone(first, stack - (uintptr_t)stack % 16, CLONE_VM | CLONE_PARENT | CLONE_PARENT_SETTID | CLONE_NEWPID | SIGCHLD, NULL,
	    job.l->confine.first);
	check(pid, INIT_STAGE_NAMESPACES);
	_exit(0);
}

/*
 * The one that makes the pid namespace is a runner before it ends: whoever shares its id could stop it. Then it is ended, and with it the
 * start; we wait for nobody without a bound.
 */
static void
await_first(int pidfd, pid_t pid)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	if (poll(&p, 1, FIRST_MAX_MS) == 0) {
		kill(pid, SIGKILL);
		poll(&p, 1, FIRST_MAX_MS);
	}
	close(pidfd);
}

pid_t
workinit_start(const struct launcher *l, const struct launch_start *s, const struct workinit_fds *fds)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	bool first_of = (s->parts & LAUNCH_PART_PID) != 0;
	int pidfd = -1;
	long pid;

	if (fds->cgroup >= 0) {
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (unsigned)fds->cgroup;
	}
	if (first_of) {		/* its end is waited for */
		args.flags |= CLONE_PIDFD;
		args.pidfd = (uint64_t)(uintptr_t)&pidfd;
	}
	*l->confine.first = 0;
	pid = syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0) {
		job.l = l;
		job.s = s;
		job.who = (struct confine_who){ l->ready.pool_count != 0 ? l->ready.pool_first + s->slot : l->uid,
			l->ready.pool_count != 0 ? l->ready.pool_gid : l->gid, s->parts, s->show, &net.rules, &netns, false, s->slot };
		begin(fds);
	}
	if (pid < 0 || !first_of)
		return pid < 0 ? -errno : (pid_t)pid;
	await_first(pidfd, (pid_t)pid);
	if (*l->confine.first == 0)
		return (pid_t)pid;
	waitpid((pid_t)pid, NULL, 0);
	return *l->confine.first;
}
