#include "common/runprog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/drop.h"
#include "common/monotime.h"

#define NOT_RUN	127
#define CPU_S	20
#define POLL_MS	20

static int
become(uid_t uid, gid_t gid)
{
	const struct rlimit none = { 0, 0 }, cpu = { CPU_S, CPU_S };

	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return -errno;
	if (uid == 0)
		return 0;
	if (setrlimit(RLIMIT_FSIZE, &none) < 0 || setrlimit(RLIMIT_CPU, &cpu) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return drop_to_runner(uid, gid);
}

static _Noreturn void
child(const char *const argv[], uid_t uid, gid_t gid, int out)
{
	static char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
	char *const env[] = { path, NULL };
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC), r;
	sigset_t mask;

	sigemptyset(&mask);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	setsid();
	if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || close_range(3, ~0u, 0) < 0 || chdir("/") < 0)
		_exit(NOT_RUN);
	r = become(uid, gid);
	if (r == 0) {
		execve(argv[0], (char *const *)argv, env);
		r = -errno;
	}
	dprintf(1, "cannot run %s: %s\n", argv[0], strerror(-r));
	_exit(NOT_RUN);
}

static bool
has_ended(pid_t pid)
{
	siginfo_t si = { 0 };

	return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) == 0 && si.si_pid == pid;
}

/* Until it has ended and nobody holds its output: 0, -ETIMEDOUT, -EFBIG, -errno. What it leaves behind in its session is killed. */
static int
collect(pid_t pid, int fd, monotime_t end, char *out, size_t size)
{
	bool ended = false, eof = false;
	size_t len = 0;

	while (!ended || !eof) {
		struct pollfd p = { .fd = eof ? -1 : fd, .events = POLLIN };
		ssize_t n;

		if (!monotime_before(monotime_now(), end))
			return -ETIMEDOUT;
		if (!ended && has_ended(pid)) {
			ended = true;
			kill(-pid, SIGKILL);
		}
		if (poll(&p, 1, eof && !ended ? 1 : POLL_MS) <= 0)
			continue;
		n = read(fd, out + len, size - 1 - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		eof = n == 0;
		len += (size_t)n;
		out[len] = '\0';
		if (len == size - 1)
			return -EFBIG;
	}
	return 0;
}

int
run_program(const char *const argv[], uid_t uid, gid_t gid, int64_t ms, char *out, size_t size)
{
	monotime_t end = monotime_add_ms(monotime_now(), ms);
	_cleanup_close_ int rd = -1, wr = -1;
	int fds[2], status, r;
	pid_t pid;

	out[0] = '\0';
	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	rd = fds[0];
	wr = fds[1];
	pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0)
		child(argv, uid, gid, wr);
	close(take_fd(&wr));
	r = collect(pid, rd, end, out, size);
	if (r < 0) {
		kill(-pid, SIGKILL);
		kill(pid, SIGKILL);
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (r < 0)
		return r;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	snprintf(out, size, "%d", WTERMSIG(status));
	return -ECHILD;
}
