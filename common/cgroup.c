#include "common/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"

#define NFTW_FDS	8
#define LINE_SIZE	4096
#define RETRY_US	10000

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
