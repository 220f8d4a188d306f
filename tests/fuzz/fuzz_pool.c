/* pool_parse, ids_clean: two short texts that decide which uid a workload gets and where. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/pool.h"
#include "proto/ipc/work.h"
#include "workerd/ids.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* No empty step, no "." and no "..", never absolute. */
static void
check_clean(const char *path)
{
	for (const char *p = path; *p != '\0'; p += strspn(p, "/")) {
		size_t n = strcspn(p, "/");

		assert(n > 0 && !(n == 1 && p[0] == '.') && !(n == 2 && p[0] == '.' && p[1] == '.'));
		p += n;
		assert(p[0] == '\0' || (p[0] == '/' && p[1] != '/' && p[1] != '\0'));
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct ids ids = { .configured = "/w/root", .real = "/data/w" };
	char path[WORK_DIR_SIZE], top[IDS_TOP_SIZE], dir[WORK_DIR_SIZE + 64];
	struct pool pool;

	if (pool_parse((const char *)data, size, &pool) == 0)
		assert(pool.first > 0 && pool.gid > 0 && pool.count > 0 && pool.count <= POOL_MAX &&
		    pool.first + pool.count > pool.first);
	if (size >= sizeof(dir))
		return 0;
	memcpy(dir, data, size);
	dir[size] = '\0';
	if (ids_clean(&ids, dir, path) < 0)
		return 0;
	check_clean(path);
	assert(ids_top(path, top) == 0);
	return 0;
}
