#include "common/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cgroup.h"

bool
userns_can(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0)
		_exit(0);
	return pid > 0 && waitpid((pid_t)pid, NULL, 0) == pid;
}

int
userns_map_self(uid_t uid, gid_t gid)
{
	char u[48], g[48];
	int r = 0;

	snprintf(u, sizeof(u), "%u %u 1", uid, uid);
	snprintf(g, sizeof(g), "%u %u 1", gid, gid);
	if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)	/* the files are root's otherwise */
		return -errno;
	r = cgroup_write(AT_FDCWD, "/proc/self/setgroups", "deny");
	if (r == 0)
		r = cgroup_write(AT_FDCWD, "/proc/self/gid_map", g);
	return r < 0 ? r : cgroup_write(AT_FDCWD, "/proc/self/uid_map", u);
}
