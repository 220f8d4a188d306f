/*
 * What the kernel itself takes for a start in the full sandbox with the machine's network: the same namespaces, ids and mounts as workerd/launcher makes them, in one
 * small process that asks nobody, reads no specification and writes no record. No seccomp, no Landlock, no cgroup. An agent that
 * confines each run so cannot be faster than this. Needs root. Who calls: floor.c; the child never returns.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "bench.h"
#include "confined.h"

#define RUNNER		65499
#define NAMESPACES	(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS)
#define COUNT(list)	(sizeof(list) / sizeof((list)[0]))

static const char *const dirs[] = { "sys", "sys/devices", "sys/devices/system", "proc", "dev", "dev/pts", "dev/edgeward", "var", "run", "run/empty",
	"tmp", "dev/shm", "work" };
static const char *const systems[] = { "usr", "opt", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
static const char *const links[] = { "dev/bus", "dev/ptmx", "dev/fd", "dev/stdin", "dev/stdout", "dev/stderr", "var/tmp", "var/run" };

static void
must(int r)
{
	if (r < 0) {
		perror("confined");
		_exit(126);
	}
}

static void
put(const char *file, const char *text)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

	must(fd);
	must((int)write(fd, text, strlen(text)));
	close(fd);
}

static void
bind_to(const char *from, const char *to)
{
	must(mount(from, to, NULL, MS_BIND | MS_REC, NULL));
}

static void
bind_system(const char *name)
{
	char from[64], link[64];
	struct stat st;
	ssize_t n;

	snprintf(from, sizeof(from), "/%s", name);
	if (lstat(from, &st) < 0)
		return;
	n = S_ISLNK(st.st_mode) ? readlink(from, link, sizeof(link) - 1) : 0;
	link[n > 0 ? n : 0] = '\0';
	if (n > 0) {
		must(symlink(link, name));
		return;
	}
	must(mkdir(name, 0755));
	bind_to(from, name);
}

/* The view of workerd/launcher/view.c, below /proc, which is there on every machine. */
static void
build_view(void)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, .propagation = MS_PRIVATE };
	struct mount_attr rw = { .attr_clr = MOUNT_ATTR_RDONLY };
	char from[32], to[32];

	must(mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=25%"));
	must(chdir("/proc"));
	for (size_t i = 0; i < COUNT(systems); i++)
		bind_system(systems[i]);
	for (size_t i = 0; i < COUNT(dirs); i++)
		must(mkdir(dirs[i], 0755));
	bind_to("/sys/devices/system", "sys/devices/system");
	for (size_t i = 0; i < COUNT(links); i++)
		must(symlink("/proc/self/fd/0", links[i]));
	for (size_t i = 0; i < COUNT(nodes); i++) {
		snprintf(to, sizeof(to), "dev/%s", nodes[i]);
		put(to, "");
	}
	put("run/passwd", "x:x:1:1::/:/bin/sh\n");
	put("run/group", "x:x:1:\n");
	must((int)syscall(SYS_mount_setattr, AT_FDCWD, "/proc", AT_RECURSIVE, &ro, sizeof(ro)));
	for (size_t i = 0; i < 2; i++) {
		bind_to(i == 0 ? "tmp" : "dev/shm", i == 0 ? "tmp" : "dev/shm");
		must((int)syscall(SYS_mount_setattr, AT_FDCWD, i == 0 ? "tmp" : "dev/shm", 0, &rw, sizeof(rw)));
	}
	for (size_t i = 0; i < COUNT(nodes); i++) {
		snprintf(from, sizeof(from), "/dev/%s", nodes[i]);
		snprintf(to, sizeof(to), "dev/%s", nodes[i]);
		bind_to(from, to);
	}
	bind_to("run/passwd", "etc/passwd");
	bind_to("run/group", "etc/group");
	must(mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"));
	must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
	bind_to("tmp", "work");
	must((int)syscall(SYS_pivot_root, ".", "."));
	must(umount2(".", MNT_DETACH));
}

/* Pid 1 of the workload: starts it, waits for it. */
static _Noreturn void
first(char **argv)
{
	int status = 0;
	pid_t pid;

	must(unshare(NAMESPACES));
	build_view();
	for (int cap = 0; prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	pid = vfork();
	if (pid == 0) {
		execvp(argv[0], argv);
		_exit(127);
	}
	must(pid);
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

pid_t
confined_start(int output, char **argv)
{
	char map[32];
	pid_t pid = fork();
	int status = 0;

	if (pid != 0)
		return pid;
	dup2(output, 1);
	must(setresgid(RUNNER, RUNNER, RUNNER));
	must(setresuid(RUNNER, RUNNER, RUNNER));
	must(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	must(unshare(CLONE_NEWUSER));
	snprintf(map, sizeof(map), "%d %d 1", RUNNER, RUNNER);
	put("/proc/self/setgroups", "deny");
	put("/proc/self/gid_map", map);
	put("/proc/self/uid_map", map);
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		first(argv);
	must(pid);
	close(output);
	close(1);
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
