#include "common/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST	3	/* behind the standard descriptors */
#define KERNEL_SIGNALS	64

static const uint64_t default_action[4];	/* struct sigaction as the kernel has it: SIG_DFL is zero */

int
spawn_set_state(int end, struct rlimit *ret_nofile)
{
	struct rlimit all;
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	if (null < 0 || dup2(null, STDIN_FILENO) < 0)
		return -errno;
	for (int fd = FIRST; fd < end; fd++)
		if (fd != null && dup3(null, fd, O_CLOEXEC) < 0)
			return -errno;
	if (null < FIRST || null >= end)
		close(null);
	/* By system call: the C library hides the two signals it keeps for itself, and what started us may ignore them. */
	for (int sig = 1; sig <= KERNEL_SIGNALS; sig++)
		syscall(SYS_rt_sigaction, sig, default_action, NULL, KERNEL_SIGNALS / 8);
	umask(022);
	if (getrlimit(RLIMIT_NOFILE, ret_nofile) < 0)
		return -errno;
	all = (struct rlimit){ ret_nofile->rlim_max, ret_nofile->rlim_max };
	return setrlimit(RLIMIT_NOFILE, &all) < 0 ? -errno : 0;
}

/* The descriptors lie above their targets: the caller keeps those occupied. */
static _Noreturn void
become(char *const argv[], const int *fds, int n, const struct rlimit *nofile)
{
	sigset_t none;
	int ok = 1;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	for (int i = 0; i < n; i++)
		ok = ok && (fds[i] < 0 || dup2(fds[i], FIRST + i) >= 0);
	if (ok && close_range((unsigned)(FIRST + n), ~0u, 0) == 0 && setrlimit(RLIMIT_NOFILE, nofile) == 0)
		execv(argv[0], argv);
	dprintf(STDERR_FILENO, "<3>cannot run %s: %m\n", argv[0]);
	_exit(1);
}

pid_t
spawn_daemon(char *const argv[], const int *fds, int n, const struct rlimit *nofile)
{
	pid_t pid = fork();

	if (pid == 0)
		become(argv, fds, n, nofile);
	return pid < 0 ? -errno : pid;
}

void
spawn_beside(const char *name, char *path, size_t size)
{
	ssize_t len = readlink("/proc/self/exe", path, size - 1);

	while (len > 0 && path[len - 1] != '/')
		len--;
	len = len > 0 ? len : 0;
	snprintf(path + len, size - (size_t)len, "%s", name);
}
