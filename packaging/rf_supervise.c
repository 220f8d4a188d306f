/*
 * Keeps the jobs running until a signal says stop. What ends is started again after 0.1 s, doubling to 5 s; one that ran
 * for ten seconds starts over with the shortest pause. When the launcher ends, its cgroup is killed and made anew, after a
 * second at most: work never outlives the launcher that knows of it.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "packaging/rf.h"

#define BACKOFF_MIN_MS	100
#define BACKOFF_MAX_MS	5000
#define STABLE_MS	10000
#define STOP_MS		15000	/* then SIGKILL; the launcher gives workloads their grace in this time */

static struct {
	struct loop *loop;
	struct rf_job *jobs;
	size_t njobs;
	struct rf_cgroup *cgroup;
	int dirfd;
	struct loop_timer give_up;
	bool stopping;
} self;

/* For whoever wants to look at or kill one of them: "name pid" a line. */
static void
write_pids(void)
{
	char text[256] = "";
	int n = 0, r;

	for (size_t i = 0; i < self.njobs; i++)
		if (self.jobs[i].pid > 0)
			n += snprintf(text + n, sizeof(text) - (size_t)n, "%s %d\n", self.jobs[i].name, (int)self.jobs[i].pid);
	r = fd_replace_file(self.dirfd, "pids", text, (size_t)n, 0644);
	if (r < 0)
		log_warn("cannot write the list of pids: %s", strerror(-r));
}

static void
pause_then_start(struct rf_job *job)
{
	loop_timer_set_ms(self.loop, &job->again, job->backoff_ms);
	job->backoff_ms = job->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : job->backoff_ms * 2;
}

/* A container may not let us, and mostly has none. */
static void
deny_fuse(void)
{
	int r = self.cgroup->base[0] != '\0' ? rf_cgroup_deny_fuse(self.cgroup) : -ENOENT;

	if (r < 0 && access("/dev/fuse", F_OK) == 0)
		log_warn("the work may open /dev/fuse: no filter for its cgroup (%s)", strerror(-r));
}

static void
start_job(struct rf_job *job)
{
	_cleanup_close_ int procs = -1;
	pid_t pid;
	int r = 0;

	if (job->in_cgroup && self.cgroup->base[0] != '\0')
		r = rf_cgroup_make(self.cgroup, &procs);
	if (r == 0 && job->in_cgroup)
		rf_cgroup_note(self.cgroup, self.dirfd);
	if (r < 0) {
		log_warn("no cgroup for the work (%s): %s", self.cgroup->base, strerror(-r));
		rf_cgroup_remove(self.cgroup);
		self.cgroup->base[0] = '\0';
	}
	if (job->in_cgroup && geteuid() == 0)
		deny_fuse();
	pid = rf_spawn(job, procs);
	if (pid < 0) {
		log_error("cannot start %s: %s", job->name, strerror(-pid));
		pause_then_start(job);
		return;
	}
	job->pid = pid;
	job->since = monotime_now();
	log_info("%s runs, pid %d", job->name, (int)pid);
	write_pids();
}

static void
start_again(struct loop_timer *timer)
{
	start_job(timer->ctx);
}

static void
job_ended(struct rf_job *job, int status)
{
	bool stable = monotime_diff_ms(monotime_now(), job->since) >= STABLE_MS;

	job->pid = 0;
	if (job->in_cgroup)
		rf_cgroup_remove(self.cgroup);
	write_pids();
	if (self.stopping)
		return;
	if (stable)
		job->backoff_ms = BACKOFF_MIN_MS;
	log_warn("%s ended with %s %d, again in %lld ms", job->name, WIFSIGNALED(status) ? "signal" : "exit code",
	    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), (long long)job->backoff_ms);
	pause_then_start(job);
}

static void
signal_all(int signo)
{
	for (size_t i = 0; i < self.njobs; i++) {
		loop_timer_del(self.loop, &self.jobs[i].again);
		if (self.jobs[i].pid > 0)
			kill(self.jobs[i].pid, signo);
	}
}

static void
give_up(struct loop_timer *timer)
{
	log_warn("something does not end, it is killed");
	signal_all(SIGKILL);
}

static bool
none_left(void)
{
	for (size_t i = 0; i < self.njobs; i++)
		if (self.jobs[i].pid > 0)
			return false;
	return true;
}

static void
reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		for (size_t i = 0; i < self.njobs; i++)
			if (self.jobs[i].pid == pid)
				job_ended(&self.jobs[i], status);
}

static void
on_signal(int signo, void *ctx)
{
	if (signo == SIGCHLD) {
		reap();
	} else if (!self.stopping) {
		self.stopping = true;
		signal_all(SIGTERM);
		loop_timer_set_ms(self.loop, &self.give_up, STOP_MS);
	}
	if (self.stopping && none_left())
		loop_stop(self.loop);
}

int
rf_supervise(struct rf_job *jobs, size_t njobs, struct rf_cgroup *cgroup, int dirfd)
{
	sigset_t mask;
	int r = loop_new(&self.loop);

	self.jobs = jobs;
	self.njobs = njobs;
	self.cgroup = cgroup;
	self.dirfd = dirfd;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	sigaddset(&mask, SIGHUP);
	if (r == 0)
		r = loop_signals(self.loop, &mask, on_signal, NULL);
	if (r < 0)
		return r;
	loop_timer_init(&self.give_up, give_up, NULL);
	rf_cgroup_sweep(cgroup, dirfd);
	for (size_t i = 0; i < njobs; i++) {
		jobs[i].backoff_ms = BACKOFF_MIN_MS;
		loop_timer_init(&jobs[i].again, start_again, &jobs[i]);
		start_job(&jobs[i]);
	}
	r = loop_run(self.loop);
	loop_free(self.loop);
	unlinkat(dirfd, "pids", 0);
	unlinkat(dirfd, "cgroup", 0);
	return r;
}
