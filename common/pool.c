#include "common/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"

#define TEXT_MAX	64
#define NUMBERS		3

#define NOBODY_ID	65534u	/* what a user namespace shows for all ids it does not know: a runner's it may not be */
#define NO_ID		65535u	/* -1 in 16 bits */

int
pool_parse(const char *text, size_t len, struct pool *ret_pool)
{
	char buf[TEXT_MAX + 1], *p = buf;
	uint32_t v[NUMBERS];
	struct pool pool;

	if (len > TEXT_MAX || memchr(text, '\0', len) != NULL)
		return -EINVAL;
	memcpy(buf, text, len);
	buf[len] = '\0';
	if (len > 0 && buf[len - 1] == '\n')
		buf[len - 1] = '\0';
	for (int i = 0; i < NUMBERS; i++) {
		const char *word = strsep(&p, " ");

		if (word == NULL || parse_u32(word, 1, UINT32_MAX - 1, &v[i]) < 0)
			return -EINVAL;
	}
	pool = (struct pool){ v[0], v[1], v[2] };
	if (p != NULL || pool.count > POOL_MAX || pool.first > UINT32_MAX - 1 - pool.count)
		return -EINVAL;
	if (NOBODY_ID - pool.first < pool.count || NO_ID - pool.first < pool.count || pool.gid == NOBODY_ID || pool.gid == NO_ID)
		return -EINVAL;
	*ret_pool = pool;
	return 0;
}

int
pool_load(const char *path, struct pool *ret_pool)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char text[TEXT_MAX + 1];
	struct stat st;
	ssize_t n;

	if (fd < 0 && errno == ENOENT) {
		*ret_pool = (struct pool){ 0 };
		return 0;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (st.st_uid != 0 || (st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
		return -EPERM;
	n = read(fd, text, sizeof(text));
	return n < 0 ? -errno : pool_parse(text, (size_t)n, ret_pool);
}

int
pool_load_foreign(const char *path, uint32_t uid, uint32_t gid, uint32_t *ret_first, uint32_t *ret_count, uint32_t *ret_gid)
{
	struct pool pool;
	int r = pool_load(path, &pool);

	if (r < 0 || pool.count == 0)
		return r;
	if (uid - pool.first < pool.count || gid == pool.gid)
		return -EEXIST;
	*ret_first = pool.first;
	*ret_count = pool.count;
	*ret_gid = pool.gid;
	return 0;
}

const char *
pool_error(int r)
{
	return r == -EPERM ? "must belong to root and be writable for nobody else" :
	    r == -EEXIST ? "must hold neither our own uid nor our own gid" :
	    r == -EINVAL ? "expected one line: first uid, count, gid" : strerror(-r);
}
