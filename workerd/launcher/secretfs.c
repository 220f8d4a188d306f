/*
 * Who calls: workinit, as the runner, in a tmpfs that only its workload sees. The workload runs under the same id and may have
 * put anything there, so nothing is followed: every name is opened without links, only regular files are written to, links are
 * removed and their targets left alone, directories are not entered. A file is zeroed before it is unlinked, for who holds it open or by
 * another name; it is replaced by a rename, so that a reader sees the old content or the new one.
 */
#include "workerd/launcher/secretfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "proto/ipc/secrets.h"

#define TEMPORARY	".cloop-new"

static int
open_lease(int base, const char *dir)
{
	int fd = openat(base, dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int
write_new(int dir, const char *name, const void *data, size_t len, mode_t mode)
{
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = fd < 0 ? -errno : fd_write_all(fd, data, len);

	return r == 0 && fchmod(fd, mode) < 0 ? -errno : r;
}

int
secretfs_place(int base, const struct work_str *items)
{
	struct secret s;
	struct wire_r r;
	int got, err = 0;

	wire_r_init(&r, items->s, items->len);
	while (err == 0 && (got = secret_next(&r, &s)) != 0) {
		_cleanup_close_ int dir = -1;
		const char *lease = got == 1 ? strrchr(s.dir, '/') : NULL;

		if (lease == NULL || s.kind != SECRET_FILE)
			return -EBADMSG;
		if (mkdirat(base, lease + 1, 0700) < 0 && errno != EEXIST)
			return -errno;
		dir = open_lease(base, lease + 1);
		err = dir < 0 ? dir : write_new(dir, s.name, s.value, s.len, s.mode);
	}
	return err;
}

/* ---- replace ---- */

static int
copy_content(int dir, int content, mode_t mode)
{
	_cleanup_close_ int fd = -1;
	char buf[4096];
	off_t at = 0;
	ssize_t n;
	int r = 0;

	unlinkat(dir, TEMPORARY, 0);
	fd = openat(dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	while (r == 0 && (n = pread(content, buf, sizeof(buf), at)) > 0) {
		r = fd_write_all(fd, buf, (size_t)n);
		at += n;
	}
	explicit_bzero(buf, sizeof(buf));
	if (r == 0 && (n < 0 || fchmod(fd, mode) < 0))
		r = -errno;
	return r;
}

static int
replace(int base, const struct init_secret *s, int content)
{
	_cleanup_close_ int dir = open_lease(base, s->dir);
	struct stat st;
	size_t len;
	int r;

	if (dir < 0)
		return dir;
	if (fd_is_sealed_memfd(content, SECRET_FILE_MAX, &len) != 1)
		return -EINVAL;
	/* Only what is there as a file is replaced: nothing new appears, and a link that was put there stays one. */
	if (fstatat(dir, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ELOOP;
	r = copy_content(dir, content, s->mode);
	if (r == 0 && renameat(dir, TEMPORARY, dir, s->name) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dir, TEMPORARY, 0);
	return r;
}

/* ---- scrub ---- */

static int
zero(int dir, const char *name, off_t size)
{
	static char none[4096];	/* never written; as a constant it would lie in the file */
	_cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), readable = -1;

	if (fd < 0 && errno == EACCES) {	/* it was given without the right to write */
		readable = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (readable >= 0 && fchmod(readable, 0600) == 0)
			fd = openat(dir, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	}
	if (fd < 0)
		return -errno;
	for (off_t at = 0; at < size; ) {
		size_t n = size - at < (off_t)sizeof(none) ? (size_t)(size - at) : sizeof(none);
		ssize_t wrote = pwrite(fd, none, n, at);

		if (wrote <= 0)
			return wrote < 0 ? -errno : -EIO;
		at += wrote;
	}
	return 0;
}

/* 1 = a regular file is gone, 0 = there was none, -errno. */
static int
scrub(int dir, const char *name)
{
	struct stat st;
	int r = 0;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	if (S_ISREG(st.st_mode))
		r = zero(dir, name, st.st_size);
	if (unlinkat(dir, name, 0) < 0 && r == 0)
		r = -errno;
	return r < 0 ? r : S_ISREG(st.st_mode);
}

static int
clear(int base, const char *name, uint32_t *files)
{
	int dir = open_lease(base, name), err = 0;
	_cleanup_close_ int copy = -1;
	const struct dirent *e;
	DIR *list;

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
	list = copy < 0 ? NULL : fdopendir(dir);
	if (list == NULL) {
		err = -errno;
		close(dir);
		return err;
	}
	while ((e = readdir(list)) != NULL) {
		int r = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ? 0 : scrub(copy, e->d_name);

		if (r < 0 && err == 0)
			err = r;
		*files += r == 1;
	}
	closedir(list);
	if (unlinkat(base, name, AT_REMOVEDIR) < 0 && err == 0)
		err = -errno;
	return err;
}

struct init_done
secretfs_do(int base, const struct init_secret *s, int content)
{
	_cleanup_close_ int dir = -1;
	struct init_done done = { 0 };
	int r;

	switch ((enum init_secret_op)s->op) {
	case INIT_SECRET_REPLACE:
		done.status = replace(base, s, content);
		done.files = done.status == 0;
		break;
	case INIT_SECRET_SCRUB:
		dir = open_lease(base, s->dir);
		r = dir < 0 ? (dir == -ENOENT ? 0 : dir) : scrub(dir, s->name);
		done.status = r < 0 ? r : 0;
		done.files = r == 1;
		break;
	case INIT_SECRET_CLEAR:
		done.status = clear(base, s->dir, &done.files);
		break;
	}
	return done;
}

int
secretfs_wipe(int base)
{
	int fd = fcntl(base, F_DUPFD_CLOEXEC, 0), err = 0;
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	uint32_t files = 0;

	if (list == NULL) {
		err = -errno;
		cleanup_close(&fd);
		return err;
	}
	while ((e = readdir(list)) != NULL) {
		int r = strncmp(e->d_name, LAUNCH_LEASE_DIR, sizeof(LAUNCH_LEASE_DIR) - 1) == 0 ? clear(base, e->d_name, &files) : 0;

		if (r < 0 && err == 0)
			err = r;
	}
	closedir(list);
	return err;
}
