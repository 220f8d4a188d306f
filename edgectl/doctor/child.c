#include "edgectl/doctor/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"

#define ENV_MAX		16
#define DIRS		"/usr/bin:/bin:/usr/sbin:/sbin"
#define CANNOT_RUN	127

static _Noreturn void
become(const struct child_spec *spec, int out)
{
	const char *env[ENV_MAX + 4] = { "PATH=" DIRS, "LC_ALL=C" };
	int n = 2, null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (getenv("ASAN_OPTIONS") != NULL)
		env[n++] = "ASAN_OPTIONS=detect_leaks=0";
	for (int i = 0; spec->env != NULL && spec->env[i] != NULL && n < ENV_MAX + 3; i++)
		env[n++] = spec->env[i];
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(out, STDOUT_FILENO) < 0 ||
	    (spec->errors_too && dup2(out, STDERR_FILENO) < 0))
		_exit(CANNOT_RUN);
	if (geteuid() == 0 && spec->uid != 0 &&
	    (setgroups(0, NULL) < 0 || setresgid(spec->gid, spec->gid, spec->gid) < 0 ||
	    setresuid(spec->uid, spec->uid, spec->uid) < 0))
		_exit(CANNOT_RUN);
	/* After the change of ids, which would clear it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	execve(spec->argv[0], (char *const *)(uintptr_t)spec->argv, (char *const *)(uintptr_t)env);
	_exit(CANNOT_RUN);
}

void
child_start(struct child *c, const struct child_spec *spec)
{
	int p[2];

	memset(c, 0, sizeof(*c));
	c->fd = c->status = -1;
	if (pipe2(p, O_CLOEXEC) < 0)
		return;
	c->pid = fork();
	if (c->pid == 0)
		become(spec, p[1]);
	close(p[1]);
	if (c->pid < 0) {
		c->pid = 0;
		close(p[0]);
	} else {
		c->fd = p[0];
	}
}

/* What is over the buffer's end is read and forgotten, so that the child can end. */
static void
take_output(struct child *c)
{
	char rest[4096];
	bool room = c->len < CHILD_OUT;
	ssize_t n = room ? read(c->fd, c->out + c->len, CHILD_OUT - c->len) : read(c->fd, rest, sizeof(rest));

	if (n > 0 && room)
		c->len += (size_t)n;
	if (n == 0 || (n < 0 && errno != EINTR)) {
		close(c->fd);
		c->fd = -1;
	}
	c->out[c->len] = '\0';
}

/* Its output has ended, or its time is up. */
static void
reap(struct child *c, bool late)
{
	int status;

	if (late) {
		c->timeout = true;
		kill(c->pid, SIGKILL);
	}
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	while (waitpid(c->pid, &status, 0) < 0)
		if (errno != EINTR)
			return;
	c->status = WIFEXITED(status) && !late && WEXITSTATUS(status) != CANNOT_RUN ? WEXITSTATUS(status) : -1;
	c->pid = 0;
}

static bool
turn(struct child **children, size_t n, int64_t ms)
{
	struct pollfd fds[8];
	nfds_t waiting = 0;

	for (size_t i = 0; i < n && i < 8; i++) {
		if (children[i]->fd >= 0)
			waiting++;
		fds[i] = (struct pollfd){ .fd = children[i]->pid > 0 ? children[i]->fd : -1, .events = POLLIN };
	}
	if (waiting == 0 || ms <= 0)
		return false;
	if (poll(fds, n < 8 ? n : 8, (int)ms) > 0)
		for (size_t i = 0; i < n && i < 8; i++)
			if (fds[i].revents != 0)
				take_output(children[i]);
	return true;
}

void
child_wait(struct child **children, size_t n, monotime_t deadline)
{
	while (turn(children, n, monotime_diff_ms(deadline, monotime_now())))
		;
	for (size_t i = 0; i < n; i++)
		if (children[i]->pid > 0)
			reap(children[i], children[i]->fd >= 0);
}

const char *
child_find(const char *name)
{
	static char path[64];
	static const char *const dirs[] = { "/usr/bin", "/bin", "/usr/sbin", "/sbin" };

	for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
		int n = snprintf(path, sizeof(path), "%s/%s", dirs[i], name);

		if (n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0)
			return path;
	}
	return NULL;
}
