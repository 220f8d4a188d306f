#include "connectd/upstage.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"

#define SYNC_EVERY	(1u << 20)

void
upstage_init(struct upstage *st, int dir)
{
	*st = (struct upstage){ .dir = dir, .fd = -1 };
}

/* Whatever it is. A directory that is not empty stays, and the next step says so. */
static void
remove_name(const struct upstage *st, const char *name)
{
	if (unlinkat(st->dir, name, 0) < 0 && errno == EISDIR)
		unlinkat(st->dir, name, AT_REMOVEDIR);
}

static void
close_part(struct upstage *st)
{
	if (st->fd >= 0)
		close(take_fd(&st->fd));
	st->written = st->synced = 0;
}

static bool
has(const struct upstage *st, const char *name)
{
	struct stat s;

	return fstatat(st->dir, name, &s, AT_SYMLINK_NOFOLLOW) == 0;
}

bool
upstage_requested(const struct upstage *st)
{
	return has(st, UPSTAGE_REQUEST);
}

bool
upstage_has_release(const struct upstage *st)
{
	return has(st, UPSTAGE_RELEASE);
}

void
upstage_drop_part(struct upstage *st)
{
	close_part(st);
	remove_name(st, UPSTAGE_PART);
}

void
upstage_clear(struct upstage *st)
{
	upstage_drop_part(st);
	if (!upstage_requested(st))
		remove_name(st, UPSTAGE_RELEASE);
}

int
upstage_begin(struct upstage *st)
{
	upstage_drop_part(st);
	st->fd = openat(st->dir, UPSTAGE_PART, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return st->fd < 0 ? -errno : 0;
}

int
upstage_write(struct upstage *st, const void *data, size_t len)
{
	int r = fd_write_all(st->fd, data, len);

	if (r < 0)
		return r;
	st->written += len;
	if (st->written - st->synced < SYNC_EVERY)
		return 0;
	st->synced = st->written;
	return fdatasync(st->fd) < 0 ? -errno : 0;
}

int
upstage_room(const struct upstage *st, uint64_t len, uint64_t low)
{
	struct statfs fs;

	if (fstatfs(st->dir, &fs) < 0)
		return -errno;
	return (uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize < len + low ? -ENOSPC : 0;
}

int
upstage_commit(struct upstage *st)
{
	if (fsync(st->fd) < 0)
		return -errno;
	if (upstage_requested(st))
		return -EEXIST;
	remove_name(st, UPSTAGE_RELEASE);
	if (renameat(st->dir, UPSTAGE_PART, st->dir, UPSTAGE_RELEASE) < 0)
		return -errno;
	close_part(st);
	return fsync(st->dir) < 0 ? -errno : 0;
}

int
upstage_request(const struct upstage *st, const struct upgrade_request *request)
{
	char text[512];
	int n = upgrade_request_write(request, text, sizeof(text));

	if (n < 0)
		return n;
	if (upstage_requested(st))
		return -EEXIST;
	return fd_replace_file(st->dir, UPSTAGE_REQUEST, text, (size_t)n, 0600);
}

bool
upstage_withdraw(struct upstage *st)
{
	if (unlinkat(st->dir, UPSTAGE_REQUEST, 0) < 0)
		return false;
	upstage_clear(st);
	return true;
}
