/*
 * The process that holds one attach session inside a workload (proto/ipc/attach.h): a copy of workinit, so it is in every namespace, in the
 * cgroup and under the filter of the workload, with its ids, limits and no capability. It makes a terminal of the workload's own devpts, or
 * pipes, starts the program as the leader of a session with the payload's Landlock rules, gives the other ends to workerd, and waits.
 *
 * It is the reaper of all that the program starts (PR_SET_CHILD_SUBREAPER): when the program has ended, when workerd says so, or when
 * workerd's end of the channel is gone, nothing that was started in the session is left, jobs in the background included. What runs in the
 * session has its uid and could kill it; then what the session leaves is the workload's, and ends with the workload.
 *
 * What is trusted: the request, which workerd checked; the command is decoded again. Nothing here logs: what fails is said to workerd.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/execpath.h"
#include "common/monotime.h"
#include "proto/ipc/ipc.h"
#include "workerd/launcher/launcher.h"
#include "workerd/launcher/view.h"

#define FD_SESSION	3
#define FD_COMMAND	4
#define HANG_MS		1000	/* from SIGHUP to SIGKILL */
#define KILL_TRIES	300	/* a pause of 1 ms, later 10 ms, after each */
#define TREE_MAX	8192u	/* processes that are looked at in one pass */
#define DEFAULT_SHELL	"/bin/sh"
#define DEFAULT_PATH	"PATH=/usr/local/bin:/usr/bin:/bin"

static struct {
	const struct attached *who;
	struct init_attach req;
	char command[ATTACH_COMMAND_MAX + 1];
	struct attach_command decoded;
	char *argv[ATTACH_ARGS_MAX + 1];
	char term[ATTACH_TERM_SIZE + 8], pwd[4096 + 8];
	const char *env[6];
	int child[3];			/* what the program gets as 0, 1, 2 */
	int ours[3];			/* the other ends: the terminal; or output, errors, input */
	unsigned nours;
	uint32_t made;			/* ATTACH_TTY, ATTACH_INPUT */
	pid_t leader;
	bool exited;
	int wstatus;
} self;

/* ---- saying ---- */

static void
say(uint16_t type, const void *data, uint32_t len, const int *fds, unsigned nfds)
{
	struct ipc_hdr hdr = { .type = type, .version = IPC_VERSION, .len = len, .nfds = (uint8_t)nfds };
	struct iovec iov[2] = { { &hdr, sizeof(hdr) }, { (void *)(uintptr_t)data, len } };
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(3 * sizeof(int))];
	} control;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

	if (nfds > 0) {
		memset(&control, 0, sizeof(control));
		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		control.align.cmsg_level = SOL_SOCKET;
		control.align.cmsg_type = SCM_RIGHTS;
		control.align.cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(&control.align), fds, nfds * sizeof(int));
	}
	/* If workerd is gone the channel says so next. */
	(void)!sendmsg(FD_SESSION, &m, MSG_NOSIGNAL);
}

static _Noreturn void
fail(int err)
{
	const struct init_attached ans = { .error = err };

	say(INIT_EV_ATTACHED, &ans, sizeof(ans), NULL, 0);
	_exit(1);
}

/* ---- what it runs, and in what ---- */

static const char *
variable(const char *name)
{
	size_t n = strlen(name);

	for (char *const *e = self.who->env; *e != NULL; e++)
		if (strncmp(*e, name, n) == 0 && (*e)[n] == '=')
			return *e;
	return NULL;
}

/* cloop.md section 6: PATH, HOME, PWD and TERM, the first two as the workload has them, and none of its secrets. */
static void
make_environment(void)
{
	const char *path = variable("PATH"), *home = variable("HOME");
	unsigned n = 0;

	if (getcwd(self.pwd + 4, sizeof(self.pwd) - 4) == NULL || self.pwd[4] != '/')
		memcpy(self.pwd + 4, "/", 2);
	memcpy(self.pwd, "PWD=", 4);
	snprintf(self.term, sizeof(self.term), "TERM=%s", self.decoded.term);
	self.env[n++] = path != NULL ? path : DEFAULT_PATH;
	if (home != NULL)
		self.env[n++] = home;
	self.env[n++] = self.pwd;
	self.env[n++] = self.term;
	self.env[n] = NULL;
}

static void
read_command(void)
{
	static char shell[] = DEFAULT_SHELL;
	const char *own;
	ssize_t n = pread(FD_COMMAND, self.command, ATTACH_COMMAND_MAX, 0);

	if (n < 0 || attach_command_decode(&self.decoded, self.command, (size_t)n) < 0)
		fail(EBADMSG);
	close(FD_COMMAND);
	for (uint32_t i = 0; i < self.decoded.argc; i++) {
		/* Over the length of the next one, or the byte behind them all. */
		*(char *)(uintptr_t)(self.decoded.argv[i].s + self.decoded.argv[i].len) = '\0';
		self.argv[i] = (char *)(uintptr_t)self.decoded.argv[i].s;
	}
	if (self.decoded.argc > 0)
		return;
	own = variable("SHELL");
	self.argv[0] = own != NULL && own[6] == '/' && access(own + 6, X_OK) == 0 ? (char *)(uintptr_t)(own + 6) : shell;
}

static int
make_terminal(void)
{
	struct winsize size = { .ws_row = self.req.rows != 0 ? self.req.rows : 24, .ws_col = self.req.cols != 0 ? self.req.cols : 80 };
	/* The workload's own, where it has a view of its own; there the names of terminals are its own, too. */
	int fd = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC), unlocked = 0, peer;
	struct termios t;

	if (fd < 0)
		fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TIOCSPTLCK, &unlocked) < 0)
		return -errno;
	peer = ioctl(fd, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (peer < 0 || ioctl(fd, TIOCSWINSZ, &size) < 0 || tcgetattr(peer, &t) < 0)
		return -errno;
	t.c_iflag |= IUTF8;
	if (tcsetattr(peer, TCSANOW, &t) < 0)
		return -errno;
	self.child[0] = self.child[1] = self.child[2] = peer;
	self.ours[0] = fd;
	self.nours = 1;
	self.made = ATTACH_TTY | ATTACH_INPUT;
	return 0;
}

static int
make_pipes(void)
{
	int p[2];

	for (unsigned i = 0; i < 2; i++) {
		if (pipe2(p, O_CLOEXEC) < 0)
			return -errno;
		self.ours[i] = p[0];
		self.child[i + 1] = p[1];
	}
	self.nours = 2;
	self.child[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if ((self.req.flags & ATTACH_INPUT) != 0) {
		if (pipe2(p, O_CLOEXEC) < 0)
			return -errno;
		cleanup_close(&self.child[0]);
		self.child[0] = p[0];
		self.ours[self.nours++] = p[1];
		self.made = ATTACH_INPUT;
	}
	return self.child[0] < 0 ? -errno : 0;
}

/* In the program's process, which shares our memory until it runs the program. */
static int
become_leader(void)
{
	const struct attached *w = self.who;
	sigset_t none;
	int r;

	sigemptyset(&none);
	if (setsid() < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return -errno;
	if ((self.made & ATTACH_TTY) != 0 && ioctl(self.child[0], TIOCSCTTY, 0) < 0)
		return -errno;
	for (int i = 0; i < 3; i++)
		if (dup2(self.child[i], i) < 0)
			return -errno;
	if (close_range(3, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
		return -errno;
	if ((w->parts & LAUNCH_PART_LANDLOCK) != 0 &&
	    (r = view_landlock(w->view, w->show, (w->parts & LAUNCH_PART_MOUNT) != 0)) < 0)
		return r;
	if (sigprocmask(SIG_SETMASK, &none, NULL) < 0)
		return -errno;
	return execpath(self.argv, (char **)(uintptr_t)self.env);
}

static void
start(void)
{
	static volatile int failed;
	pid_t pid;

	if ((self.req.flags & (ATTACH_TTY | ATTACH_INPUT)) != (ATTACH_TTY | ATTACH_INPUT) || make_terminal() < 0) {
		int r = make_pipes();

		if (r < 0)
			fail(-r);
	}
	pid = vfork();
	if (pid == 0) {
		failed = -become_leader();
		_exit(127);
	}
	if (pid < 0)
		fail(errno);
	self.leader = pid;
	if (failed != 0)
		fail(failed);
	for (int i = 0; i < 3; i++)
		if (i == 0 || self.child[i] != self.child[0])
			close(self.child[i]);
}

/* ---- the end ---- */

struct process {
	pid_t pid, parent;
	bool ours;
};

/* Parent of a process that is more than a zombie; -1 = it is gone. */
static pid_t
parent_of(int proc, const char *name)
{
	char path[32], text[512], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%.20s/stat", name);
	fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	cleanup_close(&fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	p = strrchr(text, ')');		/* its name may hold anything */
	if (p == NULL || strlen(p) < 5 || p[2] == 'Z' || p[2] == 'X')
		return -1;
	n = 0;
	for (p += 4; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (*p - '0');
	return (pid_t)n;
}

static size_t
list_processes(struct process *list)
{
	DIR *d = opendir("/proc");
	const struct dirent *e;
	size_t n = 0;

	while (d != NULL && n < TREE_MAX && (e = readdir(d)) != NULL) {
		pid_t pid = 0, parent;

		for (const char *p = e->d_name; *p >= '0' && *p <= '9'; p++)
			pid = pid * 10 + (*p - '0');
		if (e->d_name[0] < '0' || e->d_name[0] > '9' || (parent = parent_of(dirfd(d), e->d_name)) < 0)
			continue;
		list[n++] = (struct process){ pid, parent, false };
	}
	if (d != NULL)
		closedir(d);
	return n;
}

/* Sends it to all that descends from us; how many there were. Without a /proc that counts as we do: to the leader's group. */
static size_t
signal_tree(int signo)
{
	static struct process list[TREE_MAX];
	const uint32_t parts = self.who->parts;
	size_t n, hit = 0;
	bool more = true;

	if ((parts & LAUNCH_PART_PID) != 0 && (parts & LAUNCH_PART_PROC) == 0)
		return kill(-self.leader, signo) == 0;
	n = list_processes(list);
	while (more) {
		more = false;
		for (size_t i = 0; i < n; i++) {
			bool ours = list[i].parent == getpid();

			for (size_t j = 0; j < n && !ours && !list[i].ours; j++)
				ours = list[j].ours && list[j].pid == list[i].parent;
			if (ours && !list[i].ours)
				list[i].ours = more = true;
		}
	}
	for (size_t i = 0; i < n; i++)
		if (list[i].ours && kill(list[i].pid, signo) == 0)
			hit++;
	return hit;
}

/* False: there is no child any more. */
static bool
reap(void)
{
	int wstatus;
	pid_t pid;

	while ((pid = waitpid(-1, &wstatus, WNOHANG)) > 0)
		if (pid == self.leader) {
			self.exited = true;
			self.wstatus = wstatus;
		}
	return pid == 0;
}

static void
kill_tree(void)
{
	for (int i = 0; i < KILL_TRIES && reap(); i++) {
		signal_tree(SIGKILL);
		if (!reap())
			return;
		poll(NULL, 0, i < 50 ? 1 : 10);
	}
}

/* "Hang up": more than the kernel's, which tells the terminal's foreground alone. */
static monotime_t
hang_up(monotime_t deadline)
{
	if (deadline.ns != MONOTIME_NEVER.ns)
		return deadline;
	signal_tree(SIGHUP);
	signal_tree(SIGCONT);
	return monotime_add_ms(monotime_now(), HANG_MS);
}

static void
wait_for_end(int signals)
{
	struct pollfd p[2] = { { .fd = FD_SESSION, .events = POLLIN }, { .fd = signals, .events = POLLIN } };
	monotime_t deadline = MONOTIME_NEVER;

	while (reap() && !self.exited && monotime_before(monotime_now(), deadline)) {
		struct signalfd_siginfo si;
		struct ipc_hdr hdr;
		ssize_t n;
		int64_t left = deadline.ns == MONOTIME_NEVER.ns ? -1 : monotime_diff_ms(deadline, monotime_now()) + 1;

		poll(p, 2, (int)left);
		while (read(signals, &si, sizeof(si)) > 0)
			;
		if (p[0].revents == 0)
			continue;
		n = recv(FD_SESSION, &hdr, sizeof(hdr), MSG_DONTWAIT);
		if (n == 0 || (n < 0 && errno != EAGAIN))
			p[0].fd = -1;
		if (p[0].fd < 0 || (n == (ssize_t)sizeof(hdr) && hdr.type == INIT_EV_ATTACH_CLOSE))
			deadline = hang_up(deadline);
	}
}

_Noreturn void
attached_run(const struct attached *who, const struct init_attach *req, int session, int command)
{
	struct init_attach_exited exited = { 0 };
	struct init_attached ans = { 0 };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), signals;
	sigset_t child;

	self.who = who;
	self.req = *req;
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	/* Nothing of the workload's: its output ends without us. */
	if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0 || dup3(session, FD_SESSION, O_CLOEXEC) < 0 ||
	    dup3(command, FD_COMMAND, O_CLOEXEC) < 0 || close_range(FD_COMMAND + 1, ~0u, 0) < 0)
		_exit(1);
	signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
	if (signals < 0 || prctl(PR_SET_NAME, "attach", 0, 0, 0) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		fail(errno);
	read_command();
	make_environment();
	start();
	ans.flags = self.made;
	say(INIT_EV_ATTACHED, &ans, sizeof(ans), self.ours, self.nours);
	for (unsigned i = 0; i < self.nours; i++)
		close(self.ours[i]);
	wait_for_end(signals);
	kill_tree();
	exited.wstatus = self.wstatus;
	if (self.exited)
		say(INIT_EV_ATTACH_EXITED, &exited, sizeof(exited), NULL, 0);
	_exit(0);
}
