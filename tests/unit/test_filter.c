/*
 * The workloads' filter, run by a small interpreter of BPF: every program of every architecture we are built for, whatever this
 * machine is. What the kernel makes of it, tests/integration/test_confine.py shows.
 */
#include <errno.h>
#include <linux/net.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "tests/unit/unit.h"
#include "workerd/launcher/filter.h"

#define ALLOW		SECCOMP_RET_ALLOW
#define REFUSE(err)	(SECCOMP_RET_ERRNO | (err))

static uint32_t
load(const struct seccomp_data *data, uint32_t offset)
{
	uint32_t v;

	assert_true(offset % 4 == 0 && offset <= sizeof(*data) - sizeof(v));
	memcpy(&v, (const char *)data + offset, sizeof(v));
	return v;
}

static uint32_t
run(const struct sock_fprog *prog, const struct seccomp_data *data)
{
	uint32_t a = 0;

	for (unsigned pc = 0; pc < prog->len; pc++) {
		const struct sock_filter *i = &prog->filter[pc];

		switch (i->code) {
		case BPF_LD | BPF_W | BPF_ABS: a = load(data, i->k); break;
		case BPF_ALU | BPF_AND | BPF_K: a &= i->k; break;
		case BPF_JMP | BPF_JA: pc += i->k; break;
		case BPF_JMP | BPF_JEQ | BPF_K: pc += a == i->k ? i->jt : i->jf; break;
		case BPF_JMP | BPF_JGT | BPF_K: pc += a > i->k ? i->jt : i->jf; break;
		case BPF_JMP | BPF_JGE | BPF_K: pc += a >= i->k ? i->jt : i->jf; break;
		case BPF_JMP | BPF_JSET | BPF_K: pc += (a & i->k) != 0 ? i->jt : i->jf; break;
		case BPF_RET | BPF_K: return i->k;
		default: fail_msg("instruction %#x", i->code);
		}
	}
	fail_msg("the program has no end");
	return 0;
}

struct expect {
	const char *call;
	uint64_t args[2];
	uint32_t inherited, workload, shared;
};

static const struct expect expected[] = {
	/* what programs live on */
	{ "read", { 0 }, ALLOW, ALLOW, ALLOW }, { "openat", { 0 }, ALLOW, ALLOW, ALLOW }, { "execve", { 0 }, ALLOW, ALLOW, ALLOW },
	{ "clone", { 17 }, ALLOW, ALLOW, ALLOW }, { "clone", { CLONE_VM | CLONE_THREAD | CLONE_SETTLS }, ALLOW, ALLOW, ALLOW },
	{ "unshare", { CLONE_FILES | CLONE_FS }, ALLOW, ALLOW, ALLOW }, { "kill", { 0 }, ALLOW, ALLOW, ALLOW },
	{ "prctl", { 0 }, ALLOW, ALLOW, ALLOW }, { "seccomp", { 0 }, ALLOW, ALLOW, ALLOW },
	{ "landlock_restrict_self", { 0 }, ALLOW, ALLOW, ALLOW }, { "personality", { 0 }, ALLOW, ALLOW, ALLOW },
	{ "socket", { AF_UNIX }, ALLOW, ALLOW, ALLOW }, { "socket", { AF_INET6 }, ALLOW, ALLOW, ALLOW },
	{ "socket", { AF_NETLINK }, ALLOW, ALLOW, ALLOW }, { "socket", { AF_CAN }, ALLOW, ALLOW, ALLOW },
	{ "ioctl", { 0, TIOCGWINSZ }, ALLOW, ALLOW, ALLOW },
	/* what the launcher does without */
	{ "bpf", { 0 }, REFUSE(EPERM), ALLOW, ALLOW }, { "perf_event_open", { 0 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "keyctl", { 0 }, REFUSE(EPERM), ALLOW, ALLOW }, { "add_key", { 0 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "request_key", { 0 }, REFUSE(EPERM), ALLOW, ALLOW }, { "open_by_handle_at", { 0 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "syslog", { 0 }, REFUSE(EPERM), ALLOW, ALLOW }, { "kexec_load", { 0 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "finit_module", { 0 }, REFUSE(EPERM), ALLOW, ALLOW }, { "userfaultfd", { 0 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "io_uring_setup", { 0 }, REFUSE(ENOSYS), ALLOW, ALLOW }, { "clock_settime", { 0 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "socket", { AF_VSOCK }, REFUSE(EAFNOSUPPORT), ALLOW, ALLOW }, { "socket", { AF_ALG }, REFUSE(EAFNOSUPPORT), ALLOW, ALLOW },
	{ "socket", { AF_ATMPVC }, REFUSE(EAFNOSUPPORT), ALLOW, ALLOW }, { "socket", { AF_MCTP }, REFUSE(EAFNOSUPPORT), ALLOW, ALLOW },
	{ "prlimit64", { 0 }, ALLOW, ALLOW, ALLOW }, { "prlimit64", { 1 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "prlimit64", { 11 }, ALLOW, ALLOW, ALLOW }, { "sched_setscheduler", { 1 }, REFUSE(EPERM), ALLOW, ALLOW },
	{ "prlimit64", { 1ull << 32 | 1 }, REFUSE(EPERM), ALLOW, ALLOW },
	/* the upper half of a register does not hide the number */
	{ "socket", { 1ull << 32 | AF_VSOCK }, REFUSE(EAFNOSUPPORT), ALLOW, ALLOW },
	{ "socketpair", { AF_UNIX }, ALLOW, ALLOW, ALLOW }, { "socketpair", { AF_TIPC }, REFUSE(EAFNOSUPPORT), ALLOW, ALLOW },
	{ "ioctl", { 0, TIOCSTI }, REFUSE(EPERM), ALLOW, ALLOW }, { "ioctl", { 0, 1ull << 32 | TIOCSTI }, REFUSE(EPERM), ALLOW, ALLOW },
	/* what only the start of a workload needs */
	{ "mount", { 0 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) }, { "umount2", { 0 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	{ "pivot_root", { 0 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) }, { "chroot", { 0 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	{ "move_mount", { 0 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) }, { "mount_setattr", { 0 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	{ "setns", { 0 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) }, { "clone3", { 0 }, ALLOW, REFUSE(ENOSYS), REFUSE(ENOSYS) },
	{ "unshare", { CLONE_NEWUSER }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	{ "unshare", { CLONE_NEWUSER | CLONE_FILES | CLONE_NEWNS }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	{ "unshare", { CLONE_NEWTIME }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	{ "clone", { CLONE_NEWUSER | 17 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	{ "clone", { CLONE_NEWNET | 17 }, ALLOW, REFUSE(EPERM), REFUSE(EPERM) },
	/* other processes, where there are any */
	{ "ptrace", { 0 }, ALLOW, ALLOW, REFUSE(EPERM) }, { "process_vm_readv", { 0 }, ALLOW, ALLOW, REFUSE(EPERM) },
	{ "pidfd_getfd", { 0 }, ALLOW, ALLOW, REFUSE(EPERM) }, { "kcmp", { 0 }, ALLOW, ALLOW, REFUSE(EPERM) },
};

static void
check_arch(const struct sock_fprog progs[3], uint32_t arch)
{
	size_t calls = 0;

	for (size_t i = 0; i < COUNT(expected); i++) {
		const struct expect *e = &expected[i];
		const uint32_t want[] = { e->inherited, e->workload, e->shared };
		int nr = seccomp_syscall_resolve_name_arch(arch, e->call);
		struct seccomp_data data = { .nr = nr, .arch = arch, .args = { e->args[0], e->args[1] } };

		assert_int_not_equal(nr, __NR_SCMP_ERROR);
		if (nr < 0)	/* this architecture reaches it in another way */
			continue;
		calls++;
		for (int kind = 0; kind < 3; kind++) {
			uint32_t got = run(&progs[kind], &data);

			if (got != want[kind])
				fail_msg("%s(%#llx, %#llx), program %d, architecture %#x: %#x, expected %#x", e->call,
				    (unsigned long long)e->args[0], (unsigned long long)e->args[1], kind, arch, got, want[kind]);
		}
	}
	assert_true(calls > 30);
}

/* 32-bit x86 by one call: its families cannot be seen, so it makes no sockets; what is done with one that is there it may. */
static void
check_socketcall(const struct sock_fprog *inherited)
{
	static const uint32_t calls[][2] = { { SYS_SOCKET, REFUSE(EAFNOSUPPORT) }, { SYS_SOCKETPAIR, REFUSE(EAFNOSUPPORT) },
		{ SYS_CONNECT, ALLOW }, { SYS_SEND, ALLOW }, { SYS_GETSOCKOPT, ALLOW } };
	struct seccomp_data data = { .nr = 102, .arch = SCMP_ARCH_X86 };

	for (size_t i = 0; i < COUNT(calls); i++) {
		data.args[0] = calls[i][0];
		assert_int_equal(run(inherited, &data), calls[i][1]);
	}
}

static void
check_machine(uint32_t arch, uint32_t sibling, uint32_t foreign)
{
	struct sock_fprog progs[3];
	struct seccomp_data data = { .nr = 1, .arch = foreign };

	for (int kind = 0; kind < 3; kind++) {
		assert_int_equal(filter_build((enum filter_kind)kind, arch, &progs[kind]), 0);
		assert_true(progs[kind].len > 10 && progs[kind].len < 1000);
		assert_int_equal(run(&progs[kind], &data), SECCOMP_RET_KILL_PROCESS);
	}
	check_arch(progs, arch);
	check_arch(progs, sibling);
	if (arch == SCMP_ARCH_X86_64)
		check_socketcall(&progs[FILTER_INHERITED]);
	if (arch == SCMP_ARCH_X86_64) {	/* x32: the same architecture to the filter, other numbers */
		data = (struct seccomp_data){ .nr = 0x40000000, .arch = arch };
		for (int kind = 0; kind < 3; kind++)
			assert_int_equal(run(&progs[kind], &data), SECCOMP_RET_KILL_PROCESS);
	}
	for (int kind = 0; kind < 3; kind++)
		free(progs[kind].filter);
}

static void
x86_64(void **state)
{
	check_machine(SCMP_ARCH_X86_64, SCMP_ARCH_X86, SCMP_ARCH_AARCH64);
}

static void
arm64(void **state)
{
	check_machine(SCMP_ARCH_AARCH64, SCMP_ARCH_ARM, SCMP_ARCH_X86_64);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(x86_64), cmocka_unit_test(arm64) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
