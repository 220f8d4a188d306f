/* Whether workloads can have cgroups of their own, with limits: the launcher's place in the tree and the controllers there. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "edgectl/doctor/doctor.h"

static const char *const controllers[] = { "memory", "pids", "cpu" };

static bool
has_word(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = strstr(list, word); p != NULL; p = strstr(p + 1, word))
		if ((p == list || p[-1] == ' ') && (p[len] == ' ' || p[len] == '\0'))
			return true;
	return false;
}

/* The v2 directory a process is in: the line "0::PATH". */
static bool
place_of(const struct doctor *d, int pid, char *path, size_t size)
{
	char name[64], full[PATH_MAX], line[PATH_MAX];
	bool found = false;
	FILE *f;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", pid);
	f = fopen(doctor_path(d, name, full), "re");
	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, "0::/", 4) == 0;
	}
	if (f != NULL)
		fclose(f);
	if (found)
		snprintf(path, size, "%s", line + 3);
	return found;
}

/* The launcher sits in launch/ below what it was given. */
static void
look_at_launcher(struct doctor *d, const char *mount)
{
	char place[PATH_MAX], file[2 * PATH_MAX], list[256], lacks[64] = "";
	char *leaf;

	if (!d->view.work_up || !d->view.work.launcher_up) {
		check_skip(d, "controllers", d->view.workerd.error == -EACCES ? "where the launcher is may not be asked by this user" :
		    "the launcher is not up; its cgroup is where they count");
		return;
	}
	if (!place_of(d, d->view.work.launcher_pid, place, sizeof(place))) {
		check_skip(d, "controllers", "the launcher's cgroup is not visible for this user");
		return;
	}
	leaf = strrchr(place, '/');
	if (leaf != NULL && strcmp(leaf, "/launch") == 0)
		*leaf = '\0';
	snprintf(file, sizeof(file), "%s%s/cgroup.controllers", mount, place);
	if (doctor_read(d, file, list, sizeof(list)) < 0) {
		check_skip(d, "controllers", "%.200s cannot be read", file);
		return;
	}
	for (size_t i = 0; i < sizeof(controllers) / sizeof(controllers[0]); i++)
		if (!has_word(list, controllers[i]))
			snprintf(lacks + strlen(lacks), sizeof(lacks) - strlen(lacks), " %s", controllers[i]);
	if (lacks[0] == '\0')
		check_ok(d, "controllers", "memory, pids and cpu in %.150s", place);
	else
		check_bad(d, "controllers", CHECK_WARN, "no-controller", "cat /sys/fs/cgroup/cgroup.controllers",
		    "no controller%s in %.150s: a start that asks for such a limit is refused", lacks, place);
}

void
step_cgroup(struct doctor *d)
{
	static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	char path[PATH_MAX], file[64];
	size_t i = 0;

	for (; i < 2; i++) {
		snprintf(file, sizeof(file), "%s/cgroup.controllers", mounts[i]);
		if (access(doctor_path(d, file, path), F_OK) == 0)
			break;
	}
	if (i == 2) {
		check_bad(d, "cgroup", CHECK_WARN, "no-cgroup", "mount -t cgroup2", "no cgroup v2 is mounted: workloads end less surely");
		check_skip(d, "controllers", "no cgroup v2");
		return;
	}
	if (d->view.work_up && d->view.work.cgroup == 0)
		check_bad(d, "cgroup", CHECK_WARN, "no-delegation", d->systemd ? "systemctl show -p Delegate edgeward-workerd" : NULL,
		    "cgroup v2 is there, but none of it was given to the launcher: workloads have no limits");
	else if (i == 1)
		check_bad(d, "cgroup", CHECK_WARN, "hybrid", "add systemd.unified_cgroup_hierarchy=1 to the kernel's command line",
		    "cgroup v2 hangs beside v1, without controllers");
	else
		check_ok(d, "cgroup", "cgroup v2%s", d->view.work_up ? ", a part of it is the launcher's" : "");
	look_at_launcher(d, mounts[i]);
}
