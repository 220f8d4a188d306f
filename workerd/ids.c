#include "workerd/ids.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/beneath.h"
#include "common/cleanup.h"
#include "common/pool.h"
#include "proto/ipc/work.h"

int
ids_init(struct ids *ids, const char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	if (path[0] != '/' || len >= sizeof(ids->configured))
		return -EINVAL;
	memcpy(ids->configured, path, len);
	ids->configured[len] = '\0';
	if (realpath(path, ids->real) == NULL)
		return -errno;
	ids->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return ids->root < 0 ? -errno : 0;
}

/* What follows root in path, or NULL. */
static const char *
strip(const char *path, const char *root)
{
	size_t len = strlen(root);

	if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0'))
		return NULL;
	return path + len;
}

int
ids_clean(const struct ids *ids, const char *dir, char *ret_path)
{
	const char *p = dir, *end;
	size_t len = 0;

	if (dir[0] == '/') {
		p = strip(dir, ids->configured);
		if (p == NULL)
			p = strip(dir, ids->real);
		if (p == NULL)
			return -EXDEV;
	}
	for (; *p != '\0'; p = end) {
		size_t n;

		while (*p == '/')
			p++;
		end = strchrnul(p, '/');
		n = (size_t)(end - p);
		if (n == 0 || (n == 1 && p[0] == '.'))
			continue;
		if (n == 2 && memcmp(p, "..", 2) == 0) {
			if (len == 0)
				return -EXDEV;
			while (len > 0 && ret_path[--len] != '/')
				;
			continue;
		}
		if (n > NAME_MAX || len + 1 + n >= WORK_DIR_SIZE)
			return -ENAMETOOLONG;
		if (len > 0)
			ret_path[len++] = '/';
		memcpy(ret_path + len, p, n);
		len += n;
	}
	ret_path[len] = '\0';
	return 0;
}

int
ids_top(const char *path, char ret_top[IDS_TOP_SIZE])
{
	size_t n = strcspn(path, "/");

	if (n >= IDS_TOP_SIZE)
		return -ENAMETOOLONG;
	memcpy(ret_top, path, n);
	ret_top[n] = '\0';
	return 0;
}

static bool
in_pool(const struct ids *ids, uid_t uid)
{
	return uid >= ids->first && uid - ids->first < ids->count;
}

/* Marks the slots whose uid owns a top-level directory. */
static int
mark_owners(const struct ids *ids, uint8_t *used)
{
	int fd = fcntl(ids->root, F_DUPFD_CLOEXEC, 3);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *de;
	struct stat st;

	if (dir == NULL) {
		int saved = errno;

		if (fd >= 0)
			close(fd);
		return -saved;
	}
	rewinddir(dir);
	while ((de = readdir(dir)) != NULL)
		if (strcmp(de->d_name, "..") != 0 && strcmp(de->d_name, ".") != 0 &&
		    fstatat(ids->root, de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && in_pool(ids, st.st_uid))
			used[st.st_uid - ids->first] = 1;
	closedir(dir);
	return 0;
}

/* Slot 0 is the root's own. */
static int
free_slot(const struct ids *ids, const uint8_t *taken, uint32_t *ret_slot)
{
	uint8_t used[POOL_MAX] = { 0 };
	int r = mark_owners(ids, used);

	if (r < 0)
		return r;
	for (uint32_t i = 1; i < ids->count; i++) {
		if (used[i] == 0 && taken[i] == 0) {
			*ret_slot = i;
			return 0;
		}
	}
	return -EUSERS;
}

int
ids_slot(const struct ids *ids, const char *top, const uint8_t *taken, uint32_t *ret_slot, uint32_t *ret_owner)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (ids->count <= 1 || top[0] == '\0') {	/* 1: a named account, which has them all */
		*ret_slot = 0;
		return 0;
	}
	fd = beneath_open(ids->root, top);
	if (fd == -ENOENT)
		return free_slot(ids, taken, ret_slot);
	if (fd < 0 || fstat(fd, &st) < 0)
		return fd < 0 ? fd : -errno;
	*ret_owner = st.st_uid;
	if (!in_pool(ids, st.st_uid))
		return -EACCES;
	*ret_slot = st.st_uid - ids->first;
	return 0;
}
