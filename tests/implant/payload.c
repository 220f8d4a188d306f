/*
 * A hostile workload: tries everything its sandbox is to refuse, one line an attempt: "NAME done" or "NAME ERRNO", or the signal
 * that ended the attempt. tests/integration/test_confine.py runs it as a workload, and once outside, where what any user may
 * do succeeds: so the attempts are real. It harms nothing when an attempt succeeds.
 *
 * Usage: payload OUTSIDE_PID [PATH...]: a process outside the sandbox, and paths that must not be reachable.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define P(pointer)	((long)(intptr_t)(pointer))

struct attempt {
	const char *name;
	long nr, args[6];
};

static long outside;
static char word[64];

static void
report(const char *name, long r)
{
	printf("%s %s\n", name, r >= 0 ? "done" : strerrorname_np((int)-r));
	fflush(stdout);
}

/* In a child: an attempt may kill it, or change what later ones find. */
static void
in_child(const char *name, long (*body)(const void *), const void *arg)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		long r = body(arg);

		_exit(r >= 0 ? 0 : (int)-r);
	}
	waitpid(pid, &status, 0);
	if (WIFSIGNALED(status))
		printf("%s SIG%s\n", name, sigabbrev_np(WTERMSIG(status)));
	else
		report(name, -WEXITSTATUS(status));
	fflush(stdout);
}

static long
call(const void *arg)
{
	const struct attempt *a = arg;
	long r = syscall(a->nr, a->args[0], a->args[1], a->args[2], a->args[3], a->args[4], a->args[5]);

	if (r == 0 && (a->nr == SYS_clone || a->nr == SYS_clone3))
		_exit(0);
	return r < 0 ? -errno : r;
}

static long
open_path(const void *path)
{
	return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) < 0 ? -errno : 0;
}

static long
write_path(const void *path)
{
	return open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600) < 0 ? -errno : 0;
}

static long
connect_path(const void *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	size_t len = strlen(path);
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);

	memcpy(sun.sun_path, path, len);
	if (sun.sun_path[0] == '@')
		sun.sun_path[0] = '\0';
	if (connect(fd, (struct sockaddr *)&sun, size) == 0)
		return 0;
	if (errno != EPROTOTYPE)
		return -errno;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);	/* such as an engine's */
	return connect(fd, (struct sockaddr *)&sun, size) < 0 ? -errno : 0;
}

static long
write_number(const void *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, "0", 1) != 1 ? -errno : 0;
}

static long
map_ids(const void *arg)
{
	int fd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, "0 0 1", 5) != 5 ? -errno : 0;
}

static long
join_namespace(const void *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	return fd < 0 || setns(fd, 0) < 0 ? -errno : 0;
}

static long
trace_child(const void *arg)
{
	pid_t pid = fork();
	long r;

	if (pid == 0)
		pause();
	r = ptrace(PTRACE_SEIZE, pid, 0, 0) < 0 ? -errno : 0;
	kill(pid, SIGKILL);
	return r;
}

static long
raise_cap(const void *arg)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const struct __user_cap_data_struct all[2] = { { ~0u, ~0u, ~0u }, { 0, 0, 0 } };

	return syscall(SYS_capset, &head, all) < 0 ? -errno : 0;
}

#ifdef __x86_64__
static long
x32_getpid(const void *arg)
{
	long r;

	__asm__ volatile("syscall" : "=a"(r) : "a"(0x40000000L + SYS_getpid) : "rcx", "r11", "memory");
	return r;
}
#endif

static void
try_calls(void)
{
	struct iovec here = { word, sizeof(word) }, there = { word, sizeof(word) };
	struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
	struct rlimit nothing = { 0, 0 };
	struct sched_param none = { 0 };
	unsigned long all_cpus = ~0ul;
	const struct attempt all[] = {
		{ "getpid", SYS_getpid, { 0 } },
		{ "mount", SYS_mount, { P("none"), P("/tmp"), P("tmpfs"), 0, 0 } },
		{ "remount", SYS_mount, { 0, P("/usr"), 0, 0x1020, 0 } },
		{ "umount", SYS_umount2, { P("/etc/passwd"), 2 } },
		{ "umount-proc", SYS_umount2, { P("/proc"), 2 } },
		{ "pivot_root", SYS_pivot_root, { P("."), P(".") } },
		{ "chroot", SYS_chroot, { P("/tmp") } },
		{ "open_tree", SYS_open_tree, { AT_FDCWD, P("/"), 1 } },
		{ "fsopen", SYS_fsopen, { P("tmpfs"), 0 } },
		{ "mount_setattr", SYS_mount_setattr, { AT_FDCWD, P("/usr"), 0, P(word), 32 } },
		{ "unshare-user", SYS_unshare, { CLONE_NEWUSER } },
		{ "unshare-mount", SYS_unshare, { CLONE_NEWNS } },
		{ "clone-user", SYS_clone, { CLONE_NEWUSER | SIGCHLD } },
		{ "clone3-user", SYS_clone3, { P(&args), sizeof(args) } },
		{ "keyctl", SYS_keyctl, { KEYCTL_GET_KEYRING_ID, KEY_SPEC_USER_KEYRING, 1 } },
		{ "add_key", SYS_add_key, { P("user"), P("edgeward"), P("x"), 1, KEY_SPEC_PROCESS_KEYRING } },
		{ "request_key", SYS_request_key, { P("user"), P("edgeward"), 0, 0 } },
		{ "bpf", SYS_bpf, { 0, 0, 0 } },
		{ "perf", SYS_perf_event_open, { P(word), 0, -1, -1, 0 } },
		{ "io_uring", SYS_io_uring_setup, { 1, 0 } },
		{ "userfaultfd", SYS_userfaultfd, { 1 } },
		{ "init_module", SYS_init_module, { 0, 0, 0 } },
		{ "kexec", SYS_kexec_load, { 0, 0, 0, 0 } },
		{ "reboot", SYS_reboot, { 0, 0, 0, 0 } },
		{ "settimeofday", SYS_settimeofday, { 0, 0 } },
		{ "sethostname", SYS_sethostname, { P("x"), 1 } },
		{ "syslog", SYS_syslog, { 3, P(word), sizeof(word) } },
		{ "by-handle", SYS_open_by_handle_at, { AT_FDCWD, P(word), 0 } },
		{ "prlimit-init", SYS_prlimit64, { 1, RLIMIT_NOFILE, P(&nothing), 0 } },
		{ "affinity-init", SYS_sched_setaffinity, { 1, sizeof(word), P(&all_cpus) } },
		{ "scheduler-init", SYS_sched_setscheduler, { 1, SCHED_IDLE, P(&none) } },
		{ "ptrace-init", SYS_ptrace, { PTRACE_SEIZE, 1, 0, 0 } },
		{ "vm-read-init", SYS_process_vm_readv, { 1, P(&here), 1, P(&there), 1, 0 } },
		{ "ptrace-outside", SYS_ptrace, { PTRACE_SEIZE, outside, 0, 0 } },
		{ "vm-read-outside", SYS_process_vm_readv, { outside, P(&here), 1, P(&there), 1, 0 } },
		{ "kill-outside", SYS_kill, { outside, 0 } },
		{ "pidfd-outside", SYS_pidfd_open, { outside, 0 } },
		{ "setuid", SYS_setuid, { 0 } },
		{ "setgid", SYS_setgid, { 0 } },
		{ "setgroups", SYS_setgroups, { 0, 0 } },
		{ "ambient", SYS_prctl, { PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_NET_RAW, 0, 0 } },
		{ "nice", SYS_setpriority, { 0, 0, -5 } },
		{ "socket-raw", SYS_socket, { AF_INET, SOCK_RAW, 1 } },
		{ "socket-packet", SYS_socket, { AF_PACKET, SOCK_RAW, 0 } },
		{ "socket-vsock", SYS_socket, { AF_VSOCK, SOCK_STREAM, 0 } },
		{ "socket-alg", SYS_socket, { AF_ALG, SOCK_SEQPACKET, 0 } },
		{ "tiocsti", SYS_ioctl, { 0, TIOCSTI, P(word) } },
		{ "mknod-disk", SYS_mknodat, { AT_FDCWD, P("disk"), S_IFBLK | 0600, (long)makedev(8, 0) } },
		{ "mknod-mem", SYS_mknodat, { AT_FDCWD, P("mem"), S_IFCHR | 0600, (long)makedev(1, 1) } },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		in_child(all[i].name, call, &all[i]);
}

int
main(int argc, char **argv)
{
	static const char *const unreadable[] = { "/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/fd", "/proc/1/root/etc",
		"/dev/mem", "/dev/kmsg", "/dev/vda", "/etc/shadow", "/proc/kcore", "/etc/edgeward/edgeward.conf", "/sys/kernel", "/run/systemd",
		"/var/lib", "/root", "/home", "/boot" };
	static const char *const unwritable[] = { "/usr/x", "/etc/x", "/x", "/opt/x", "/bin/x", "/var/x", "/run/x", "/dev/x",
		"/proc/sysrq-trigger", "/proc/sys/kernel/hostname", "/etc/passwd", "/sys/devices/system/cpu/cpu0/online",
		/* out of its cgroup, which is its limits and its end */
		"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/cgroup.subtree_control" };
	char name[600];

	if (argc < 2)
		return 2;
	outside = strtoimax(argv[1], NULL, 10);
	try_calls();
	in_child("uid_map", map_ids, NULL);
	in_child("setns-user", join_namespace, "/proc/1/ns/user");
	in_child("setns-own", join_namespace, "/proc/self/ns/net");
	in_child("capset", raise_cap, NULL);
	in_child("trace-child", trace_child, NULL);
	in_child("oom", write_number, "/proc/self/oom_score_adj");
#ifdef __x86_64__
	in_child("x32", x32_getpid, NULL);
#endif
	for (size_t i = 0; i < sizeof(unreadable) / sizeof(unreadable[0]); i++) {
		snprintf(name, sizeof(name), "read:%s", unreadable[i]);
		in_child(name, open_path, unreadable[i]);
	}
	for (size_t i = 0; i < sizeof(unwritable) / sizeof(unwritable[0]); i++) {
		snprintf(name, sizeof(name), "write:%s", unwritable[i]);
		in_child(name, write_path, unwritable[i]);
	}
	for (int i = 2; i < argc; i++) {
		snprintf(name, sizeof(name), "read:%s", argv[i]);
		in_child(name, open_path, argv[i]);
		snprintf(name, sizeof(name), "connect:%s", argv[i]);
		in_child(name, connect_path, argv[i]);
	}
	return 0;
}
