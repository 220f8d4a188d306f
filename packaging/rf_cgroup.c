/*
 * The delegated cgroup of run-foreground: what Delegate=yes is under systemd.
 *
 * It lies below the cgroup we run in ourselves, so that limits set on us hold for the work, too. On a hybrid host the v2
 * tree is a second mount without controllers; ending work needs none.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "packaging/rf.h"

#define NOTE		"cgroup"
#define WAIT_STEP_MS	20
#define WAIT_STEPS	100
#define LEAVE_STEPS	50	/* that what is in it gets to end by itself: workerd writes output to the disk */

/* The v2 mount of a line of mountinfo: "36 35 0:30 ROOT POINT options [tags] - cgroup2 ...". */
static bool
is_cgroup2(const char *line, char root[PATH_MAX], char point[PATH_MAX])
{
	const char *dash = strstr(line, " - cgroup2 ");

	return dash != NULL && sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) == 2;
}

static int
find_mount(char root[PATH_MAX], char point[PATH_MAX])
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/mountinfo", "re");
	_cleanup_free_ char *line = NULL;
	size_t size = 0;

	if (f == NULL)
		return -errno;
	while (getline(&line, &size, f) > 0)
		if (is_cgroup2(line, root, point))
			return 0;
	return -ENOENT;
}

/* Our own path in the v2 tree, from the "0::PATH" line. */
static int
own_path(char path[PATH_MAX])
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
	_cleanup_free_ char *line = NULL;
	size_t size = 0;

	if (f == NULL)
		return -errno;
	while (getline(&line, &size, f) > 0)
		if (sscanf(line, "0::%4095[^\n]", path) == 1)
			return 0;
	return -ENOENT;
}

int
rf_cgroup_find(struct rf_cgroup *cg, uid_t uid)
{
	char root[PATH_MAX], point[PATH_MAX], own[PATH_MAX];
	const char *below = own;
	size_t len;
	int n, r;

	cg->base[0] = '\0';
	cg->uid = uid;
	r = find_mount(root, point);
	if (r == 0)
		r = own_path(own);
	if (r < 0)
		return r;
	/* Where only a part of the tree is mounted, our path begins with that part. */
	len = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(own, root, len) == 0 && (own[len] == '/' || own[len] == '\0'))
		below = own + len;
	if (strcmp(below, "/") == 0)
		below = "";
	n = snprintf(cg->base, sizeof(cg->base), "%s%s/edgeward.%d", point, below, (int)getpid());
	return n < 0 || (size_t)n >= sizeof(cg->base) ? -ENAMETOOLONG : 0;
}

static int
write_file(const char *dir, const char *file, const char *text)
{
	char path[PATH_MAX];
	_cleanup_close_ int fd = -1;

	if (snprintf(path, sizeof(path), "%s/%s", dir, file) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_WRONLY | O_CLOEXEC);
	return fd < 0 ? -errno : fd_write_all(fd, text, strlen(text));
}

/* The controllers workloads are limited with; each may be missing or busy, then that limit cannot be had. */
static void
enable_controllers(const struct rf_cgroup *cg)
{
	static const char *const wanted[] = { "+memory", "+pids", "+cpu", "+io" };
	char parent[PATH_MAX];

	memcpy(parent, cg->base, sizeof(parent));
	*strrchr(parent, '/') = '\0';
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
		write_file(parent, "cgroup.subtree_control", wanted[i]);
}

int
rf_cgroup_make(const struct rf_cgroup *cg, int *ret_fd)
{
	static const char *const handed[] = { "cgroup.procs", "cgroup.threads", "cgroup.subtree_control" };
	_cleanup_close_ int dir = -1, procs = -1;

	enable_controllers(cg);
	/* Our pid in the name was another's once: what that one left belongs to nobody, and perhaps to another user. */
	if (mkdir(cg->base, 0755) < 0 && errno == EEXIST)
		rf_cgroup_remove(cg);
	if (mkdir(cg->base, 0755) < 0 && errno != EEXIST)
		return -errno;
	dir = open(cg->base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir < 0 || fchown(dir, cg->uid, (gid_t)cg->uid) < 0)
		return -errno;
	for (size_t i = 0; i < sizeof(handed) / sizeof(handed[0]); i++)
		if (fchownat(dir, handed[i], cg->uid, (gid_t)cg->uid, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	procs = openat(dir, "cgroup.procs", O_WRONLY | O_CLOEXEC);
	if (procs < 0)
		return -errno;
	*ret_fd = take_fd(&procs);
	return 0;
}

static int
remove_dir(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	if (type == FTW_DP)
		rmdir(path);
	return 0;
}

static bool
has_processes(const char *dir)
{
	char path[PATH_MAX], line[64];
	_cleanup_fclose_ FILE *f = NULL;
	int n = 0;

	if (snprintf(path, sizeof(path), "%s/cgroup.events", dir) >= (int)sizeof(path))
		return false;
	f = fopen(path, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "populated %d", &n) == 1)
			return n != 0;
	return false;
}

void
rf_cgroup_remove(const struct rf_cgroup *cg)
{
	const struct timespec step = { .tv_nsec = WAIT_STEP_MS * 1000000L };

	if (cg->base[0] == '\0' || access(cg->base, F_OK) < 0)
		return;
	for (int i = 0; i < LEAVE_STEPS && has_processes(cg->base); i++)
		nanosleep(&step, NULL);
	write_file(cg->base, "cgroup.kill", "1");
	/* The kernel refuses to remove a group with a process in it, so this is the wait for the last of them, too. */
	for (int i = 0; i < WAIT_STEPS && access(cg->base, F_OK) == 0; i++) {
		nftw(cg->base, remove_dir, 16, FTW_DEPTH | FTW_PHYS);
		if (access(cg->base, F_OK) == 0)
			nanosleep(&step, NULL);
	}
}

void
rf_cgroup_note(const struct rf_cgroup *cg, int dirfd)
{
	struct stat st;
	char text[64];
	int n, r;

	if (cg->base[0] == '\0' || stat(cg->base, &st) < 0)
		return;
	n = snprintf(text, sizeof(text), "%d %ju\n", (int)getpid(), (uintmax_t)st.st_ino);
	r = fd_replace_file(dirfd, NOTE, text, (size_t)n, 0644);
	if (r < 0)
		log_warn("cannot note the cgroup: %s", strerror(-r));
}

void
rf_cgroup_sweep(const struct rf_cgroup *cg, int dirfd)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct rf_cgroup left = *cg;
	char text[64] = "", *slash = strrchr(left.base, '/');
	uintmax_t ino;
	struct stat st;
	size_t len;
	int pid;

	if (slash == NULL || fd_read_own_file(dirfd, NOTE, sizeof(text) - 1, &data, &len) < 0)
		return;
	memcpy(text, data, len);
	if (sscanf(text, "%d %ju", &pid, &ino) != 2 || pid <= 0)
		return;
	snprintf(slash, sizeof(left.base) - (size_t)(slash - left.base), "/edgeward.%d", pid);
	if (lstat(left.base, &st) == 0 && S_ISDIR(st.st_mode) && st.st_ino == (ino_t)ino)
		rf_cgroup_remove(&left);
}
