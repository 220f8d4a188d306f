#include "workerd/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/keptcopy.h"
#include "proto/ipc/ipc.h"
#include "proto/ipc/names.h"
#include "proto/ipc/work.h"

#define NAME	"journal"
#define MAGIC	0x4a574445u
#define VERSION	(1u + SCHEMA_RAISED)
#define SIZE	sizeof(struct journal_record)

uint64_t
journal_key(const char *handle)
{
	return XXH3_64bits(handle, strlen(handle));
}

static uint64_t
sum_of(const struct journal_record *rec)
{
	return XXH3_64bits(rec, offsetof(struct journal_record, sum));
}

static bool
record_ok(const struct journal_record *rec)
{
	if (rec->magic != MAGIC || rec->version == 0 || rec->version > VERSION || rec->sum != sum_of(rec) ||
	    !ipc_str_ok(rec->handle, sizeof(rec->handle)) || rec->outcome > WORK_OUTCOME_LOST)
		return false;
	switch (rec->type) {
	case JOURNAL_STARTED:
		return handle_ok(rec->handle) && rec->key == journal_key(rec->handle);
	case JOURNAL_ENDED:
		return handle_ok(rec->handle) && rec->key == journal_key(rec->handle) && rec->outcome != 0;
	case JOURNAL_DELIVERED:
	case JOURNAL_DRAIN:
		return true;
	default:
		return false;
	}
}

static void
see(struct journal *j, uint64_t key)
{
	j->seen[j->seen_next] = key;
	j->seen_next = (j->seen_next + 1) % JOURNAL_SEEN;
	if (j->seen_n < JOURNAL_SEEN)
		j->seen_n++;
}

/* ---- reading: a table from key to the last record, open addressing, at most half full ---- */

struct table {
	struct journal_record **slots;	/* NULL = free */
	size_t mask;
};

static int
table_init(struct table *t, size_t n)
{
	size_t size = 16;

	while (size < 2 * n + 2)
		size *= 2;
	t->slots = calloc(size, sizeof(*t->slots));
	t->mask = size - 1;
	return t->slots == NULL ? -ENOMEM : 0;
}

static struct journal_record **
table_at(const struct table *t, uint64_t key)
{
	size_t i = (size_t)key & t->mask;

	while (t->slots[i] != NULL && t->slots[i]->key != key)
		i = (i + 1) & t->mask;
	return &t->slots[i];
}

static void
take(struct journal *j, struct table *t, struct journal_record *rec)
{
	struct journal_record **slot = rec->type == JOURNAL_DRAIN ? NULL : table_at(t, rec->key);

	if (slot == NULL) {
		j->drain = rec->outcome != 0;
		return;
	}
	/* The end keeps what the start knew. */
	if (rec->type == JOURNAL_DELIVERED)
		see(j, rec->key);
	*slot = rec;
}

bool
journal_parse(struct journal *j, const uint8_t *data, size_t len,
    void (*live)(const struct journal_record *rec, void *ctx), void *ctx, size_t *ret_good)
{
	static const struct journal_record unwritten;
	size_t n = len / SIZE, used = n;
	_cleanup_free_ struct journal_record *recs = calloc(n + 1, SIZE);
	struct table t = { NULL, 0 };
	bool all_good = true;

	*ret_good = 0;
	if (recs == NULL || table_init(&t, n) < 0)
		return false;
	if (n > 0)
		memcpy(recs, data, n * SIZE);
	while (used > 0 && memcmp(&recs[used - 1], &unwritten, SIZE) == 0)
		used--;
	for (size_t i = 0; i < used; i++) {
		if (record_ok(&recs[i]))
			take(j, &t, &recs[i]);
		else
			all_good = false;
	}
	*ret_good = used * SIZE;
	for (size_t i = 0; i < used; i++)
		if (record_ok(&recs[i]) && recs[i].type != JOURNAL_DELIVERED && recs[i].type != JOURNAL_DRAIN &&
		    *table_at(&t, recs[i].key) == &recs[i])
			live(&recs[i], ctx);
	free(t.slots);
	return all_good;
}

/* ---- the file ---- */

static void
set_aside(int dirfd)
{
	char from[32], to[32];

	for (unsigned i = JOURNAL_ASIDE - 1; i > 0; i--) {
		snprintf(from, sizeof(from), NAME ".bad.%u", i - 1);
		snprintf(to, sizeof(to), NAME ".bad.%u", i);
		renameat(dirfd, from, dirfd, to);
	}
	renameat(dirfd, NAME, dirfd, NAME ".bad.0");
}

/* Of the last record: a release with a higher number appends to what there is. */
static unsigned
schema_of(const uint8_t *data, size_t len)
{
	struct journal_record rec;
	size_t n = len / SIZE;

	if (n == 0)
		return 0;
	memcpy(&rec, data + (n - 1) * SIZE, SIZE);
	return rec.magic == MAGIC && rec.sum == sum_of(&rec) ? rec.version : 0;
}

static const struct schema file = { .name = NAME, .max = JOURNAL_READ_MAX, .now = VERSION, .of = schema_of };

static int
open_file(struct journal *j)
{
	struct stat st;

	j->fd = openat(j->dirfd, NAME, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (j->fd < 0)
		return -errno;
	if (fstat(j->fd, &st) < 0 || !S_ISREG(st.st_mode)) {
		journal_close(j);
		return -EINVAL;
	}
	j->records = (size_t)st.st_size / SIZE;
	return 0;
}

struct collect {
	struct journal_record *recs;
	size_t n, size;
	void (*live)(const struct journal_record *rec, void *ctx);
	void *ctx;
};

static void
collect_live(const struct journal_record *rec, void *ctx)
{
	struct collect *c = ctx;

	if (c->n == c->size) {
		size_t size = c->size * 2 + 64;
		struct journal_record *p = reallocarray(c->recs, size, SIZE);

		if (p == NULL)
			return;
		c->recs = p;
		c->size = size;
	}
	c->recs[c->n++] = *rec;
	c->live(rec, c->ctx);
}

int
journal_open(struct journal *j, int dirfd, void (*live)(const struct journal_record *rec, void *ctx), void *ctx)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct collect c = { .live = live, .ctx = ctx };
	size_t len = 0, good = 0;
	bool clean;
	int r;

	*j = (struct journal){ .dirfd = dirfd, .fd = -1 };
	(void)keptcopy_restore(dirfd, &file);
	(void)keptcopy_keep(dirfd, &file);	/* before the first record of ours; without room for it there is none */
	r = fd_read_file(dirfd, NAME, JOURNAL_READ_MAX, &data, &len);
	clean = r == -ENOENT || (r == 0 && journal_parse(j, data, len, collect_live, &c, &good));
	if (!clean)
		set_aside(dirfd);
	r = clean ? open_file(j) : journal_rewrite(j, c.recs, c.n);
	if (clean && r == 0 && good < len)
		r = ftruncate(j->fd, (off_t)good) < 0 ? -errno : 0;
	free(c.recs);
	return r < 0 ? r : clean ? 0 : 1;
}

static void
seal(struct journal_record *rec)
{
	rec->magic = MAGIC;
	rec->version = VERSION;
	if (rec->handle[0] != '\0')
		rec->key = journal_key(rec->handle);
	if (rec->type == JOURNAL_DELIVERED)
		memset(rec->handle, 0, sizeof(rec->handle));
	rec->sum = sum_of(rec);
}

int
journal_append(struct journal *j, struct journal_record *rec)
{
	ssize_t n;
	int r = j->fd < 0 ? open_file(j) : 0;

	seal(rec);
	if (rec->type == JOURNAL_DELIVERED)
		see(j, rec->key);
	if (rec->type == JOURNAL_DRAIN)
		j->drain = rec->outcome != 0;
	if (r < 0)
		return r;
	n = write(j->fd, rec, SIZE);
	if (n == (ssize_t)SIZE) {
		j->records++;
		return 0;
	}
	r = n < 0 ? -errno : -ENOSPC;
	if (n > 0 && ftruncate(j->fd, (off_t)(j->records * SIZE)) < 0)
		journal_close(j);
	return r;
}

bool
journal_is_long(const struct journal *j)
{
	return j->records >= JOURNAL_MAX;
}

int
journal_rewrite(struct journal *j, const struct journal_record *live, size_t n)
{
	size_t total = n + j->seen_n + 1;
	_cleanup_free_ struct journal_record *recs = calloc(total, SIZE);
	uint32_t at = (j->seen_next + JOURNAL_SEEN - j->seen_n) % JOURNAL_SEEN;
	int r;

	if (recs == NULL)
		return -ENOMEM;
	recs[0] = (struct journal_record){ .type = JOURNAL_DRAIN, .outcome = j->drain };
	for (uint32_t i = 0; i < j->seen_n; i++)
		recs[1 + i] = (struct journal_record){ .type = JOURNAL_DELIVERED,
			.key = j->seen[(at + i) % JOURNAL_SEEN] };
	if (n > 0)
		memcpy(recs + 1 + j->seen_n, live, n * SIZE);
	for (size_t i = 0; i < total; i++)
		seal(&recs[i]);
	r = fd_replace_file(j->dirfd, NAME, recs, total * SIZE, 0600);
	if (r < 0)
		return r;
	journal_close(j);
	return open_file(j);
}

bool
journal_seen(const struct journal *j, const char *handle)
{
	uint64_t key = journal_key(handle);

	for (uint32_t i = 0; i < j->seen_n; i++)
		if (j->seen[i] == key)
			return true;
	return false;
}

void
journal_close(struct journal *j)
{
	if (j->fd >= 0)
		close(j->fd);
	j->fd = -1;
}
