/*
 * What the kernel itself takes for a start in the full sandbox with the machine's network: the same namespaces, ids and mounts as workerd/launcher
 * makes them, what all starts have in common once (base.c there), in one small process that asks nobody, reads no specification and writes no
 * record. No seccomp, no Landlock, no cgroup. An agent that confines each run so cannot be faster than this. Needs root. Who calls: floor.c; the
 * child never returns.
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
#define PLACE		"/dev/shm"	/* the work root; its starts work in it */
#define COUNT(list)	(sizeof(list) / sizeof((list)[0]))

static const char *const dirs[] = { "sys", "sys/devices", "sys/devices/system", "proc", "dev", "dev/pts", "dev/edgeward", "var", "var/root", "run", "run/empty",
	"tmp", "dev/shm", "work" };
static const char *const systems[] = { "usr", "opt", "etc", "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
static const char *const links[] = { "dev/bus", "dev/ptmx", "dev/fd", "dev/stdin", "dev/stdout", "dev/stderr" };

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

static void
become_runner(void)
{
	must(setresgid(RUNNER, RUNNER, RUNNER));
	must(setresuid(RUNNER, RUNNER, RUNNER));
}

static void
own_user_namespace(const char *setgroups, const char *gid_map, const char *uid_map)
{
	char map[32];

	must(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
	must(unshare(CLONE_NEWUSER));
	snprintf(map, sizeof(map), "%d %d 1", RUNNER, RUNNER);
	put(setgroups, "deny");
	put(gid_map, map);
	put(uid_map, map);
}

/* What is common, as view_base() of workerd/launcher makes it, below /proc, which is there on every machine. */
static void
build_base(void)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, .propagation = MS_PRIVATE };
	char from[32], to[32];

	must(mount("tmpfs", "/proc", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=1m"));
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
	must((int)syscall(SYS_mount_setattr, AT_FDCWD, "/proc", AT_RECURSIVE, &ro, sizeof(ro)));
	for (size_t i = 0; i < COUNT(nodes); i++) {
		snprintf(from, sizeof(from), "/dev/%s", nodes[i]);
		snprintf(to, sizeof(to), "dev/%s", nodes[i]);
		bind_to(from, to);
	}
	must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
	bind_to(PLACE, "var/root");
	must((int)syscall(SYS_pivot_root, ".", "."));
	must(umount2(".", MNT_DETACH));
}

static int base_user = -1, base_mounts = -1, machine_proc = -1;

static int
open_namespace(pid_t pid, const char *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Once: the namespaces of a process that made them, and waits until we have them. */
static void
make_base(void)
{
	int ready[2], go[2];
	pid_t pid, outer;

	must(pipe2(ready, O_CLOEXEC));
	must(pipe2(go, O_CLOEXEC));
	machine_proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	must(machine_proc);
	outer = fork();
	if (outer == 0) {
		become_runner();
		own_user_namespace("/proc/self/setgroups", "/proc/self/gid_map", "/proc/self/uid_map");
		pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | CLONE_NEWNS | SIGCHLD, NULL, NULL, NULL, NULL);
		close(go[1]);
		if (pid == 0) {
			build_base();
			close(ready[1]);
			(void)!read(go[0], &pid, 1);
			_exit(0);
		}
		must((int)write(ready[1], &pid, sizeof(pid)));
		_exit(0);
	}
	close(ready[1]);
	close(go[0]);
	must(read(ready[0], &pid, sizeof(pid)) == sizeof(pid) ? 0 : -1);
	must((int)read(ready[0], &outer, 1));	/* the end of it: the view is there */
	base_user = open_namespace(pid, "user");
	base_mounts = open_namespace(pid, "mnt");
	must(base_user);
	must(base_mounts);
	close(ready[0]);
	close(go[1]);
	waitpid(outer, NULL, 0);
}

/* What is one start's own, as view_add() does it. */
static void
add_own(void)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY };

	must(chdir("/var/root"));
	must(unshare(NAMESPACES));
	must(mount("tmpfs", "/var", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=25%"));
	must(mkdir("/var/work", 0755));
	must(mkdir("/var/tmp", 01777));
	must(mkdir("/var/shm", 01777));
	must(mkdir("/var/var", 0755));
	must(symlink("/tmp", "/var/var/tmp"));
	must(symlink("/run", "/var/var/run"));
	put("/var/passwd", "x:x:1:1::/:/bin/sh\n");
	put("/var/group", "x:x:1:\n");
	bind_to("/var/tmp", "/tmp");
	bind_to("/var/shm", "/dev/shm");
	must((int)syscall(SYS_mount_setattr, AT_FDCWD, "/var", 0, &ro, sizeof(ro)));
	bind_to("/var/work", "/work");
	bind_to("/var/passwd", "/etc/passwd");
	bind_to("/var/group", "/etc/group");
	must(mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"));
	must(mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL));
	bind_to("/var/var", "/var");
	bind_to(".", "/work");
}

/* Pid 1 of the workload: starts it, waits for it. */
static _Noreturn void
first(char **argv)
{
	int status = 0;
	pid_t pid;

	add_own();
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
	int status = 0;
	pid_t pid;

	if (base_user < 0)
		make_base();
	pid = fork();
	if (pid != 0)
		return pid;
	dup2(output, 1);
	must(fchdir(machine_proc));
	become_runner();
	must(setns(base_user, CLONE_NEWUSER));
	must(setns(base_mounts, CLONE_NEWNS));
	must(fchdir(machine_proc));
	own_user_namespace("self/setgroups", "self/gid_map", "self/uid_map");
	pid = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0)
		first(argv);
	must(pid);
	close(output);
	close(1);
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}
