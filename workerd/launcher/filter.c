/*
 * A workload may be any program, so this is a list of what is refused, not of what is allowed: calls that change mounts and
 * namespaces, that reach into the kernel or into other processes, and families of sockets nobody at the edge uses. It is the
 * second wall: a workload has no capability anyway. Refused calls fail as they do on a kernel without them, so that programs
 * fall back; only system calls of a foreign architecture (x32) kill.
 *
 * The kernel compiles a filter at every installation, so what the launcher can do without itself is installed in the launcher,
 * once, and inherited; the rest is compiled to a program at start and installed by each workinit.
 */
#include "workerd/launcher/filter.h"

#include <errno.h>
#include <linux/net.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/sandbox.h"

struct row {
	enum filter_kind kind;
	int err;
	struct sandbox_rule rule;
};

#define NO(call)		{ FILTER_INHERITED, EPERM, { .nr = SCMP_SYS(call) } }
#define LACKS(call)		{ FILTER_INHERITED, ENOSYS, { .nr = SCMP_SYS(call) } }
#define LATE(call)		{ FILTER_WORKLOAD, EPERM, { .nr = SCMP_SYS(call) } }
#define SHARED(call)		{ FILTER_WORKLOAD_SHARED, EPERM, { .nr = SCMP_SYS(call) } }
/* Only the low half of an ioctl's number counts, and so must the comparison. */
#define NO_IOCTL(n)		{ FILTER_INHERITED, EPERM, { SCMP_SYS(ioctl), 1, { SANDBOX_MASK(1, 0xffffffffu, n) } } }
#define NO_SOCKETS(call, af)	{ FILTER_INHERITED, EAFNOSUPPORT, { SCMP_SYS(call), 1, { SANDBOX_MASK(0, 0xffffffffu, af) } } }
#define NO_FAMILY(af)		NO_SOCKETS(socket, af), NO_SOCKETS(socketpair, af)
/* 32-bit x86's one call for all of them: its family lies in memory, where a filter cannot look. n as in linux/net.h. */
#define NO_SOCKETCALL(n)	{ FILTER_INHERITED, EAFNOSUPPORT, { SCMP_SYS(socketcall), 1, { SANDBOX_MASK(0, 0xffffffffu, n) } } }
/* Of calls whose first argument is a process: an int. */
#define NO_FIRST(call)		{ FILTER_INHERITED, EPERM, { SCMP_SYS(call), 1, { SANDBOX_MASK(0, 0xffffffffu, 1) } } }
#define NO_FLAG(call, flag)	{ FILTER_WORKLOAD, EPERM, { SCMP_SYS(call), 1, { SANDBOX_MASK(0, flag, flag) } } }

static const struct row rows[] = {
	/* the kernel itself: code, devices, its log, the clock */
	NO(bpf), NO(perf_event_open), NO(kexec_load), NO(kexec_file_load), NO(init_module), NO(finit_module), NO(delete_module),
	NO(reboot), NO(swapon), NO(swapoff), NO(acct), NO(quotactl), NO(quotactl_fd), NO(syslog), NO(settimeofday),
	NO(clock_settime), NO(clock_settime64), NO(stime), NO(iopl), NO(ioperm), NO(vm86), NO(vm86old), NO(uselib), NO(nfsservctl),
	NO(vhangup), NO(sysfs), NO(ustat), NO(lookup_dcookie),
	/* keys: the kernel's keyrings are not separated by namespaces */
	NO(add_key), NO(keyctl), NO(request_key),
	/* files by number, not by path: no view holds them */
	NO(open_by_handle_at), NO(fanotify_init),
	/* where kernels were broken most, and what goes past a filter; programs fall back */
	NO(userfaultfd), LACKS(io_uring_setup), LACKS(io_uring_enter), LACKS(io_uring_register),
	/* limits and scheduling of process 1, which is workinit and has the payload's uid; that it is not dumpable does not count for these */
	NO_FIRST(prlimit64), NO_FIRST(sched_setaffinity), NO_FIRST(sched_setattr), NO_FIRST(sched_setparam), NO_FIRST(sched_setscheduler),
	/* keystrokes into a terminal that is ours */
	NO_IOCTL(TIOCSTI), NO_IOCTL(TIOCLINUX),
	/* sockets: to the hypervisor, and protocols whose modules would be loaded for it */
	NO_FAMILY(AF_VSOCK), NO_FAMILY(AF_ALG), NO_FAMILY(AF_AX25), NO_FAMILY(AF_IPX), NO_FAMILY(AF_APPLETALK), NO_FAMILY(AF_NETROM),
	NO_FAMILY(AF_X25), NO_FAMILY(AF_ROSE), NO_FAMILY(AF_DECnet), NO_FAMILY(AF_KEY), NO_FAMILY(AF_RDS), NO_FAMILY(AF_PPPOX),
	NO_FAMILY(AF_LLC), NO_FAMILY(AF_TIPC), NO_FAMILY(AF_RXRPC), NO_FAMILY(AF_PHONET), NO_FAMILY(AF_IEEE802154), NO_FAMILY(AF_CAIF),
	NO_FAMILY(AF_NFC), NO_FAMILY(AF_KCM), NO_FAMILY(AF_QIPCRTR), NO_FAMILY(AF_SMC), NO_FAMILY(AF_XDP), NO_FAMILY(AF_ATMPVC),
	NO_FAMILY(AF_ATMSVC), NO_FAMILY(AF_ISDN), NO_FAMILY(AF_MCTP),
	NO_SOCKETCALL(SYS_SOCKET), NO_SOCKETCALL(SYS_SOCKETPAIR),

	/* mounts and roots, by the old calls and the new */
	LATE(mount), LATE(umount), LATE(umount2), LATE(pivot_root), LATE(chroot), LATE(open_tree), LATE(move_mount), LATE(fsopen),
	LATE(fsconfig), LATE(fsmount), LATE(fspick), LATE(mount_setattr),
	/* namespaces: in one of its own a program has every capability, and most of the kernel to try them on */
	LATE(setns), NO_FLAG(unshare, CLONE_NEWUSER), NO_FLAG(unshare, CLONE_NEWNS), NO_FLAG(unshare, CLONE_NEWPID),
	NO_FLAG(unshare, CLONE_NEWIPC), NO_FLAG(unshare, CLONE_NEWUTS), NO_FLAG(unshare, CLONE_NEWNET), NO_FLAG(unshare, CLONE_NEWCGROUP),
	NO_FLAG(unshare, CLONE_NEWTIME), NO_FLAG(clone, CLONE_NEWUSER), NO_FLAG(clone, CLONE_NEWNS), NO_FLAG(clone, CLONE_NEWPID),
	NO_FLAG(clone, CLONE_NEWIPC), NO_FLAG(clone, CLONE_NEWUTS), NO_FLAG(clone, CLONE_NEWNET), NO_FLAG(clone, CLONE_NEWCGROUP),
	/* its flags lie in memory, where a filter cannot look; without it the C library uses clone */
	{ FILTER_WORKLOAD, ENOSYS, { .nr = SCMP_SYS(clone3) } },

	/* other processes: with a pid namespace there are none but its own, which debuggers and leak checkers may trace */
	SHARED(ptrace), SHARED(process_vm_readv), SHARED(process_vm_writev), SHARED(kcmp), SHARED(pidfd_getfd),
	SHARED(process_madvise), SHARED(migrate_pages), SHARED(move_pages),
};

static bool
holds(enum filter_kind program, enum filter_kind row)
{
	return row == program || (program == FILTER_WORKLOAD_SHARED && row == FILTER_WORKLOAD);
}

/* The 32-bit programs such a machine runs, too. What is not added is killed: x32, and on others everything foreign. */
static int
add_arch(scmp_filter_ctx ctx, uint32_t arch)
{
	uint32_t sibling = arch == SCMP_ARCH_X86_64 ? SCMP_ARCH_X86 : arch == SCMP_ARCH_AARCH64 ? SCMP_ARCH_ARM : 0;
	int r = 0;

	if (arch != seccomp_arch_native()) {
		r = seccomp_arch_add(ctx, arch);
		if (r == 0)
			r = seccomp_arch_remove(ctx, SCMP_ARCH_NATIVE);
	}
	return r < 0 || sibling == 0 ? r : seccomp_arch_add(ctx, sibling);
}

static int
add_rows(scmp_filter_ctx ctx, enum filter_kind kind)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct sandbox_rule *rule = &rows[i].rule;
		int r = !holds(kind, rows[i].kind) ? 0 : seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint32_t)rows[i].err), rule->nr,
		    rule->nargs, rule->args);

		if (r < 0 && r != -EDOM && r != -EEXIST)	/* EDOM: no architecture here has it */
			return r;
	}
	return 0;
}

static int
export(scmp_filter_ctx ctx, struct sock_fprog *ret_prog)
{
	_cleanup_close_ int fd = memfd_create("filter", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : seccomp_export_bpf(ctx, fd);
	off_t size = r < 0 ? 0 : lseek(fd, 0, SEEK_END);
	struct sock_filter *code = size > 0 ? malloc((size_t)size) : NULL;

	if (r < 0 || code == NULL)
		return r < 0 ? r : -ENOMEM;
	if (pread(fd, code, (size_t)size, 0) != size) {
		free(code);
		return -EIO;
	}
	*ret_prog = (struct sock_fprog){ (unsigned short)((size_t)size / sizeof(*code)), code };
	return 0;
}

int
filter_build(enum filter_kind kind, uint32_t arch, struct sock_fprog *ret_prog)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r = ctx != NULL ? add_arch(ctx, arch) : -ENOMEM;

	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = add_rows(ctx, kind);
	if (r == 0)
		r = export(ctx, ret_prog);
	if (ctx != NULL)
		seccomp_release(ctx);
	return r;
}

int
filter_install(const struct sock_fprog *prog)
{
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, prog, 0, 0) < 0 ? -errno : 0;
}
