#include "workerd/owners.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/keptcopy.h"
#include "common/log.h"

#define NAME	"owners"
#define MAGIC	0x4f574445u
#define VERSION	(1u + SCHEMA_RAISED)

static uint64_t
sum_of(const struct owners_file *f)
{
	return XXH3_64bits(f, offsetof(struct owners_file, sum));
}

void
owners_init(struct owners *o, int dirfd)
{
	memset(o, 0, sizeof(*o));
	o->dirfd = dirfd;
}

static bool
is_whole(const struct owners_file *f, size_t len)
{
	return len == sizeof(*f) && f->magic == MAGIC && f->version >= 1 && f->version <= VERSION && f->sum == sum_of(f);
}

static unsigned
schema_of(const uint8_t *data, size_t len)
{
	struct owners_file f;

	if (len != sizeof(f))
		return 0;
	memcpy(&f, data, sizeof(f));
	return f.magic == MAGIC && f.sum == sum_of(&f) ? f.version : 0;
}

static const struct schema file = { .name = NAME, .max = sizeof(struct owners_file), .now = VERSION, .of = schema_of };

/*
 * Nothing but the separation of directories from before hangs on it: a bad one is kept aside and begun anew. What is no
 * regular file cannot be moved under Landlock and holds nothing to keep.
 */
static int
begin_anew(struct owners *o, const struct pool *pool, int err)
{
	if (err != -ENOENT && renameat(o->dirfd, NAME, o->dirfd, NAME ".bad") < 0 && unlinkat(o->dirfd, NAME, 0) < 0 &&
	    unlinkat(o->dirfd, NAME, AT_REMOVEDIR) < 0)
		return -errno;
	if (err != -ENOENT)
		log_error("the file of owners of work directories was damaged: what could be kept is " NAME ".bad; it is begun anew");
	memset(&o->f, 0, sizeof(o->f));
	o->f = (struct owners_file){ .magic = MAGIC, .version = VERSION, .first = pool->first, .count = pool->count };
	return getrandom(&o->f.seed, sizeof(o->f.seed), 0) == (ssize_t)sizeof(o->f.seed) ? 0 : -EIO;
}

static bool
is_damage(int err)
{
	return err == -EINVAL || err == -EFBIG || err == -ELOOP || err == -EISDIR || err == -EACCES;
}

static int
load(struct owners *o, const struct pool *pool)
{
	_cleanup_free_ uint8_t *data = NULL;
	size_t len = 0;
	int r;

	(void)keptcopy_restore(o->dirfd, &file);
	r = fd_read_file(o->dirfd, NAME, sizeof(o->f), &data, &len);
	if (r == 0)
		memcpy(&o->f, data, len);
	if (r == 0 && !is_whole(&o->f, len))
		r = -EINVAL;
	else if (r == 0 && (o->f.first != pool->first || o->f.count != pool->count))
		r = -ENOENT;	/* of another pool: its ids mean nothing any more */
	if (r == -ENOENT || is_damage(r))
		r = begin_anew(o, pool, r);
	o->loaded = r == 0;
	return r;
}

/* 0: it is that directory's already; 1: it can be given to it. */
static int
look(struct owners *o, const struct pool *pool, uint32_t slot, const char *top, bool fresh, XXH128_canonical_t *ret_name)
{
	static const uint8_t nobody[sizeof(o->f.tops[0])];
	int r = o->loaded ? 0 : load(o, pool);

	if (r < 0 || slot >= POOL_MAX)
		return r < 0 ? r : -EINVAL;
	XXH128_canonicalFromHash(ret_name, XXH3_128bits_withSeed(top, strlen(top), o->f.seed));
	if (memcmp(o->f.tops[slot], ret_name->digest, sizeof(nobody)) == 0)
		return 0;
	return fresh || memcmp(o->f.tops[slot], nobody, sizeof(nobody)) == 0 ? 1 : -EPERM;
}

int
owners_check(struct owners *o, const struct pool *pool, uint32_t slot, const char *top, bool fresh)
{
	XXH128_canonical_t name;
	int r = look(o, pool, slot, top, fresh, &name);

	return r < 0 ? r : 0;
}

int
owners_claim(struct owners *o, const struct pool *pool, uint32_t slot, const char *top, bool fresh)
{
	XXH128_canonical_t name;
	uint8_t was[sizeof(name.digest)];
	int r = look(o, pool, slot, top, fresh, &name);

	if (r <= 0)
		return r;
	memcpy(was, o->f.tops[slot], sizeof(was));
	memcpy(o->f.tops[slot], name.digest, sizeof(was));
	o->f.version = VERSION;
	o->f.sum = sum_of(&o->f);
	r = keptcopy_replace(o->dirfd, &file, &o->f, sizeof(o->f), 0600);
	if (r < 0)
		memcpy(o->f.tops[slot], was, sizeof(was));
	return r;
}
