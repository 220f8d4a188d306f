#include "workerd/spool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "proto/ipc/work.h"

#define SEGMENT_MIN	(64u << 10)

static void
reader_off(struct spooldir *dir)
{
	if (dir->read_fd >= 0)
		close(dir->read_fd);
	dir->read_fd = -1;
	dir->reader = NULL;
	dir->block_len = 0;
}

static void
account(struct spool *sp, uint64_t bytes)
{
	sp->used += bytes;
	sp->dir->used += bytes;
}

/* Takes segment i out of the list and away from the disk. */
static void
take_out(struct spool *sp, unsigned i)
{
	struct segment seg = sp->seg[i];

	if (sp->dir->reader == sp && sp->dir->read_base == seg.base)
		reader_off(sp->dir);
	if (i == sp->n - 1)
		spool_finish(sp);
	sp->used -= seg.size;
	spooldir_remove(sp->dir, sp->handle, seg.base, seg.size, seg.damaged);
	memmove(&sp->seg[i], &sp->seg[i + 1], (sp->n - i - 1) * sizeof(seg));
	sp->n--;
}

/* ---- making, adopting, ending ---- */

struct spool *
spool_new(struct spooldir *dir, const char *handle)
{
	struct spool *sp = calloc(1, sizeof(*sp));

	if (sp == NULL)
		return NULL;
	sp->dir = dir;
	sp->fd = -1;
	memcpy(sp->handle, handle, strnlen(handle, sizeof(sp->handle) - 1));
	return sp;
}

static void
say_damaged(const struct spool *sp, const struct segment *seg)
{
	log_error("spool of %s: the segment of offset %llu is damaged from offset %llu on: what is missing is told as a gap, the "
	    "file is kept aside", sp->handle, (unsigned long long)seg->base, (unsigned long long)seg->end);
}

/*
 * One file of an earlier life. The size counted so far was the disk's; from here on it is what we know of. What was cut in the middle of
 * being written lost nothing: it is still held in memory, and a file that is whole up to there is good.
 */
static void
adopt_one(struct spool *sp, struct spool_file *file, uint64_t held)
{
	struct segment seg = { .base = file->base, .end = file->base, .size = file->bytes, .damaged = true };
	int fd = segment_open(sp->dir->fd, sp->handle, file->base);
	int r = fd < 0 ? fd : segment_scan(fd, sp->handle, file->base, &seg);

	file->taken = true;
	if (fd >= 0)
		close(fd);
	sp->dir->used -= file->bytes;
	seg.size = seg.damaged && file->bytes > seg.size ? file->bytes : seg.size;
	account(sp, seg.size);
	seg.damaged = (r < 0 || seg.damaged) && seg.end < held;
	if (seg.damaged)
		say_damaged(sp, &seg);
	/* A segment that was cut where it could not be read is whole again at first sight; the later one stands for itself. */
	if (sp->n > 0 && seg.base < sp->seg[sp->n - 1].end)
		sp->seg[sp->n - 1].end = seg.base;
	if (sp->n > 0 && seg.base > sp->seg[sp->n - 1].end && seg.before == 0 && !sp->seg[sp->n - 1].damaged)
		log_error("spool of %s: output from offset %llu to %llu is missing: it is told as a gap", sp->handle,
		    (unsigned long long)sp->seg[sp->n - 1].end, (unsigned long long)seg.base);
	sp->seg[sp->n++] = seg;
	if (seg.end == seg.base)
		take_out(sp, sp->n - 1);
}

struct spool *
spool_adopt(struct spooldir *dir, const char *handle, uint64_t held)
{
	struct spool_file *file = spooldir_found(dir, handle);
	struct spool *sp = file != NULL ? spool_new(dir, handle) : NULL;

	if (sp == NULL)
		return NULL;
	for (; file != NULL && sp->n < SPOOL_SEGMENTS; file = spooldir_found(dir, handle))
		adopt_one(sp, file, held);
	return sp;
}

void
spool_free(struct spool *sp)
{
	if (sp == NULL)
		return;
	if (sp->dir->reader == sp)
		reader_off(sp->dir);
	spool_finish(sp);
	free(sp);
}

void
spool_delete(struct spool *sp)
{
	while (sp != NULL && sp->n > 0)
		take_out(sp, sp->n - 1);
	spool_free(sp);
}

uint64_t
spool_from(const struct spool *sp)
{
	return sp != NULL && sp->n > 0 ? sp->seg[0].base : 0;
}

uint64_t
spool_end(const struct spool *sp)
{
	return sp != NULL && sp->n > 0 ? sp->seg[sp->n - 1].end : 0;
}

uint32_t
spool_holes(const struct spool *sp)
{
	uint32_t n = 0;

	for (unsigned i = 1; sp != NULL && i < sp->n; i++)
		n += sp->seg[i].base != sp->seg[i - 1].end;
	return n;
}

uint64_t
spool_produced(const struct spool *sp)
{
	uint64_t produced = spool_end(sp);

	for (unsigned i = 0; sp != NULL && i < sp->n; i++)
		produced = sp->seg[i].produced > produced ? sp->seg[i].produced : produced;
	return produced;
}

/* ---- writing ---- */

static uint64_t
segment_max(const struct spool *sp)
{
	uint64_t max = sp->dir->each / SPOOL_PARTS;

	return max > SEGMENT_MIN ? max : SEGMENT_MIN;
}

/* How much of len fits the bounds; 0 = nothing. head: bytes for a new file. */
static size_t
within_bounds(const struct spool *sp, size_t len, uint64_t head)
{
	const struct spooldir *dir = sp->dir;
	uint64_t left = dir->each > sp->used ? dir->each - sp->used : 0;
	uint64_t all = dir->total > dir->used ? dir->total - dir->used : 0;
	uint64_t more = segment_cost(SEGMENT_WRITE) - SEGMENT_WRITE + head;

	left = left < all ? left : all;
	left = left > more ? left - more : 0;
	return len < left ? len : (size_t)left;
}

static int
new_segment(struct spool *sp, uint64_t offset, uint32_t before)
{
	struct segment seg;
	int fd;

	spool_finish(sp);
	if (sp->n == SPOOL_SEGMENTS)
		return -ENOBUFS;
	fd = segment_create(sp->dir->fd, sp->handle, offset, spool_end(sp) == offset ? 0 : before, &seg);
	if (fd < 0)
		return spooldir_outcome(sp->dir, fd);
	sp->fd = fd;
	sp->seg[sp->n++] = seg;
	account(sp, seg.size);
	return 0;
}

static ssize_t
append(struct spool *sp, const uint8_t *data, size_t len, uint64_t produced)
{
	struct segment *seg = &sp->seg[sp->n - 1];
	uint64_t before = seg->size;
	int r = segment_append(sp->fd, seg, data, len, produced);

	if (r < 0 && (r == -ESTALE || seg->end == seg->base))
		spool_finish(sp);
	if (r < 0 && seg->end == seg->base)
		take_out(sp, sp->n - 1);
	if (r < 0)
		return spooldir_outcome(sp->dir, r == -ESTALE ? -EIO : r);
	account(sp, seg->size - before);
	return (ssize_t)len;
}

ssize_t
spool_write(struct spool *sp, uint64_t offset, const uint8_t *data, size_t len, uint32_t before, uint64_t produced)
{
	bool fresh = sp->fd < 0 || sp->n == 0 || spool_end(sp) != offset || sp->seg[sp->n - 1].size >= segment_max(sp);
	uint64_t most = segment_max(sp) < SEGMENT_WRITE ? segment_max(sp) : SEGMENT_WRITE;
	size_t fits = within_bounds(sp, len < most ? len : (size_t)most, fresh ? sizeof(struct segment_head) : 0);
	int r = fits > 0 ? spooldir_may_write(sp->dir, segment_cost(fits) + sizeof(struct segment_head)) : -ENOBUFS;

	if (r == 0 && fresh)
		r = new_segment(sp, offset, before);
	if (r == -ENOBUFS && !sp->told_full) {
		sp->told_full = true;
		log_info("spool of %s: full at %llu bytes: [work] overflow decides what happens now", sp->handle,
		    (unsigned long long)sp->used);
	}
	if (r < 0)
		return r;
	r = (int)append(sp, data, fits, produced);
	return r > 0 ? spooldir_outcome(sp->dir, 0), r : r;
}

void
spool_note(struct spool *sp, uint64_t produced)
{
	struct segment *seg = sp->n > 0 ? &sp->seg[sp->n - 1] : NULL;

	if (seg == NULL || seg->produced >= produced)
		return;
	seg->produced = produced;
	segment_set_head(sp->dir->fd, sp->handle, seg);	/* no more than a note: nothing depends on it */
}

void
spool_finish(struct spool *sp)
{
	if (sp->fd >= 0)
		close(sp->fd);
	sp->fd = -1;
}

void
spool_ack(struct spool *sp, uint64_t offset)
{
	while (sp->n > 0 && sp->seg[0].end <= offset) {
		take_out(sp, 0);
		sp->told_full = false;
	}
}

bool
spool_drop(struct spool *sp, uint32_t reason, uint64_t *ret_from, uint64_t *ret_to)
{
	if (sp == NULL || sp->n == 0)
		return false;
	*ret_from = sp->seg[0].base;
	*ret_to = sp->seg[0].end;
	if (sp->n > 1 && sp->seg[1].base == *ret_to) {
		sp->seg[1].before = reason;
		segment_set_head(sp->dir->fd, sp->handle, &sp->seg[1]);	/* else a later life calls it lost */
	}
	take_out(sp, 0);
	return true;
}

/* ---- reading ---- */

/* The block of sp that holds offset is in dir->block afterwards. -EBADMSG and other errors: it cannot be had. */
static int
read_block(struct spool *sp, const struct segment *seg, uint64_t offset)
{
	struct spooldir *dir = sp->dir;
	ssize_t n;

	if (dir->reader == sp && dir->read_base == seg->base && offset >= dir->block_at &&
	    offset < dir->block_at + dir->block_len)
		return 0;
	if (dir->block == NULL && (dir->block = malloc(SEGMENT_BLOCK)) == NULL)
		fatal("out of memory");
	if (dir->reader != sp || dir->read_base != seg->base) {
		reader_off(dir);
		dir->read_fd = segment_open(dir->fd, sp->handle, seg->base);
		if (dir->read_fd < 0)
			return dir->read_fd;
		dir->reader = sp;
		dir->read_base = seg->base;
		dir->place = (struct segment_place){ 0 };
	}
	n = segment_read(dir->read_fd, seg, &dir->place, offset, dir->block, &dir->block_at);
	dir->block_len = n > 0 ? (size_t)n : 0;
	return n > 0 ? 0 : (int)n;
}

/* Segment i cannot be read at offset: what is before stays, what is behind is a hole now. */
static void
cut(struct spool *sp, unsigned i, uint64_t offset)
{
	struct segment *seg = &sp->seg[i];

	seg->damaged = true;
	seg->end = offset;
	if (i == sp->n - 1)
		spool_finish(sp);
	else
		sp->seg[i + 1].before = WORK_GAP_LOST;
	say_damaged(sp, seg);
	reader_off(sp->dir);
	if (seg->end == seg->base)
		take_out(sp, i);
}

bool
spool_at(struct spool *sp, uint64_t offset, struct retained *ret, bool *ret_lost)
{
	unsigned i = 0;

	*ret_lost = false;
	while (i < sp->n && sp->seg[i].end <= offset)
		i++;
	if (i < sp->n && sp->seg[i].base <= offset) {
		if (read_block(sp, &sp->seg[i], offset) == 0) {
			uint64_t in = offset - sp->dir->block_at;

			*ret = (struct retained){ .data = sp->dir->block + in, .len = sp->dir->block_len - in };
			return true;
		}
		*ret_lost = true;
		cut(sp, i, offset);
		i = 0;
		while (i < sp->n && sp->seg[i].end <= offset)
			i++;
	}
	if (i == sp->n)
		return false;
	*ret = (struct retained){ .gap_to = sp->seg[i].base,
		.reason = sp->seg[i].before != 0 ? sp->seg[i].before : WORK_GAP_LOST };
	return true;
}
