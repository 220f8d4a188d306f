/* A tar of a few regular files, written as POSIX ustar: small enough that no library is worth its weight. */
#ifndef EDGEWARD_EDGECTL_TAR_H
#define EDGEWARD_EDGECTL_TAR_H

#include <stddef.h>
#include <stdint.h>

/* name is at most 99 bytes; the file gets mode 0600, root and this time. 0 or -errno. */
int tar_add(int fd, const char *name, int64_t mtime_s, const void *data, size_t len);
/* The end: two empty blocks. */
int tar_end(int fd);

#endif
