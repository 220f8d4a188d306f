/*
 * The order of a workload's confinement, top to bottom in confine_workload(), and the rehearsal of its parts when the launcher
 * starts, so that a machine that cannot give one says so before work comes.
 *
 * Who calls: main() once; workinit as the runner in its user namespace. Nothing here reads what the hub sent. On error: fatal()
 * in the launcher; in workinit the start ends with the stage it came to.
 */
#include "workerd/launcher/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/drop.h"
#include "common/log.h"
#include "common/machine.h"
#include "common/sandbox.h"
#include "common/userns.h"
#include "workerd/launcher/filter.h"

static const struct {
	uint32_t part;
	int flag;
} namespaces[] = {
	{ LAUNCH_PART_MOUNT, CLONE_NEWNS }, { LAUNCH_PART_IPC, CLONE_NEWIPC }, { LAUNCH_PART_UTS, CLONE_NEWUTS },
	{ LAUNCH_PART_NET, CLONE_NEWNET },
};
#define NAMESPACES	(sizeof(namespaces) / sizeof(namespaces[0]))

static int
raise_loopback(void)
{
	_cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq ifr = { .ifr_name = "lo", .ifr_flags = IFF_UP };

	return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &ifr) < 0 ? -errno : 0;
}

/* The bounding set takes CAP_SETPCAP, which the user namespace gives; without one no_new_privs makes it meaningless. */
static int
drop_caps(bool bounding, bool links)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const uint32_t keep = links ? 1u << CAP_NET_ADMIN : 0;
	const struct __user_cap_data_struct rest[2] = { { .effective = keep, .permitted = keep }, { 0 } };

	for (unsigned long cap = 0; bounding && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) == 0; cap++)
		;
	if (bounding && errno != EINVAL)	/* the number behind the last one */
		return -errno;
	return syscall(SYS_capset, &head, rest) < 0 ? -errno : 0;
}

int
confine_workload(const struct confine *c, const struct confine_who *who, enum init_stage *ret_stage)
{
	const struct view_wish wish = { who->uid, who->gid, who->show, (who->parts & LAUNCH_PART_PROC) != 0,
		(who->parts & LAUNCH_PART_NET) != 0, (who->parts & LAUNCH_PART_FILTER) != 0 ? who->fw : NULL, who->secrets, who->slot };
	bool proc = false;
	int flags = 0, r = 0;

	for (unsigned i = 0; i < NAMESPACES; i++)
		flags |= (who->parts & namespaces[i].part) != 0 ? namespaces[i].flag : 0;
	*ret_stage = INIT_STAGE_PASTA;
	if ((who->parts & LAUNCH_PART_FILTER) != 0 && (r = netns_begin(who->netns, who->fw)) < 0)
		return r;
	*ret_stage = INIT_STAGE_NAMESPACES;
	if (flags != 0 && unshare(flags) < 0)
		return -errno;
	*ret_stage = INIT_STAGE_NET;
	if ((who->parts & LAUNCH_PART_NET) != 0 && (r = raise_loopback()) < 0)
		return r;
	if ((who->parts & LAUNCH_PART_FILTER) != 0 && (r = netns_build(who->netns, ret_stage)) < 0)
		return r;
	if ((who->parts & LAUNCH_PART_MOUNT) != 0)
		r = view_enter(&c->view, &wish, &proc);
	*ret_stage = proc ? INIT_STAGE_PROC : INIT_STAGE_VIEW;
	if (r < 0)
		return r;
	*ret_stage = INIT_STAGE_CAPS;
	if ((r = drop_caps((who->parts & LAUNCH_PART_USER) != 0, (who->parts & LAUNCH_PART_LINKS) != 0)) < 0)
		return r;
	*ret_stage = INIT_STAGE_SECCOMP;
	if ((who->parts & LAUNCH_PART_SECCOMP) == 0)
		return 0;
	return filter_install((who->parts & LAUNCH_PART_PID) != 0 ? &c->filter : &c->filter_shared);
}

/* ---- the rehearsal ---- */

/* In a pid namespace of its own; what is tried here is tried in a process that ends at once. */
static uint32_t
try_parts(void)
{
	struct mount_attr ro = { .attr_set = MOUNT_ATTR_RDONLY, .propagation = MS_PRIVATE };
	uint32_t parts = LAUNCH_PART_PID;
	static struct firewall nothing;
	enum init_stage stage;
	struct netns netns;
	/* Where one of the programs is missing there is nothing to try. */
	bool filter = access(LAUNCH_NFT, X_OK) == 0 && access(LAUNCH_PASTA, X_OK) == 0 && netns_begin(&netns, &nothing) == 0;

	for (unsigned i = 0; i < NAMESPACES; i++)
		if (unshare(namespaces[i].flag) == 0)
			parts |= namespaces[i].part;
	if ((parts & LAUNCH_PART_NET) != 0 && raise_loopback() < 0)
		parts &= ~LAUNCH_PART_NET;
	if (filter && (parts & LAUNCH_PART_NET) != 0 && netns_build(&netns, &stage) == 0)
		parts |= LAUNCH_PART_FILTER;
	if ((parts & LAUNCH_PART_MOUNT) == 0 || mount("tmpfs", "/proc", "tmpfs", 0, NULL) < 0 || mkdir("/proc/proc", 0700) < 0 ||
	    mount_setattr(AT_FDCWD, "/proc", AT_RECURSIVE, &ro, sizeof(ro)) < 0)
		return parts & ~LAUNCH_PART_MOUNT;
	if (mount("proc", "/proc/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0)
		parts |= LAUNCH_PART_PROC;
	return parts;
}

static _Noreturn void
rehearse(int32_t *found, uid_t uid, gid_t gid)
{
	long pid;

	if (drop_to_runner(uid, gid) < 0 || userns_enter(uid != 0 ? uid : getuid(), uid != 0 ? gid : getgid()) < 0)
		_exit(1);
	*found = LAUNCH_PART_USER;
	pid = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);
	if (pid == 0) {
		*found |= (int32_t)try_parts();
		_exit(0);
	}
	_exit(pid > 0 && waitpid((pid_t)pid, NULL, 0) == pid ? 0 : 1);
}

static pid_t
begin_rehearsal(int32_t *found, uid_t uid, gid_t gid)
{
	pid_t pid;

	*found = 0;
	pid = fork();
	if (pid == 0)
		rehearse(found, uid, gid);
	return pid;
}

static uint32_t
end_rehearsal(const int32_t *found, pid_t pid)
{
	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		fatal("cannot try the sandbox: %s", strerror(errno));
	return (uint32_t)*found;
}

static uint32_t
machine_now(void)
{
	int fds[MACHINE_SWITCHES];
	uint32_t bits;

	machine_open(fds);
	bits = machine_bits(fds, launch_files);
	machine_close(fds);
	return bits;
}

void
confine_init(struct confine *c, struct launch_ready *ready, uid_t uid, gid_t gid)
{
	uint32_t native = seccomp_arch_native();
	pid_t pid;
	int r;

	c->first = mmap(NULL, sizeof(*c->first), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (c->first == MAP_FAILED)
		fatal("out of memory");
	c->machine = machine_now();
	pid = begin_rehearsal(c->first, uid, gid);	/* most of it is waiting for the kernel: beside what follows */
	view_init(&c->view);
	r = filter_build(FILTER_WORKLOAD, native, &c->filter);
	if (r == 0)
		r = filter_build(FILTER_WORKLOAD_SHARED, native, &c->filter_shared);
	if (r < 0)
		fatal("the workloads' filter: %s", strerror(-r));
	ready->parts = end_rehearsal(c->first, pid);
	ready->landlock_abi = (uint8_t)sandbox_landlock_abi();
	if (prctl(PR_GET_SECCOMP, 0, 0, 0, 0) >= 0)
		ready->parts |= LAUNCH_PART_SECCOMP;
	if (ready->landlock_abi > 0)
		ready->parts |= LAUNCH_PART_LANDLOCK;
}

void
confine_again(struct confine *c, struct launch_ready *ready, uid_t uid, gid_t gid)
{
	uint32_t others = ready->parts & (LAUNCH_PART_SECCOMP | LAUNCH_PART_LANDLOCK), machine = machine_now();
	pid_t pid;
	int status;

	if (machine == c->machine)
		return;
	pid = begin_rehearsal(c->first, uid, gid);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return;
	c->machine = machine;	/* as it was before the trial: what changed beside it is another value the next time */
	if ((others | (uint32_t)*c->first) != ready->parts)
		log_info("what this machine gives to workloads has changed: %#x, now %#x", ready->parts, others | (uint32_t)*c->first);
	ready->parts = others | (uint32_t)*c->first;
}

int
confine_launcher(void)
{
	struct sock_fprog prog;
	int r = filter_build(FILTER_INHERITED, seccomp_arch_native(), &prog);

	return r < 0 ? r : filter_install(&prog);
}
