/*
 * What may lie there after a power cut or a bad disk: the old file; the new file; an empty or cut one with or without a
 * complete temporary; a directory, FIFO or link somebody put there. Reading never blocks (O_NONBLOCK, regular files
 * only), and nothing is deleted: what cannot be used is renamed, the oldest of three such copies is replaced.
 */
#include "connectd/statefile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"

#define NAME_SIZE	256

/* 0 = taken, -ENOENT, -EBADMSG = there but not usable, other -errno = could not be read. */
static int
try_one(int dirfd, const char *name, size_t max, int (*take)(const uint8_t *data, size_t len, void *ctx), void *ctx)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len;
	int r = fd_read_file(dirfd, name, max, &data, &len);

	/* Too large, a directory, a FIFO, a link: not what we wrote. */
	if (r == -EFBIG || r == -EINVAL || r == -ELOOP || r == -EISDIR || r == -ENXIO)
		return -EBADMSG;
	if (r < 0)
		return r;
	r = take(data, len, ctx);
	explicit_bzero(data, len);
	return r < 0 ? -EBADMSG : 0;
}

/* Renames to the first free NAME.bad-N; when all are taken, the oldest is replaced. */
static void
set_aside(int dirfd, const char *name)
{
	char to[NAME_SIZE], oldest[NAME_SIZE] = "";
	int64_t oldest_sec = INT64_MAX;

	for (int i = 0; i < STATEFILE_ASIDE; i++) {
		struct stat st;

		snprintf(to, sizeof(to), "%s.bad-%d", name, i);
		if (fstatat(dirfd, to, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			renameat(dirfd, name, dirfd, to);
			return;
		}
		if (st.st_ctim.tv_sec < oldest_sec) {
			oldest_sec = st.st_ctim.tv_sec;
			memcpy(oldest, to, sizeof(oldest));
		}
	}
	renameat(dirfd, name, dirfd, oldest);
}

static mode_t
mode_of(int dirfd, const char *name)
{
	struct stat st;

	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_mode & 07777;
}

enum statefile_found
statefile_load(int dirfd, const char *name, size_t max, int (*take)(const uint8_t *data, size_t len, void *ctx),
    void *ctx, mode_t *ret_mode, int *ret_err)
{
	char tmp[NAME_SIZE];
	int r = try_one(dirfd, name, max, take, ctx), t;
	bool bad = r == -EBADMSG;

	*ret_err = r;
	if (ret_mode != NULL)
		*ret_mode = r == 0 ? mode_of(dirfd, name) : 0;
	if (r == 0)
		return STATEFILE_GOOD;
	if (!bad && r != -ENOENT)
		return STATEFILE_UNREADABLE;
	snprintf(tmp, sizeof(tmp), "%s.tmp", name);
	t = try_one(dirfd, tmp, max, take, ctx);
	if (bad)
		set_aside(dirfd, name);
	if (t < 0)
		return bad ? STATEFILE_DAMAGED : STATEFILE_NONE;
	/* Should the rename fail (disk full, read-only) the content is good all the same, and the next start tries again. */
	if (renameat(dirfd, tmp, dirfd, name) == 0)
		fsync(dirfd);
	if (ret_mode != NULL)
		*ret_mode = mode_of(dirfd, name);
	return STATEFILE_RECOVERED;
}
