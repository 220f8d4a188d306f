#include "common/fdutil.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"

#define LISTEN_FDS_START	3
#define SEALS	(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int
fd_set_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

int
fd_write_all(int fd, const void *data, size_t len)
{
	const uint8_t *p = data;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int
fd_read_all(int fd, void *buf, size_t size, size_t *ret_len)
{
	uint8_t *p = buf;
	size_t len = 0;

	while (len < size) {
		ssize_t n = read(fd, p + len, size - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		len += (size_t)n;
	}
	*ret_len = len;
	return 0;
}

int
fd_read_file(int dirfd, const char *name, size_t size, uint8_t **ret_data, size_t *ret_len)
{
	struct stat st;

	return fd_read_file_stat(dirfd, name, size, ret_data, ret_len, &st);
}

int
fd_read_file_stat(int dirfd, const char *name, size_t size, uint8_t **ret_data, size_t *ret_len, struct stat *ret_st)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	_cleanup_free_ uint8_t *buf = NULL;
	struct stat st;
	size_t len = 0;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_size < 0 || (uint64_t)st.st_size > size)
		return -EFBIG;
	if (st.st_size > 0)	/* files of /proc have a size of 0 and content */
		size = (size_t)st.st_size;
	buf = malloc(size + 1);
	if (buf == NULL)
		return -ENOMEM;
	r = fd_read_all(fd, buf, size, &len);
	if (r < 0)
		return r;
	buf[len] = '\0';
	*ret_data = take_ptr(&buf);
	*ret_len = len;
	*ret_st = st;
	return 0;
}

int
fd_read_own_file(int dirfd, const char *name, size_t size, uint8_t **ret_data, size_t *ret_len)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct stat st;
	int r = fd_read_file_stat(dirfd, name, size, &data, ret_len, &st);

	if (r < 0)
		return r == -ENOENT ? r : -EPERM;
	if (st.st_uid != geteuid() || (st.st_mode & 022) != 0)
		return -EPERM;
	*ret_data = take_ptr(&data);
	return 0;
}

int
fd_replace_file(int dirfd, const char *name, const void *data, size_t len, mode_t mode)
{
	_cleanup_close_ int fd = -1;
	char tmp[256];
	int r, n = snprintf(tmp, sizeof(tmp), "%s.tmp", name);

	if (n < 0 || (size_t)n >= sizeof(tmp))
		return -ENAMETOOLONG;
	if (unlinkat(dirfd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, len);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	if (r == 0 && renameat(dirfd, tmp, dirfd, name) < 0)
		r = -errno;
	if (r < 0) {
		unlinkat(dirfd, tmp, 0);
		return r;
	}
	return fsync(dirfd) < 0 ? -errno : 0;
}

int
fd_replace_link(int dirfd, const char *name, const char *target)
{
	char now[4096], tmp[256];
	ssize_t len = readlinkat(dirfd, name, now, sizeof(now) - 1);
	int n = snprintf(tmp, sizeof(tmp), "%s.new", name);

	if (n < 0 || (size_t)n >= sizeof(tmp))
		return -ENAMETOOLONG;
	now[len < 0 ? 0 : len] = '\0';
	if (len > 0 && strcmp(now, target) == 0)
		return 0;
	if (unlinkat(dirfd, tmp, 0) < 0 && errno != ENOENT)
		return -errno;
	if (symlinkat(target, dirfd, tmp) < 0 || renameat(dirfd, tmp, dirfd, name) < 0)
		return -errno;
	return fsync(dirfd) < 0 ? -errno : 0;
}

uint64_t
fd_free_space(int fd)
{
	struct statvfs fs;
	uint64_t avail;

	if (fstatvfs(fd, &fs) < 0 || fs.f_bavail > fs.f_blocks || (fs.f_files != 0 && fs.f_ffree == 0))	/* seen with reserved blocks */
		return 0;
	return __builtin_mul_overflow((uint64_t)fs.f_bavail, (uint64_t)fs.f_frsize, &avail) ? UINT64_MAX : avail;
}

int
fd_remove_flat_dir(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	if (dir == NULL)
		return errno == ENOENT ? 0 : -errno;
	for (struct dirent *d; (d = readdir(dir)) != NULL; )
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			unlinkat(fd, d->d_name, 0);
	closedir(dir);
	return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

int
fd_open_own_dir(const char *parent, const char *name, mode_t mode)
{
	_cleanup_close_ int up = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	struct stat st;

	if (up < 0 || (mkdirat(up, name, mode) < 0 && errno != EEXIST))
		return -errno;
	fd = openat(up, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return st.st_uid == geteuid() && (st.st_mode & 022) == 0 ? take_fd(&fd) : -EPERM;
}

ssize_t
fd_get(int dirfd, const char *name, void *buf, size_t size)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	if (n < 0)
		return -errno;
	((char *)buf)[n] = '\0';
	return n;
}

int
fd_get_u32(int dirfd, const char *name, uint32_t *ret_v)
{
	char text[16];
	ssize_t n = fd_get(dirfd, name, text, sizeof(text));

	if (n < 0)
		return (int)n;
	text[strcspn(text, "\n")] = '\0';
	return parse_u32(text, 0, UINT32_MAX, ret_v);
}

int
fd_put(int dirfd, const char *name, const char *text)
{
	_cleanup_close_ int fd = openat(dirfd, name, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));

	return n < 0 ? -errno : n == (ssize_t)strlen(text) ? 0 : -EIO;
}

int
fd_sealed_memfd(const char *name, const void *data, size_t len)
{
	_cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0)
		return -errno;
	r = fd_write_all(fd, data, len);
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		return -errno;
	return take_fd(&fd);
}

int
fd_is_sealed_memfd(int fd, size_t max, size_t *ret_len)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat st;

	if (seals < 0 || fstat(fd, &st) < 0)
		return -errno;
	if ((seals & SEALS) != SEALS || st.st_size < 0 || (uint64_t)st.st_size > max)
		return 0;
	*ret_len = (size_t)st.st_size;
	return 1;
}

unsigned
fd_listen_fds(void)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	uint32_t want_pid, n = 0;
	bool ours = pid != NULL && fds != NULL && parse_u32(pid, 1, INT32_MAX, &want_pid) == 0 &&
	    (pid_t)want_pid == getpid() && parse_u32(fds, 1, 16, &n) == 0;

	unsetenv("LISTEN_PID");
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_FDNAMES");
	for (uint32_t i = 0; ours && i < n; i++)
		if (fcntl(LISTEN_FDS_START + (int)i, F_SETFD, FD_CLOEXEC) < 0)
			return 0;
	return ours ? n : 0;
}

bool
fd_is_listener(int fd, int type, const char *path)
{
	struct sockaddr_un sun = { 0 };
	int is = 0, listening = 0;
	socklen_t len = sizeof(sun), tlen = sizeof(is), llen = sizeof(listening);

	return strlen(path) < sizeof(sun.sun_path) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &is, &tlen) == 0 && is == type &&
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &llen) == 0 && listening != 0 &&
	    getsockname(fd, (struct sockaddr *)&sun, &len) == 0 && sun.sun_family == AF_UNIX &&
	    strncmp(sun.sun_path, path, sizeof(sun.sun_path)) == 0;
}

int
fd_take_listener(int fd, int type, const char *dir, const char *name)
{
	char path[128];

	if (fd_listen_fds() != 1)
		return -ENOTCONN;
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path) || !fd_is_listener(fd, type, path))
		return -ENOTSOCK;
	return close_range((unsigned)fd + 1, ~0u, 0) < 0 ? -errno : fd_set_nonblock(fd);
}
