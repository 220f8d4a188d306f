/*
 * The child's side of a start, from fork to exec, in one order: cgroup, descriptors, identity, signals. What the program
 * gets is decided here and nothing is left to inheritance but the environment (connectd reads the proxy variables).
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "common/drop.h"
#include "common/log.h"
#include "packaging/rf.h"

#define LISTENER	3	/* where LISTEN_FDS says the first one is */

static void
must(int r, const struct rf_job *job, const char *what)
{
	if (r >= 0)
		return;
	log_error("%s: %s: %s", job->name, what, strerror(errno));
	_exit(1);
}

/* 0 is /dev/null, 1 and 2 our stderr, 3 the listener. */
static void
set_descriptors(const struct rf_job *job)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	must(null, job, "/dev/null");
	must(dup2(null, STDIN_FILENO), job, "descriptor 0");
	must(dup2(STDERR_FILENO, STDOUT_FILENO), job, "descriptor 1");
	if (job->listener == LISTENER)
		must(fcntl(LISTENER, F_SETFD, 0), job, "descriptor 3");
	else
		must(dup2(job->listener, LISTENER), job, "descriptor 3");
	must(close_range(LISTENER + 1, ~0u, CLOSE_RANGE_CLOEXEC), job, "other descriptors");
}

static void
trim_bounding(const struct rf_job *job)
{
	for (cap_value_t cap = 0; CAP_IS_SUPPORTED(cap); cap++) {
		bool kept = false;

		for (size_t i = 0; i < job->ncaps; i++)
			kept = kept || job->caps[i] == cap;
		if (!kept)
			must(cap_drop_bound(cap), job, "bounding set");
	}
}

/* Permitted, effective and inheritable, so that they can be ambient and survive the exec under another uid. */
static void
keep_ambient(const struct rf_job *job)
{
	static const cap_flag_t flags[] = { CAP_PERMITTED, CAP_EFFECTIVE, CAP_INHERITABLE };
	cap_t caps = cap_init();

	must(caps != NULL ? 0 : -1, job, "capabilities");
	for (size_t i = 0; job->ncaps > 0 && i < sizeof(flags) / sizeof(flags[0]); i++)
		must(cap_set_flag(caps, flags[i], (int)job->ncaps, job->caps, CAP_SET), job, "capabilities");
	must(cap_set_proc(caps), job, "capabilities");
	cap_free(caps);
	for (size_t i = 0; i < job->ncaps; i++)
		must(cap_set_ambient(job->caps[i], CAP_SET), job, "ambient capabilities");
}

/* As root only. A process that stays root needs no ambient set: exec gives it what the bounding set has. */
static void
become(const struct rf_job *job)
{
	trim_bounding(job);
	must(setgroups(0, NULL), job, "groups");
	if (job->uid != 0) {
		must(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), job, "capabilities");
		must(setresgid(job->uid, job->uid, job->uid), job, "gid");
		must(setresuid(job->uid, job->uid, job->uid), job, "uid");
		keep_ambient(job);
	}
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), job, "no_new_privs");
}

static void
set_environment(void)
{
	static const char *const ours[] = { "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDNAMES" };
	char pid[16];

	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		unsetenv(ours[i]);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("LISTEN_PID", pid, 1);
	setenv("LISTEN_FDS", "1", 1);
}

_Noreturn static void
child(const struct rf_job *job, int procs_fd, pid_t parent)
{
	sigset_t none;

	sigemptyset(&none);
	if (procs_fd >= 0)
		must((int)write(procs_fd, "0", 1), job, "its cgroup");
	set_descriptors(job);
	must(setsid(), job, "session");
	must(chdir("/"), job, "/");
	/* A container may not be allowed to: then it has this machine's, where its filter gives it nothing to do either. */
	if (job->own_net && geteuid() == 0 && unshare(CLONE_NEWNET) < 0)
		log_warn("%s: no network namespace of its own: %s", job->name, strerror(errno));
	if (geteuid() == 0)
		become(job);
	/* After the change of uid, which clears it: whoever ends us ends them. */
	must(prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0), job, "parent death signal");
	if (getppid() != parent)
		_exit(1);
	set_environment();
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execv(job->path, (char *const *)job->argv);
	must(-1, job, job->path);
	_exit(1);
}

pid_t
rf_spawn(const struct rf_job *job, int procs_fd)
{
	pid_t parent = getpid(), pid = fork();

	if (pid == 0)
		child(job, procs_fd, parent);
	return pid < 0 ? -errno : pid;
}
