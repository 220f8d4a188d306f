/* What the machine gives: room on disk, and what the kernel has for confinement and devices. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/parse.h"
#include "edgectl/doctor/doctor.h"

#define INODES_FEW	1000u
#define STATE_FEW	(8u << 20)	/* records and the credential are small, but they must fit */

static void
room(struct doctor *d, const char *name, const char *path, uint64_t low)
{
	struct statvfs s;
	char command[200];
	uint64_t bytes;

	snprintf(command, sizeof(command), "df -h %.80s; du -xsh %.80s/*", path, path);
	if (statvfs(path, &s) < 0) {
		check_skip(d, name, "%.200s: %s", path, strerror(errno));
		return;
	}
	bytes = (uint64_t)s.f_bavail * s.f_frsize;
	if ((s.f_flag & ST_RDONLY) != 0)
		check_bad(d, name, CHECK_FAIL, "read-only", "mount; dmesg | tail", "%.200s is on a file system that is read-only", path);
	else if (bytes < low)
		check_bad(d, name, CHECK_FAIL, "disk-low", command, "%.200s has %s free, below the mark of %s: no work is taken", path,
		    out_bytes(bytes), out_bytes(low));
	else if (s.f_files > 0 && s.f_favail == 0)
		check_bad(d, name, CHECK_FAIL, "inodes-low", "df -i", "%.200s has no inode free", path);
	else if (bytes < 2 * low)
		check_bad(d, name, CHECK_WARN, "disk-low", command, "%.200s has %s free; from %s on no work is taken", path,
		    out_bytes(bytes), out_bytes(low));
	else if (s.f_files > 0 && s.f_favail < INODES_FEW)
		check_bad(d, name, CHECK_WARN, "inodes-low", "df -i", "%.200s has %" PRIu64 " inodes free", path, (uint64_t)s.f_favail);
	else if (s.f_files > 0)
		check_ok(d, name, "%.200s: %s and %" PRIu64 " inodes free", path, out_bytes(bytes), (uint64_t)s.f_favail);
	else
		check_ok(d, name, "%.200s: %s free", path, out_bytes(bytes));
}

void
step_disk(struct doctor *d)
{
	room(d, "disk-state", d->state, STATE_FEW);
	if (d->conf_ok)
		room(d, "disk-work", d->conf.work_root, d->conf.work_disk_low);
	else
		check_skip(d, "disk-work", "the configuration that names the work root cannot be read");
}

/* Under require a workload without it is refused; under best-effort it runs with less. */
static enum check_state
lack(const struct doctor *d)
{
	return d->conf_ok && d->conf.work_sandbox == CONF_SANDBOX_BEST_EFFORT ? CHECK_WARN : CHECK_FAIL;
}

/* Makes a user and a pid namespace, with one process that ends at once. */
static bool
make_userns(void)
{
	long pid = syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, NULL);

	if (pid == 0)
		_exit(0);
	return pid > 0 && waitpid((pid_t)pid, NULL, 0) == pid;
}

/* As the user of the work, for whom it may be forbidden while root may. */
static bool
can_userns(const struct doctor *d)
{
	int status = 1;
	pid_t pid;

	if (d->root[0] != '\0')
		return true;
	pid = fork();
	if (pid == 0) {
		if (d->me == 0 && d->work_uid != 0 && (setresgid(d->work_uid, d->work_uid, d->work_uid) < 0 ||
		    setresuid(d->work_uid, d->work_uid, d->work_uid) < 0))
			_exit(1);
		_exit(make_userns() ? 0 : 1);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool
is_number(const struct doctor *d, const char *path, uint64_t value)
{
	char text[32];
	uint64_t v;

	return doctor_read(d, path, text, sizeof(text)) == 0 && parse_u64(text, 0, UINT64_MAX, &v) == 0 && v == value;
}

static void
namespaces(struct doctor *d)
{
	static const struct {
		const char *path;
		uint64_t value;
		const char *command, *why;
	} knobs[] = {
		{ "/proc/sys/user/max_user_namespaces", 0, "sysctl user.max_user_namespaces=15000",
		    "user namespaces are switched off (user.max_user_namespaces = 0)" },
		{ "/proc/sys/kernel/unprivileged_userns_clone", 0, "sysctl kernel.unprivileged_userns_clone=1",
		    "user namespaces are root's alone (kernel.unprivileged_userns_clone = 0)" },
		{ "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1,
		    "sysctl kernel.apparmor_restrict_unprivileged_userns=0", "AppArmor keeps user namespaces from programs without a profile" },
	};

	for (size_t i = 0; i < sizeof(knobs) / sizeof(knobs[0]); i++) {
		if (is_number(d, knobs[i].path, knobs[i].value)) {
			check_bad(d, "namespaces", lack(d), "no-userns", knobs[i].command, "%s", knobs[i].why);
			return;
		}
	}
	if (can_userns(d))
		check_ok(d, "namespaces", "an ordinary process can make a user and a pid namespace");
	else
		check_bad(d, "namespaces", lack(d), "no-userns", "unshare -Ur true", "an ordinary process cannot make a user namespace");
}

static void
landlock(struct doctor *d)
{
	/* As common/sandbox.c asks; from there it would bring libseccomp along. */
	long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);

	if (abi > 0)
		check_ok(d, "landlock", "ABI %ld", abi);
	else
		check_bad(d, "landlock", lack(d), "no-landlock", "cat /sys/kernel/security/lsm",
		    "this kernel has no Landlock, or it is not in its list of security modules (lsm=landlock,...)");
}

static void
seccomp(struct doctor *d)
{
	char text[256];

	if (doctor_read(d, "/proc/sys/kernel/seccomp/actions_avail", text, sizeof(text)) == 0 && strstr(text, "kill_process") != NULL)
		check_ok(d, "seccomp", "filters, with an end of the process for what they forbid");
	else
		check_bad(d, "seccomp", CHECK_FAIL, "no-seccomp", "grep SECCOMP /boot/config-$(uname -r)",
		    "this kernel has no seccomp filters: no daemon can start");
}

void
step_kernel(struct doctor *d)
{
	namespaces(d);
	landlock(d);
	seccomp(d);
}
