/*
 * The service manager by way of systemctl(1), and what /proc tells of a process.
 *
 * Who calls: trial.c. What is trusted: systemctl and the kernel. On error: it counts as not healthy.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/runprog.h"
#include "privupgrade/privtrial.h"

#define SYSTEMCTL_MS	30000

static const char *const names[JUDGE_UNITS] = { [JUDGE_PRIVHELPER] = "edgeward-privhelper.service", [JUDGE_CONNECTD] = "edgeward-connectd.service",
	[JUDGE_WORKERD] = "edgeward-workerd.service" };

int
units_look(struct updater *u, struct judge_unit_facts units[JUDGE_UNITS])
{
	const char *const argv[] = { u->systemctl, "show", "-p", "ActiveState,MainPID,NRestarts", names[0], names[1], names[2], NULL };
	char out[1024];
	int r = run_program(argv, 0, 0, SYSTEMCTL_MS, out, sizeof(out));

	if (r != 0)
		out[0] = '\0';
	judge_read_units(out, units);
	return r > 0 ? -EIO : r;
}

static int
order(struct updater *u, const char *what, const char *unit)
{
	const char *const argv[] = { u->systemctl, "--no-block", what, unit, NULL };
	char out[512];
	int r = run_program(argv, 0, 0, SYSTEMCTL_MS, out, sizeof(out));

	if (r != 0)
		step(u, "systemctl %s %s failed: %.100s", what, unit, r < 0 ? strerror(-r) : out);
	return r > 0 ? -EIO : r;
}

int
units_restart(struct updater *u, bool keep_work)
{
	int r = 0;

	for (unsigned i = 0; i < JUDGE_UNITS; i++)
		if ((u->state.units >> i & 1) != 0) {
			int e = order(u, i == JUDGE_WORKERD && keep_work ? "reload" : "restart", names[i]);

			r = r < 0 ? r : e;
		}
	return r;
}

bool
unit_runs(const struct updater *u, uint64_t pid, const char *target, const char *name)
{
	struct stat exe, file;
	char proc[40], path[600];

	snprintf(proc, sizeof(proc), "/proc/%" PRIu64 "/exe", pid);
	snprintf(path, sizeof(path), "%s%s%s/%s", target[0] == '/' ? "" : u->base_path, target[0] == '/' ? "" : "/", target, name);
	return pid != 0 && stat(proc, &exe) == 0 && stat(path, &file) == 0 && exe.st_dev == file.st_dev && exe.st_ino == file.st_ino;
}

/* "" when there is no such process. */
static void
read_cgroup(uint64_t pid, char *text, size_t size)
{
	char path[40];
	_cleanup_close_ int fd = -1;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%" PRIu64 "/cgroup", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, size - 1);
	text[n < 0 ? 0 : n] = '\0';
}

bool
unit_has_work(uint64_t pid, uint64_t launcher)
{
	char work[2048], own[2048];

	read_cgroup(pid, work, sizeof(work));
	read_cgroup(launcher, own, sizeof(own));
	return judge_is_work(work, own);
}
