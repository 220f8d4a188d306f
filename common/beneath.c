#include "common/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/cleanup.h"

int
beneath_open(int root, const char *path)
{
	struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS };
	long fd = syscall(SYS_openat2, root, path[0] != '\0' ? path : ".", &how, sizeof(how));

	return fd < 0 ? -errno : (int)fd;
}

/* Opens path, making its last step in parent if need be. */
static int
step(int root, int parent, const char *path, const char *last)
{
	int fd = beneath_open(root, path);

	if (fd != -ENOENT)
		return fd;
	if (mkdirat(parent, last, 0700) < 0 && errno != EEXIST)
		return -errno;
	return beneath_open(root, path);
}

int
beneath_make(int root, char *path)
{
	_cleanup_close_ int parent = -1;
	int fd = beneath_open(root, path);

	if (fd != -ENOENT)
		return fd;
	for (char *p = path; ; p++) {
		char *slash = strchr(p, '/');

		if (slash != NULL)
			*slash = '\0';
		fd = step(root, parent >= 0 ? parent : root, path, p);
		if (slash != NULL)
			*slash = '/';
		if (fd < 0 || slash == NULL)
			return fd;
		if (parent >= 0)
			close(parent);
		parent = fd;
		p = slash;
	}
}
