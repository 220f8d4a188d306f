#include "common/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

/* In kernel headers newer than our baseline's. */
#define FS_REFER	(1ULL << 13)
#define FS_TRUNCATE	(1ULL << 14)
#define FS_IOCTL_DEV	(1ULL << 15)
#define SCOPE_ABSTRACT_UNIX_SOCKET	(1ULL << 0)
#define SCOPE_SIGNAL			(1ULL << 1)

struct ruleset_attr {		/* an older kernel takes it while what it does not know is zero */
	uint64_t handled_access_fs, handled_access_net, scoped;
};

#define CALL(name)	{ .nr = SCMP_SYS(name) }

const struct sandbox_rule sandbox_base[] = {
	/* what is open */
	CALL(read), CALL(readv), CALL(write), CALL(writev), CALL(close), CALL(fstat), CALL(lseek), CALL(pread64),
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_GETFL) } },
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_SETFL) } },
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_GETFD) } },
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_SETFD) } },
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_DUPFD_CLOEXEC) } },
	/* channels */
	CALL(sendmsg), CALL(recvmsg), CALL(sendto), CALL(recvfrom), CALL(accept4), CALL(getsockopt), CALL(shutdown),
	/* loop */
	CALL(epoll_create1), CALL(epoll_ctl), CALL(epoll_wait), CALL(epoll_pwait), CALL(timerfd_create),
	CALL(timerfd_settime), CALL(poll), CALL(ppoll),
	/* memory: nothing becomes executable */
	CALL(brk), CALL(munmap), CALL(mremap), CALL(madvise),
	{ SCMP_SYS(mmap), 1, { SANDBOX_MASK(2, PROT_EXEC, 0) } },
	{ SCMP_SYS(mprotect), 1, { SANDBOX_MASK(2, PROT_EXEC, 0) } },
	/* time, random numbers, identity of the process itself */
	CALL(clock_gettime), CALL(clock_getres), CALL(gettimeofday), CALL(time), CALL(clock_nanosleep), CALL(nanosleep),
	CALL(getrandom), CALL(getpid), CALL(gettid), CALL(getuid), CALL(geteuid), CALL(getgid), CALL(getegid),
	/* signals and the end */
	CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(rt_sigreturn), CALL(sigaltstack), CALL(restart_syscall),
	CALL(exit), CALL(exit_group), CALL(futex), CALL(sched_yield),
};
const size_t sandbox_base_len = sizeof(sandbox_base) / sizeof(sandbox_base[0]);

static int
add_rules(scmp_filter_ctx ctx, uint32_t action, const struct sandbox_rule *rules, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int r = seccomp_rule_add_array(ctx, action, rules[i].nr, rules[i].nargs, rules[i].args);

		if (r < 0 && r != -EDOM && !(r == -EEXIST))
			return r;
	}
	return 0;
}

/* The base, and abort(): a signal to this process, not to another of its user. */
static int
add_base(scmp_filter_ctx ctx, uint32_t action)
{
	const struct sandbox_rule self = { SCMP_SYS(tgkill), 1, { SANDBOX_EQ(0, getpid()) } };
	int r = add_rules(ctx, action, sandbox_base, sandbox_base_len);

	return r < 0 ? r : add_rules(ctx, action, &self, 1);
}

static int
load(scmp_filter_ctx ctx, uint32_t action, const struct sandbox_rule *rules, size_t n, int with_base)
{
	int r = with_base ? add_base(ctx, action) : 0;

	if (r == 0)
		r = add_rules(ctx, action, rules, n);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	if (r == 0)
		r = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
	if (r == 0)
		r = seccomp_load(ctx);
	seccomp_release(ctx);
	return r;
}

int
sandbox_seccomp(const struct sandbox_rule *rules, size_t n)
{
	scmp_filter_ctx ctx = seccomp_init(SANDBOX_DEFAULT_ACTION);

	return ctx == NULL ? -ENOMEM : load(ctx, SCMP_ACT_ALLOW, rules, n, 1);
}

/* The 32-bit programs this kind of machine runs. What is not added is killed: x32, and on others everything foreign. */
static int
add_sibling(scmp_filter_ctx ctx)
{
	switch (seccomp_arch_native()) {
	case SCMP_ARCH_X86_64:
		return seccomp_arch_add(ctx, SCMP_ARCH_X86);
	case SCMP_ARCH_AARCH64:
		return seccomp_arch_add(ctx, SCMP_ARCH_ARM);
	default:
		return 0;
	}
}

int
sandbox_seccomp_deny(const struct sandbox_rule *rules, size_t n)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int r = ctx != NULL ? add_sibling(ctx) : -ENOMEM;

	if (r < 0)
		seccomp_release(ctx);
	return r < 0 ? r : load(ctx, SCMP_ACT_ERRNO(EPERM), rules, n, 0);
}

int
sandbox_landlock_abi(void)
{
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	return abi < 0 ? 0 : (int)abi;
}

static uint64_t
handled_bits(int abi)
{
	uint64_t bits = LANDLOCK_ACCESS_FS_MAKE_SYM | (LANDLOCK_ACCESS_FS_MAKE_SYM - 1);	/* ABI 1: bits 0..12 */

	if (abi >= 2)
		bits |= FS_REFER;
	if (abi >= 3)
		bits |= FS_TRUNCATE;
	if (abi >= 5)
		bits |= FS_IOCTL_DEV;
	return bits;
}

static uint64_t
access_bits(unsigned access)
{
	uint64_t bits = 0;

	if ((access & SANDBOX_READ) != 0)
		bits |= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
	if ((access & SANDBOX_EXEC) != 0)
		bits |= LANDLOCK_ACCESS_FS_EXECUTE;
	if ((access & SANDBOX_REMOVE) != 0)
		bits |= LANDLOCK_ACCESS_FS_REMOVE_FILE;
	if ((access & SANDBOX_WRITE) != 0)
		bits |= LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
		    LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_DIR | FS_REFER | FS_TRUNCATE;
	if ((access & SANDBOX_NODES) != 0)
		bits |= LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE |
		    FS_IOCTL_DEV;
	if ((access & SANDBOX_MKNOD) != 0)
		bits |= LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_DIR |
		    LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_READ_DIR;
	if ((access & SANDBOX_ALL) != 0)
		bits |= ~(uint64_t)(LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK);
	return bits;
}

static int
add_path(int ruleset, const struct sandbox_path *path, uint64_t handled)
{
	bool device = (path->access & SANDBOX_DEVICE) != 0;
	_cleanup_close_ int fd = open(path->path, O_PATH | (device ? O_NOFOLLOW : O_DIRECTORY) | O_CLOEXEC);
	struct landlock_path_beneath_attr attr = { .allowed_access = access_bits(path->access) & handled, .parent_fd = fd };

	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
	if (device)
		attr.allowed_access &= ~(uint64_t)LANDLOCK_ACCESS_FS_READ_DIR;
	if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &attr, 0) < 0)
		return -errno;
	return 0;
}

int
sandbox_landlock(const struct sandbox_path *paths, size_t n)
{
	int abi = sandbox_landlock_abi();
	struct ruleset_attr attr = { .handled_access_fs = handled_bits(abi),
		.scoped = abi >= 6 ? SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL : 0 };
	_cleanup_close_ int ruleset = -1;

	if (abi == 0)
		return 0;
	ruleset = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	if (ruleset < 0)
		return -errno;
	for (size_t i = 0; i < n; i++) {
		int r = paths[i].path != NULL ? add_path(ruleset, &paths[i], attr.handled_access_fs) : 0;

		if (r < 0)
			return r;
	}
	if (syscall(SYS_landlock_restrict_self, ruleset, 0) < 0)
		return -errno;
	return abi;
}

const char *
sandbox_directory_of(const char *file, char *buf, size_t size)
{
	const char *slash = strrchr(file, '/');
	size_t len;

	if (slash == NULL)
		return NULL;
	len = slash == file ? 1 : (size_t)(slash - file);
	if (len >= size)
		return NULL;
	memcpy(buf, file, len);
	buf[len] = '\0';
	return buf;
}
