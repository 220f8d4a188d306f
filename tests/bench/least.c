/*
 * What the kernel itself takes for the least confinement that an agent with a supervisor of each run gives (our sandbox-level = uid): a cgroup,
 * a process that waits for the payload, an id of its own, no capability, a seccomp filter as long as ours, Landlock. In one small process
 * that asks nobody and passes nothing on. Needs root. Who calls: floor.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "bench.h"
#include "confined.h"

#define RUNNER		65499
#define COUNT(list)	(sizeof(list) / sizeof((list)[0]))
#define READS		(LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR)
#define ALL		((LANDLOCK_ACCESS_FS_MAKE_SYM << 1) - 1)

static const char *const shown[] = { "/usr", "/opt", "/etc", "/bin", "/sbin", "/lib", "/lib64", "/sys/devices/system", "/proc", "/tmp", "/dev/null",
	"/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty" };
static const int refused[] = { SCMP_SYS(mount), SCMP_SYS(umount2), SCMP_SYS(pivot_root), SCMP_SYS(chroot), SCMP_SYS(open_tree),
	SCMP_SYS(move_mount), SCMP_SYS(fsopen), SCMP_SYS(fsconfig), SCMP_SYS(fsmount), SCMP_SYS(fspick), SCMP_SYS(mount_setattr), SCMP_SYS(setns),
	SCMP_SYS(clone3), SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev), SCMP_SYS(kcmp), SCMP_SYS(pidfd_getfd),
	SCMP_SYS(bpf), SCMP_SYS(perf_event_open), SCMP_SYS(keyctl), SCMP_SYS(add_key), SCMP_SYS(request_key), SCMP_SYS(userfaultfd),
	SCMP_SYS(init_module), SCMP_SYS(finit_module), SCMP_SYS(delete_module), SCMP_SYS(kexec_load), SCMP_SYS(reboot), SCMP_SYS(swapon),
	SCMP_SYS(swapoff), SCMP_SYS(acct), SCMP_SYS(quotactl), SCMP_SYS(sethostname), SCMP_SYS(setdomainname), SCMP_SYS(syslog),
	SCMP_SYS(io_uring_setup), SCMP_SYS(io_uring_enter), SCMP_SYS(io_uring_register), SCMP_SYS(open_by_handle_at) };

static struct sock_fprog filter;
static int cgroups = -1;

static void
must(long r)
{
	if (r < 0) {
		perror("least");
		_exit(126);
	}
}

static void
make_filter(void)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	int fd = memfd_create("filter", MFD_CLOEXEC);
	off_t size;

	must(ctx == NULL ? -1 : seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2));
	for (size_t i = 0; i < COUNT(refused); i++)
		must(seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), refused[i], 0));
	must(seccomp_export_bpf(ctx, fd));
	seccomp_release(ctx);
	size = lseek(fd, 0, SEEK_END);
	filter.len = (unsigned short)((size_t)size / sizeof(struct sock_filter));
	filter.filter = malloc((size_t)size);
	must(pread(fd, filter.filter, (size_t)size, 0) == size ? 0 : -1);
	close(fd);
}

/* Beside our own, which the bench entered, or none. */
static void
find_cgroups(void)
{
	static const char *const mounts[] = { "/sys/fs/cgroup/unified", "/sys/fs/cgroup" };
	char path[64];

	for (size_t i = 0; i < COUNT(mounts) && cgroups < 0; i++) {
		snprintf(path, sizeof(path), "%s/cgroup.procs", mounts[i]);
		if (access(path, F_OK) == 0)
			cgroups = open(mounts[i], O_PATH | O_DIRECTORY | O_CLOEXEC);
	}
}

static void
landlock(void)
{
	struct landlock_ruleset_attr attr = { .handled_access_fs = ALL };
	int set = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
	struct stat st;

	if (set < 0 && (errno == ENOSYS || errno == EOPNOTSUPP))
		return;
	must(set);
	for (size_t i = 0; i < COUNT(shown); i++) {
		struct landlock_path_beneath_attr rule = { .parent_fd = open(shown[i], O_PATH | O_CLOEXEC) };

		if (rule.parent_fd < 0)
			continue;
		must(fstat(rule.parent_fd, &st));
		rule.allowed_access = S_ISDIR(st.st_mode) ? READS : LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE;
		must(syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &rule, 0));
		close(rule.parent_fd);
	}
	must(syscall(SYS_landlock_restrict_self, set, 0));
	close(set);
}

/* The one that waits for the payload. */
static _Noreturn void
supervise(int output, char **argv)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	int status = 0;
	pid_t pid;

	must(dup2(output, 1));
	must(setgroups(0, NULL));
	must(setresgid(RUNNER, RUNNER, RUNNER));
	must(setresuid(RUNNER, RUNNER, RUNNER));
	must(syscall(SYS_capset, &head, none));
	must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0));
	pid = vfork();
	if (pid == 0) {
		setsid();
		landlock();
		execvp(argv[0], argv);
		_exit(127);
	}
	must(pid);
	close(1);
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void
cgroup_name(size_t index, char name[32])
{
	snprintf(name, 32, "ewbench.%zu", index);
}

pid_t
least_start(size_t index, int output, char **argv)
{
	struct clone_args args = { .exit_signal = SIGCHLD };
	char name[32];
	int group = -1;
	pid_t pid;

	if (filter.filter == NULL) {
		make_filter();
		find_cgroups();
	}
	if (cgroups >= 0) {
		cgroup_name(index, name);
		must(mkdirat(cgroups, name, 0755));
		group = openat(cgroups, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		must(group);
		args.flags = CLONE_INTO_CGROUP;
		args.cgroup = (unsigned)group;
	}
	pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
	if (pid == 0)
		supervise(output, argv);
	if (group >= 0)
		close(group);
	return pid;
}

void
least_end(size_t index)
{
	char name[32];

	cgroup_name(index, name);
	if (cgroups >= 0)
		must(unlinkat(cgroups, name, AT_REMOVEDIR));
}
