/*
 * A daemon that was taken over: enters that daemon's real confinement, then tries one thing and says what came of it.
 *
 * Usage: implant_X [-o] -s STATEDIR [-t TOKENFILE] -w WORKROOT CASE [PATH]. With -o it stays open, which shows that a case
 * is a real attempt. Prints "confined ABI" (or "open"), "trying CASE", then "done" or "refused ERRNO"; the filter's
 * answer is SIGSYS, which whoever waits sees. Attempts are raw system calls, so that no library asks for something else first.
 * Nothing here harms when it succeeds: signals are signal 0, what is executed is echo.
 */
#include "tests/implant/implant.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#define P(pointer)	((long)(intptr_t)(pointer))

struct attempt {
	const char *name;
	long nr, args[6];
};

static long parent;	/* asked before the filter, which lacks the call */
static struct implant_dirs dirs = { .token = "", .statefd = -1, .rootfd = -1 };

static void
say(const char *what, const char *about)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "%s%s%s\n", what, about[0] != '\0' ? " " : "", about);

	if (write(STDOUT_FILENO, line, (size_t)n) != n)
		_exit(3);
}

static long
call(const struct attempt *a)
{
	long r = syscall(a->nr, a->args[0], a->args[1], a->args[2], a->args[3], a->args[4], a->args[5]);

	return r < 0 ? -errno : r;
}

/* The child of a fork that was not refused has nothing to do. */
static long
call_clone(unsigned long flags)
{
	long r = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);

	if (r == 0)
		_exit(0);
	return r < 0 ? -errno : r;
}

/* To a socket that is not ours; "@name" is abstract. */
static long
unix_socket(const char *path, int bind_it)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	size_t len = strlen(path);
	long fd = syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0 || len >= sizeof(sun.sun_path))
		return fd < 0 ? -errno : -ENAMETOOLONG;
	memcpy(sun.sun_path, path, len);
	if (path[0] == '@')
		sun.sun_path[0] = '\0';
	len += offsetof(struct sockaddr_un, sun_path) + (path[0] != '@');
	return syscall(bind_it ? SYS_bind : SYS_connect, fd, &sun, len) < 0 ? -errno : 0;
}

/* What the daemon does every day: a file in its state directory, written under another name and renamed. */
static long
control(void)
{
	char back[4] = "";
	int fd = openat(dirs.statefd, "implant.tmp", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, "yes", 3) != 3 || fsync(fd) < 0 || pread(fd, back, 3, 0) != 3 || strcmp(back, "yes") != 0)
		return -errno;
	if (renameat(dirs.statefd, "implant.tmp", dirs.statefd, "implant") < 0 || unlinkat(dirs.statefd, "implant", 0) < 0)
		return -errno;
	return close(fd);
}

/* The calls that need nothing but their numbers; -ENOSYS with *known 0 when name is none of them. */
static long
plain(const char *name, const char *path, int *known)
{
	static char *const argv[] = { (char *)"echo", (char *)"done", NULL };
	static char word[8];
	struct iovec here = { word, sizeof(word) }, there = { word, sizeof(word) };
	struct open_how how = { .flags = O_RDONLY };
	const long cwd = AT_FDCWD, rx = PROT_READ | PROT_EXEC, anon = MAP_PRIVATE | MAP_ANONYMOUS;
	const struct attempt all[] = {
		{ "getpid", SYS_getpid, { 0 } },	/* allowed: nothing on the way here is refused */
		{ "execve", SYS_execve, { P("/bin/echo"), P(argv), 0 } },
		{ "execveat", SYS_execveat, { cwd, P("/bin/echo"), P(argv), 0, 0 } },
		{ "clone3", SYS_clone3, { 0, 0 } },
		{ "ptrace", SYS_ptrace, { PTRACE_SEIZE, parent, 0, 0 } },
		{ "process_vm_readv", SYS_process_vm_readv, { parent, P(&here), 1, P(&there), 1, 0 } },
		{ "process_vm_writev", SYS_process_vm_writev, { parent, P(&here), 1, P(&there), 1, 0 } },
		{ "pidfd_open", SYS_pidfd_open, { parent, 0 } },
		{ "kill", SYS_kill, { parent, 0 } },
		{ "tgkill", SYS_tgkill, { parent, parent, 0 } },
		{ "prlimit", SYS_prlimit64, { parent, 0, 0, 0 } },
		{ "setuid", SYS_setuid, { 0 } },
		{ "setresuid", SYS_setresuid, { 0, 0, 0 } },
		{ "setgid", SYS_setgid, { 0 } },
		{ "dumpable", SYS_prctl, { PR_SET_DUMPABLE, 1, 0, 0, 0 } },
		{ "mount", SYS_mount, { P("none"), P("/tmp"), P("tmpfs"), 0, 0 } },
		{ "chroot", SYS_chroot, { P("/tmp") } },
		{ "unshare", SYS_unshare, { CLONE_NEWUSER } },
		{ "mmap", SYS_mmap, { 0, 4096, rx, anon, -1, 0 } },
		{ "mprotect", SYS_mprotect, { P(word) & ~4095L, 4096, rx | PROT_WRITE } },
		{ "io_uring", SYS_io_uring_setup, { 1, 0 } },
		{ "bpf", SYS_bpf, { 0, 0, 0 } },
		{ "keyctl", SYS_keyctl, { 0, -3, 0 } },
		{ "packet", SYS_socket, { AF_PACKET, SOCK_RAW, 0 } },
		{ "netlink", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG } },
		{ "rtnetlink", SYS_socket, { AF_NETLINK, SOCK_RAW, NETLINK_ROUTE } },
		{ "unix-dgram", SYS_socket, { AF_UNIX, SOCK_DGRAM, 0 } },
		{ "unix-stream", SYS_socket, { AF_UNIX, SOCK_STREAM, 0 } },
		{ "inet", SYS_socket, { AF_INET, SOCK_STREAM, 0 } },
		{ "inet6-dgram", SYS_socket, { AF_INET6, SOCK_DGRAM, 0 } },
		{ "inet-raw", SYS_socket, { AF_INET, SOCK_RAW, 1 } },
		{ "vsock", SYS_socket, { AF_VSOCK, SOCK_STREAM, 0 } },
		{ "open", SYS_openat, { cwd, P(path), O_RDONLY } },
		{ "write", SYS_openat, { cwd, P(path), O_WRONLY } },
		{ "create", SYS_openat, { cwd, P(path), O_WRONLY | O_CREAT | O_EXCL, 0600 } },
		{ "from-state", SYS_openat, { dirs.statefd, P(path), O_RDONLY } },
		{ "from-root", SYS_openat, { dirs.rootfd, P(path), O_RDONLY } },
		{ "openat2", SYS_openat2, { cwd, P(path), P(&how), sizeof(how) } },
		{ "list", SYS_openat, { cwd, P(path), O_RDONLY | O_DIRECTORY } },
		{ "remove", SYS_unlinkat, { cwd, P(path), 0 } },
		{ "take", SYS_renameat2, { cwd, P(path), dirs.statefd, P("taken"), 0 } },
		{ "truncate", SYS_truncate, { P(path), 0 } },
		{ "chmod", SYS_fchmodat, { cwd, P(path), 0666 } },
		{ "symlink", SYS_symlinkat, { P(path), dirs.statefd, P("link") } },
		{ "link", SYS_linkat, { cwd, P(path), dirs.statefd, P("link"), 0 } },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(name, all[i].name) == 0)
			return call(&all[i]);
	*known = 0;
	return -ENOSYS;
}

static long
attempt(const char *name, const char *path, int *known)
{
	if (strcmp(name, "control") == 0)
		return control();
	if (strcmp(name, "fork") == 0)
		return call_clone(0);
	if (strcmp(name, "newuser") == 0)
		return call_clone(CLONE_NEWUSER);
	if (strcmp(name, "connect") == 0 || strcmp(name, "bind") == 0)
		return unix_socket(path, name[0] == 'b');
	return plain(name, path, known);
}

int
main(int argc, char **argv)
{
	char abi[12];
	int opt, open_only = 0, known = 1, r;
	const char *path;
	long got;

	while ((opt = getopt(argc, argv, "os:t:w:")) != -1) {
		switch (opt) {
		case 'o': open_only = 1; break;
		case 's': dirs.state = optarg; break;
		case 't': dirs.token = optarg; break;
		case 'w': dirs.root = optarg; break;
		default: return 2;
		}
	}
	if (optind >= argc || dirs.state == NULL || dirs.root == NULL)
		return 2;
	path = optind + 1 < argc ? argv[optind + 1] : "";
	parent = getppid();
	r = implant_enter(&dirs, open_only);
	if (r < 0) {
		say("not confined", strerror(-r));
		return 1;
	}
	snprintf(abi, sizeof(abi), "%d", r);
	say(open_only ? "open" : "confined", open_only ? "" : abi);
	say("trying", argv[optind]);
	got = attempt(argv[optind], path, &known);
	if (known)
		say(got < 0 ? "refused" : "done", got < 0 ? strerrorname_np((int)-got) : "");
	_exit(known ? 0 : 2);
}
