/*
 * To which top-level directory a runner id was given, kept in the state directory. The owner of a directory alone does not
 * tell: every runner may make names in the work root, so one could make the directory of somebody's next workload, or a link
 * to it, or move its own there, and would share the id with what is started in it.
 */
#ifndef EDGEWARD_WORKERD_OWNERS_H
#define EDGEWARD_WORKERD_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/pool.h"

struct owners_file {
	uint32_t magic, version;
	uint32_t first, count;		/* the pool it was written for */
	uint64_t seed;			/* so that nobody can choose names of one digest */
	uint8_t tops[POOL_MAX][16];	/* by slot: digest of the directory's name; zeroes = given to nobody yet */
	uint64_t sum;
};

struct owners {
	int dirfd;
	bool loaded;
	struct owners_file f;
};

/* dirfd, the state directory, stays the caller's. Nothing is read yet: the pool is not known. */
void owners_init(struct owners *o, int dirfd);

/*
 * May work in top be done by slot? A slot that is fresh (nothing belongs to it) or was given to nobody is given to top, for
 * good. 0; -EPERM: slot belongs to another directory; -errno: it cannot be written down. A file that is missing, damaged or
 * of another pool counts as empty.
 */
int owners_claim(struct owners *o, const struct pool *pool, uint32_t slot, const char *top, bool fresh);

/* The same question; nothing is given. */
int owners_check(struct owners *o, const struct pool *pool, uint32_t slot, const char *top, bool fresh);

#endif
