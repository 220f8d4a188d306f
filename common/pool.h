/* The runner ids of this device: /etc/edgeward/pool, one line "FIRST COUNT GID", written by root. */
#ifndef EDGEWARD_POOL_H
#define EDGEWARD_POOL_H

#include <stddef.h>
#include <stdint.h>

#define POOL_MAX	4096u

struct pool {
	uint32_t first, count;	/* uids first .. first + count - 1; count 0: no pool */
	uint32_t gid;
};

/* 0, or -EINVAL: not three numbers, an id of 0, more than POOL_MAX ids, a range that wraps, 65534 or 65535 in it. */
int pool_parse(const char *text, size_t len, struct pool *ret_pool);

/* A missing file is an empty pool. -EPERM: not owned by root, or writable for others. */
int pool_load(const char *path, struct pool *ret_pool);

/*
 * The same for who will use it and has an id already. -EEXIST: its own uid or gid is in it. Without a pool and on failure the numbers are
 * untouched.
 */
int pool_load_foreign(const char *path, uint32_t uid, uint32_t gid, uint32_t *ret_first, uint32_t *ret_count, uint32_t *ret_gid);

/* What is wrong with the file, for such an error. */
const char *pool_error(int r);

#endif
