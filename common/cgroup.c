#include "common/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"

#define NFTW_FDS	8
#define LINE_SIZE	4096
#define RETRY_US	10000
#define RUSAGE_BLOCK	512	/* getrusage(2) counts in these */

int
cgroup_own(char *path, size_t size)
{
	_cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
	_cleanup_fclose_ FILE *m = setmntent("/proc/self/mounts", "re");
	char line[LINE_SIZE];
	const struct mntent *e;
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
		found = strncmp(line, "0::/", 4) == 0;
	if (!found || m == NULL)
		return 0;
	line[strcspn(line, "\n")] = '\0';
	while ((e = getmntent(m)) != NULL) {
		int n;

		if (strcmp(e->mnt_type, "cgroup2") != 0)
			continue;
		n = snprintf(path, size, "%s%s", e->mnt_dir, line + 3);
		if (n > 0 && (size_t)n < size)
			return strcmp(e->mnt_dir, "/sys/fs/cgroup") == 0 ? 2 : 1;
	}
	return 0;
}

int
cgroup_write(int dirfd, const char *file, const char *value)
{
	_cleanup_close_ int fd = openat(dirfd, file, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, value, strlen(value)) < 0 ? -errno : 0;
}

uint64_t
cgroup_read(int dirfd, const char *file, const char *key)
{
	_cleanup_close_ int fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC);
	char buf[LINE_SIZE], *p = buf, *word;
	ssize_t n = fd >= 0 ? read(fd, buf, sizeof(buf) - 1) : 0;
	uint64_t v = 0;

	buf[n > 0 ? n : 0] = '\0';
	while ((word = strsep(&p, " \n")) != NULL) {
		const char *number = word;

		if (key != NULL && strcmp(word, key) != 0)
			continue;
		if (key != NULL)
			number = strsep(&p, " \n");
		return number != NULL && parse_u64(number, 0, UINT64_MAX, &v) == 0 ? v : 0;
	}
	return 0;
}

uint64_t
cgroup_sum(int dirfd, const char *file, const char *key)
{
	_cleanup_close_ int fd = openat(dirfd, file, O_RDONLY | O_CLOEXEC);
	char buf[LINE_SIZE], *p = buf, *word;
	ssize_t n = fd >= 0 ? read(fd, buf, sizeof(buf) - 1) : 0;
	size_t len = strlen(key);
	uint64_t v, sum = 0;

	buf[n > 0 ? n : 0] = '\0';
	while ((word = strsep(&p, " \n")) != NULL)
		if (strncmp(word, key, len) == 0 && parse_u64(word + len, 0, UINT64_MAX, &v) == 0 &&
		    __builtin_add_overflow(sum, v, &sum))
			sum = UINT64_MAX;
	return sum;
}

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)ftw;
	return type == FTW_DP && rmdir(path) < 0 && errno != ENOENT ? errno : 0;
}

int
cgroup_remove(const char *path)
{
	int r;

	if (rmdir(path) == 0 || errno == ENOENT)
		return 0;
	if (errno != EBUSY && errno != ENOTEMPTY)
		return -errno;
	r = nftw(path, remove_one, NFTW_FDS, FTW_DEPTH | FTW_PHYS);
	return r > 0 ? -r : r < 0 ? -errno : 0;
}

int
cgroup_end(const char *path, unsigned tries)
{
	_cleanup_close_ int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	cgroup_write(fd, "cgroup.kill", "1");
	while ((r = cgroup_remove(path)) == -EBUSY && tries-- > 0)
		usleep(RETRY_US);
	return r;
}

int
cgroup_divide(const char *leaf, char *path, size_t size, int *ret_fd)
{
	int kind = cgroup_own(path, size);
	_cleanup_close_ int fd = kind > 0 ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	char procs[NAME_MAX + sizeof("/cgroup.procs")];

	*ret_fd = -1;
	snprintf(procs, sizeof(procs), "%s/cgroup.procs", leaf);
	if (fd < 0 || cgroup_read(fd, "cgroup.procs", NULL) != (uint64_t)getpid() ||
	    (mkdirat(fd, leaf, 0755) < 0 && errno != EEXIST) || cgroup_write(fd, procs, "0") < 0 ||
	    cgroup_read(fd, "cgroup.procs", NULL) != 0)
		return 0;
	*ret_fd = take_fd(&fd);
	return kind;
}

static int
put_limit(int dirfd, const char *file, uint64_t value, const char *rest)
{
	char text[64];

	snprintf(text, sizeof(text), "%llu%s", (unsigned long long)value, rest);
	return value == 0 ? 0 : cgroup_write(dirfd, file, text);
}

int
cgroup_disk(const char *path, uint32_t *ret_major, uint32_t *ret_minor)
{
	char name[64], text[32] = "", *colon;
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (stat(path, &st) < 0)
		return -errno;
	*ret_major = major(st.st_dev);
	*ret_minor = minor(st.st_dev);
	snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/", *ret_major, *ret_minor);
	if (*ret_major == 0 || access(name, F_OK) < 0)
		return -ENODEV;
	snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/partition", *ret_major, *ret_minor);
	if (access(name, F_OK) < 0)
		return 0;
	snprintf(name, sizeof(name), "/sys/dev/block/%u:%u/../dev", *ret_major, *ret_minor);	/* the disk of the partition */
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0 || (colon = strchr(text, ':')) == NULL)
		return -ENODEV;
	*colon++ = '\0';
	colon[strcspn(colon, "\n")] = '\0';
	return parse_u32(text, 1, UINT32_MAX, ret_major) < 0 || parse_u32(colon, 0, UINT32_MAX, ret_minor) < 0 ? -ENODEV : 0;
}

static int
put_io(int fd, const struct cgroup_limits *limits)
{
	char text[128];

	snprintf(text, sizeof(text), "%u:%u rbps=%llu wbps=%llu", limits->io_major, limits->io_minor,
	    (unsigned long long)limits->io_rate, (unsigned long long)limits->io_rate);
	return limits->io_rate != 0 ? cgroup_write(fd, "io.max", text) : 0;
}

int
cgroup_make(int dirfd, const char *name, const struct cgroup_limits *limits)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (mkdirat(dirfd, name, 0755) < 0)
		return -errno;
	fd = openat(dirfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : put_limit(fd, "memory.max", limits->memory_bytes, "");
	if (r == 0)
		r = put_limit(fd, "pids.max", limits->pids, "");
	if (r == 0)	/* thousandths of a cpu are hundreds of the period's microseconds */
		r = put_limit(fd, "cpu.max", limits->cpu_millis * UINT64_C(100), " 100000");
	if (r == 0)
		r = put_io(fd, limits);
	if (r < 0)
		unlinkat(dirfd, name, AT_REMOVEDIR);
	return r < 0 ? r : take_fd(&fd);
}

void
cgroup_usage(int dirfd, const struct rusage *ru, struct cgroup_usage *ret_usage)
{
	struct cgroup_usage u = { 0 };

	if (dirfd >= 0)
		u = (struct cgroup_usage){ .cpu_ms = cgroup_read(dirfd, "cpu.stat", "usage_usec") / 1000,
			.mem_peak_kb = cgroup_read(dirfd, "memory.peak", NULL) / 1024,
			.io_read = cgroup_sum(dirfd, "io.stat", "rbytes="),
			.io_write = cgroup_sum(dirfd, "io.stat", "wbytes="),
			.oom_kills = (uint32_t)cgroup_read(dirfd, "memory.events", "oom_kill"),
			.pids_max = (uint32_t)cgroup_read(dirfd, "pids.events", "max") };
	if (u.cpu_ms == 0)
		u.cpu_ms = (uint64_t)(ru->ru_utime.tv_sec + ru->ru_stime.tv_sec) * 1000 +
		    (uint64_t)(ru->ru_utime.tv_usec + ru->ru_stime.tv_usec) / 1000;
	if (u.mem_peak_kb == 0)
		u.mem_peak_kb = (uint64_t)ru->ru_maxrss;
	if (u.io_read == 0)
		u.io_read = (uint64_t)ru->ru_inblock * RUSAGE_BLOCK;
	if (u.io_write == 0)
		u.io_write = (uint64_t)ru->ru_oublock * RUSAGE_BLOCK;
	*ret_usage = u;
}

void
cgroup_sweep(const char *path, const char *prefix, unsigned tries)
{
	DIR *dir = opendir(path);
	const struct dirent *de;
	char child[PATH_MAX];

	while (dir != NULL && (de = readdir(dir)) != NULL)
		if (strncmp(de->d_name, prefix, strlen(prefix)) == 0 &&
		    snprintf(child, sizeof(child), "%s/%s", path, de->d_name) < (int)sizeof(child))
			cgroup_end(child, tries);
	if (dir != NULL)
		closedir(dir);
}
