/* Small things done with descriptors. Nothing here logs. */
#ifndef EDGEWARD_FDUTIL_H
#define EDGEWARD_FDUTIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

int fd_set_nonblock(int fd);

/* Writes everything to a blocking descriptor; -errno. */
int fd_write_all(int fd, const void *data, size_t len);
/* Reads from a blocking one until its end, at most size bytes; -errno. */
int fd_read_all(int fd, void *buf, size_t size, size_t *ret_len);

/* Reads at most size bytes of a regular file opened beneath dirfd (O_NOFOLLOW, a FIFO never blocks). *ret_data is malloc'd with a NUL behind it.
 * -EFBIG when it is longer, -EINVAL when it is not a regular file, -errno of open and read. */
int fd_read_file(int dirfd, const char *name, size_t size, uint8_t **ret_data, size_t *ret_len);

/* And what was read: owner and mode of the very file. */
int fd_read_file_stat(int dirfd, const char *name, size_t size, uint8_t **ret_data, size_t *ret_len, struct stat *ret_st);

/* A file that this user alone can write, at most size bytes: -ENOENT, or -EPERM for anything else that is there. Otherwise as fd_read_file(). */
int fd_read_own_file(int dirfd, const char *name, size_t size, uint8_t **ret_data, size_t *ret_len);

/*
 * Replaces dirfd/name so that after a power cut there is the old or the new content: name.tmp, fsync, rename, fsync of
 * the directory. -errno; the old file is untouched on failure.
 */
int fd_replace_file(int dirfd, const char *name, const void *data, size_t len, mode_t mode);

/* The same with a symbolic link: name.new, rename, fsync of the directory. Nothing is done when it already leads there. -errno. */
int fd_replace_link(int dirfd, const char *name, const char *target);

/* Bytes that may still be written to the file system of fd; 0 when it has no inode left, or cannot be asked. */
uint64_t fd_free_space(int fd);

/* Removes a directory and the files in it; a directory in it is an error. 0 also when there is none, -errno. */
int fd_remove_flat_dir(int dirfd, const char *name);

/*
 * A directory that only this user can change: made with mode if it is not there, opened without following a link. -EPERM: it is somebody
 * else's or others may write to it. -errno.
 */
int fd_open_own_dir(const char *parent, const char *name, mode_t mode);

/*
 * Attributes of sysfs and the like, by name beneath dirfd. get: at most size - 1 bytes and a NUL behind them; their number. get_u32: one
 * decimal number, with or without a newline. put: in one write. -errno.
 */
ssize_t fd_get(int dirfd, const char *name, void *buf, size_t size);
int fd_get_u32(int dirfd, const char *name, uint32_t *ret_v);
int fd_put(int dirfd, const char *name, const char *text);

/* A sealed memfd with a copy of data: a descriptor or -errno. */
int fd_sealed_memfd(const char *name, const void *data, size_t len);

/* True (1) if fd is a memfd sealed against writing, growing and shrinking, of at most max bytes; its size to *ret_len. -errno or 0 otherwise. */
int fd_is_sealed_memfd(int fd, size_t max, size_t *ret_len);

/*
 * Listeners handed over by the service manager (LISTEN_PID, LISTEN_FDS): the number of descriptors from 3 on, all
 * set close-on-exec, or 0. Clears the variables.
 */
unsigned fd_listen_fds(void);

/* True if fd is a socket of that type (SOCK_SEQPACKET) that listens at this very path. */
bool fd_is_listener(int fd, int type, const char *path);

/*
 * The one listener that was handed over: it must be that, of that type, at dir/name. It is non-blocking afterwards, and nothing above it is
 * open. -ENOTCONN: none was handed over; -ENOTSOCK: it is another one; -errno.
 */
int fd_take_listener(int fd, int type, const char *dir, const char *name);

#endif
