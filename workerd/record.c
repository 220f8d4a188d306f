#include "workerd/record.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "proto/ipc/ipc.h"

#define MAGIC		0x6477726465726577ULL
#define VERSION		1u
#define RING_MAX	(1ULL << 30)
#define NO_INTENT	UINT64_MAX
#define HASH_LAG	32768u		/* bytes that may wait to be hashed: small output is hashed once, at the end */
#define KEEP		(16u * RECORD_PAGE)	/* pages of the ring a spare keeps */

static uint64_t
ring_size(uint64_t want)
{
	return (want + RECORD_PAGE - 1) / RECORD_PAGE * RECORD_PAGE;
}

/* Head, ring, and the ring once more. */
static int
map(struct record *rec, int fd, uint64_t base, uint64_t ring)
{
	size_t size = RECORD_PAGE + 2 * (size_t)ring;
	uint8_t *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return -errno;
	if (mmap(p, RECORD_PAGE + (size_t)ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, (off_t)base) == MAP_FAILED ||
	    mmap(p + RECORD_PAGE + ring, (size_t)ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
	    (off_t)base + RECORD_PAGE) == MAP_FAILED) {
		int saved = errno;

		munmap(p, size);
		return -saved;
	}
	rec->h = (struct record_head *)(void *)p;
	rec->ring = p + RECORD_PAGE;
	return 0;
}

static void
unmap(struct record *rec, uint64_t ring)
{
	munmap(rec->h, RECORD_PAGE + 2 * (size_t)ring);
	rec->h = NULL;
	rec->ring = NULL;
}

static int
make(uint64_t ring, uint64_t beyond, struct record *rec)
{
	static const struct launch_report none;
	_cleanup_close_ int fd = memfd_create("record", MFD_CLOEXEC);
	_cleanup_close_ int report = memfd_create("report", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int r;

	if (fd < 0 || ftruncate(fd, (off_t)(RECORD_PAGE + ring + beyond)) < 0 || report < 0)
		return -errno;
	r = fd_write_all(report, &none, sizeof(none));
	if (r == 0 && fcntl(report, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW) < 0)
		r = -errno;
	if (r == 0)
		r = map(rec, fd, 0, ring);
	if (r < 0)
		return r;
	rec->fd = take_fd(&fd);
	rec->report = take_fd(&report);
	return 0;
}

static void
fresh_head(struct record_head *h, const char *handle, uint64_t ring, uint64_t beyond)
{
	memset(h, 0, sizeof(*h));
	h->version = VERSION;
	h->digest_version = XXH_versionNumber();
	h->ring = ring;
	h->beyond = beyond;
	memcpy(h->handle, handle, strnlen(handle, sizeof(h->handle) - 1));
	h->intent_head = NO_INTENT;
	XXH3_128bits_reset(&h->digest[0].state);
	h->magic = MAGIC;
}

int
record_new(struct record_spares *spares, const char *handle, uint64_t ring, struct record *ret_rec)
{
	struct record rec = { .fd = -1, .report = -1 };
	static const struct launch_report none;
	int r = 0;

	ring = ring_size(ring);
	if (spares->n > 0) {
		rec = spares->spare[--spares->n];
		if (pwrite(rec.report, &none, sizeof(none), 0) != (ssize_t)sizeof(none))
			r = -EIO;
	} else {
		r = make(ring, 0, &rec);
	}
	if (r < 0)
		return r;
	fresh_head(rec.h, handle, ring, 0);
	*ret_rec = rec;
	return 0;
}

int
record_new_beyond(const char *handle, uint64_t ring, uint64_t beyond, struct record *ret_rec)
{
	struct record rec = { .fd = -1, .report = -1 };
	int r;

	ring = ring_size(ring);
	beyond = ring_size(beyond);
	r = make(ring, beyond, &rec);
	if (r < 0)
		return r;
	fresh_head(rec.h, handle, ring, beyond);
	*ret_rec = rec;
	return 0;
}

int
record_inner_new(const struct record *outer, uint64_t base, uint64_t ring, struct record *ret_rec)
{
	struct record rec = { .fd = outer->fd, .report = -1, .base = base };
	int r = map(&rec, rec.fd, base, ring);

	if (r < 0)
		return r;
	fresh_head(rec.h, outer->h->handle, ring, 0);
	*ret_rec = rec;
	return 0;
}

void
record_inner_close(struct record *inner)
{
	if (inner->h != NULL)
		unmap(inner, inner->h->ring);
}

void
record_inner_done(struct record *inner)
{
	if (inner->h == NULL)
		return;
	madvise(inner->ring, (size_t)inner->h->ring, MADV_REMOVE);	/* what was in it is nobody's business */
	for (unsigned i = 0; i < 2; i++)
		explicit_bzero(&inner->h->digest[i].state, sizeof(inner->h->digest[i].state));	/* it keeps the last of what it was fed */
	record_inner_close(inner);
}

static bool
output_ok(const struct record_head *h)
{
	uint64_t held = h->head - h->tail;

	return h->tail <= h->head && held <= h->ring && h->acked <= h->tail && h->digest_now <= 1 &&
	    h->digest[h->digest_now].offset >= h->tail && h->digest[h->digest_now].offset <= h->head &&
	    (h->intent_head != h->head || h->intent_len <= h->ring - held) &&
	    ((h->flags & RECORD_F_TREE_GONE) == 0 || h->drain_to >= h->head);
}

static bool
head_ok(const struct record_head *h, const char *handle, uint64_t size)
{
	return h->magic == MAGIC && h->version == VERSION && h->ring > 0 && h->ring <= RING_MAX &&
	    h->ring % RECORD_PAGE == 0 && h->beyond <= RING_MAX && size >= RECORD_PAGE + h->ring + h->beyond + h->job_len && h->seam_now <= 1 &&
	    ipc_str_ok(h->handle, sizeof(h->handle)) && strcmp(h->handle, handle) == 0 && output_ok(h);
}

/* Short reads are moved by splice, whose file position says what was moved; longer ones overwrite a sentinel. */
static int
settle(struct record *rec, int pipe)
{
	struct record_head *h = rec->h;
	uint64_t at = h->head % h->ring, moved;
	int now = 0;

	if (h->intent_head != h->head)
		return 0;
	if (h->intent_len < RECORD_SENTINEL) {
		off_t pos = lseek(rec->fd, 0, SEEK_CUR);

		moved = pos >= 0 ? (uint64_t)pos - rec->base - RECORD_PAGE - at : UINT64_MAX;
		if (moved > h->intent_len)
			return -EBADMSG;
	} else {
		if (ioctl(pipe, FIONREAD, &now) < 0)
			return -errno;
		moved = now < (int)h->intent_before || memcmp(rec->ring + at + h->intent_len - RECORD_SENTINEL,
		    h->sentinel, RECORD_SENTINEL) != 0 ? h->intent_len : 0;
	}
	h->intent_head = NO_INTENT;
	h->head += moved;
	return 0;
}

/* A state that is not one would lead the library astray. */
static bool
digest_ok(const struct record_digest *d, const XXH3_state_t *fresh)
{
	return d->state.secretLimit == fresh->secretLimit && d->state.nbStripesPerBlock == fresh->nbStripesPerBlock &&
	    d->state.nbStripesSoFar <= fresh->nbStripesPerBlock && d->state.bufferedSize <= sizeof(d->state.buffer) &&
	    d->state.seed == 0 && d->state.useSeed == 0 && d->state.totalLen == d->offset;
}

static void
revive_digest(struct record_head *h)
{
	struct record_digest *now = &h->digest[h->digest_now];
	XXH3_state_t fresh;

	XXH3_128bits_reset(&fresh);
	if (h->digest_version != XXH_versionNumber() || !digest_ok(now, &fresh)) {
		h->flags |= RECORD_F_NO_DIGEST;
		now->state = fresh;
	}
	now->state.extSecret = fresh.extSecret;	/* a pointer into the library of this process */
}

/* A kill in the middle of a change leaves ranges that are none, and a record of before has none: nothing is counted a second time. */
static void
revive_lost(struct record_head *h)
{
	uint64_t counted = h->gap_end;
	int more;

	if (!lostset_ok(&h->lost)) {
		h->lost.n = 0;
		counted = h->tail;
	}
	if (h->lost.n == 0)
		lostset_add(&h->lost, h->acked, counted, &more);
	h->gap_end = 0;
}

static int
adopt(struct record *rec, const char *handle, uint64_t size, int pipe)
{
	struct record_head copy;
	int r;

	if (pread(rec->fd, &copy, sizeof(copy), (off_t)rec->base) != (ssize_t)sizeof(copy) || !head_ok(&copy, handle, size))
		return -EBADMSG;
	r = map(rec, rec->fd, rec->base, copy.ring);
	if (r < 0)
		return r;
	r = settle(rec, pipe);
	if (r < 0) {
		unmap(rec, copy.ring);
		return r;
	}
	revive_digest(rec->h);
	revive_lost(rec->h);
	return 0;
}

int
record_adopt(int fd, int report, const char *handle, int pipe, struct record *ret_rec)
{
	struct record rec = { .fd = fd, .report = report };
	struct stat st;
	int r = fstat(fd, &st) < 0 ? -errno : adopt(&rec, handle, (uint64_t)st.st_size, pipe);

	if (r == 0)
		*ret_rec = rec;
	return r;
}

int
record_inner_adopt(const struct record *outer, uint64_t base, uint64_t ring, int pipe, struct record *ret_rec)
{
	struct record rec = { .fd = outer->fd, .report = -1, .base = base };
	const struct record_seam *seam = &outer->h->seam[outer->h->seam_now];
	int r = adopt(&rec, outer->h->handle, RECORD_PAGE + ring, pipe);

	if (r < 0)
		return r;
	if (seam->head < outer->h->head || seam->head - outer->h->tail > outer->h->ring || seam->from > rec.h->head ||
	    seam->from < rec.h->tail || seam->out < seam->from) {
		unmap(&rec, ring);
		return -EBADMSG;
	}
	outer->h->head = seam->head;	/* it may have got further than its head says */
	*ret_rec = rec;
	return 0;
}

void
record_close(struct record *rec)
{
	if (rec->h == NULL)
		return;
	unmap(rec, rec->h->ring);
	close(rec->fd);
	if (rec->report >= 0)
		close(rec->report);
	*rec = (struct record){ .fd = -1, .report = -1 };
}

void
record_free(struct record_spares *spares, struct record *rec)
{
	uint64_t ring = rec->h != NULL ? rec->h->ring : 0;

	if (rec->h == NULL)
		return;
	record_wipe_job(rec);
	if (spares != NULL && rec->h->beyond == 0 && spares->n < RECORD_SPARES && (spares->n == 0 || spares->spare[0].h->ring == ring)) {
		if (rec->h->head > KEEP && ring > KEEP)
			madvise(rec->ring + KEEP, (size_t)ring - KEEP, MADV_REMOVE);
		spares->spare[spares->n++] = *rec;
		*rec = (struct record){ .fd = -1, .report = -1 };
	} else {
		record_close(rec);
	}
}

void
record_spares_done(struct record_spares *spares)
{
	while (spares->n > 0)
		record_free(NULL, &spares->spare[--spares->n]);
}

static void
hash_to(struct record *rec, uint64_t offset)
{
	struct record_head *h = rec->h;
	const struct record_digest *now = &h->digest[h->digest_now];
	struct record_digest *next = &h->digest[1 - h->digest_now];

	if (offset <= now->offset)
		return;
	*next = *now;
	XXH3_128bits_update(&next->state, rec->ring + now->offset % h->ring, offset - now->offset);
	next->offset = offset;
	__atomic_store_n(&h->digest_now, 1 - h->digest_now, __ATOMIC_RELEASE);
}

/* 16 bytes no workload can foresee. */
static void
fresh_sentinel(uint8_t sentinel[RECORD_SENTINEL])
{
	static uint64_t seed, counter;
	XXH128_hash_t v;

	while (seed == 0)
		if (getrandom(&seed, sizeof(seed), 0) < 0 && errno != EINTR)
			seed = (uint64_t)(uintptr_t)&v;
	counter++;
	v = XXH3_128bits_withSeed(&counter, sizeof(counter), seed);
	memcpy(sentinel, &v, RECORD_SENTINEL);
}

/*
 * Between the intent and the new head the process may die at any instruction. The read is of bytes that are in the pipe, into
 * pages that are mapped: the kernel does it whole or not at all, and the sentinel at its end tells which.
 */
static ssize_t
read_bulk(struct record *rec, int pipe, size_t len)
{
	struct record_head *h = rec->h;
	uint8_t *to = rec->ring + h->head % h->ring;

	for (size_t i = 0; i < len; i += RECORD_PAGE)
		*(volatile uint8_t *)(to + i) = 0;
	fresh_sentinel(h->sentinel);
	memcpy(to + len - RECORD_SENTINEL, h->sentinel, RECORD_SENTINEL);
	__atomic_store_n(&h->intent_head, h->head, __ATOMIC_SEQ_CST);
	return read(pipe, to, len);
}

static ssize_t
move_few(struct record *rec, int pipe, size_t len)
{
	struct record_head *h = rec->h;
	uint64_t at = h->head % h->ring;

	if (len > h->ring - at)
		h->intent_len = (uint32_t)(len = (size_t)(h->ring - at));
	if (lseek(rec->fd, (off_t)(rec->base + RECORD_PAGE + at), SEEK_SET) < 0)
		return -1;
	__atomic_store_n(&h->intent_head, h->head, __ATOMIC_SEQ_CST);
	return splice(pipe, NULL, rec->fd, NULL, len, SPLICE_F_NONBLOCK);
}

ssize_t
record_fill(struct record *rec, int pipe, size_t max)
{
	struct record_head *h = rec->h;
	size_t room = record_room(rec), len;
	int there = 0;
	ssize_t n;

	if (room == 0)
		return 0;
	if (ioctl(pipe, FIONREAD, &there) < 0)
		return -errno;
	len = there > 0 ? (size_t)there : 0;
	len = len < max ? len : max;
	len = len < room ? len : room;
	if (len == 0)
		return 0;
	h->intent_len = (uint32_t)len;
	h->intent_before = (uint32_t)there;
	n = len < RECORD_SENTINEL ? move_few(rec, pipe, len) : read_bulk(rec, pipe, len);
	if (n <= 0) {
		int saved = errno;

		__atomic_store_n(&h->intent_head, NO_INTENT, __ATOMIC_SEQ_CST);
		return n == 0 || saved == EAGAIN || saved == EINTR ? 0 : -saved;
	}
	__atomic_store_n(&h->head, h->head + (uint64_t)n, __ATOMIC_SEQ_CST);	/* closes the intent too */
	if (h->head - h->digest[h->digest_now].offset >= HASH_LAG)
		hash_to(rec, h->head);
	return n;
}

uint8_t *
record_end(const struct record *rec)
{
	return rec->ring + rec->h->head % rec->h->ring;
}

void
record_commit(struct record *rec, size_t n, const struct record_seam *seam)
{
	struct record_head *h = rec->h;
	struct record_seam *next = &h->seam[1 - h->seam_now];

	*next = *seam;
	next->head = h->head + n;
	__atomic_store_n(&h->seam_now, 1 - h->seam_now, __ATOMIC_SEQ_CST);
	__atomic_store_n(&h->head, next->head, __ATOMIC_SEQ_CST);
	if (h->head - h->digest[h->digest_now].offset >= HASH_LAG)
		hash_to(rec, h->head);
}

size_t
record_room(const struct record *rec)
{
	return (size_t)(rec->h->ring - (rec->h->head - rec->h->tail));
}

const uint8_t *
record_at(const struct record *rec, uint64_t offset)
{
	return rec->ring + offset % rec->h->ring;
}

void
record_release(struct record *rec, uint64_t offset)
{
	if (offset > rec->h->head)
		offset = rec->h->head;
	if (offset <= rec->h->tail)
		return;
	hash_to(rec, offset);
	rec->h->tail = offset;
}

void
record_ack(struct record *rec, uint64_t offset)
{
	struct record_head *h = rec->h;

	if (offset > h->head)
		offset = h->head;
	if (offset <= h->acked)
		return;
	record_release(rec, offset);
	h->acked = offset;
	lostset_forget(&h->lost, offset);
}

void
record_drop(struct record *rec, uint64_t offset, uint64_t sent)
{
	struct record_head *h = rec->h;
	uint64_t from = h->tail > sent ? h->tail : sent;

	if (offset > h->head)
		offset = h->head;
	if (offset <= h->tail)
		return;
	record_release(rec, offset);
	record_count_gap(rec, from, offset);
}

void
record_count_gap(struct record *rec, uint64_t from, uint64_t to)
{
	struct record_head *h = rec->h;
	int more;

	h->gap_bytes += lostset_add(&h->lost, from > h->acked ? from : h->acked, to, &more);
	h->gaps += (uint32_t)more;
}

int
record_put_job(struct record *rec, const void *data, size_t len)
{
	off_t at = (off_t)(RECORD_PAGE + rec->h->ring + rec->h->beyond);

	if (ftruncate(rec->fd, at + (off_t)len) < 0)
		return -errno;
	for (size_t done = 0; done < len; ) {
		ssize_t n = pwrite(rec->fd, (const uint8_t *)data + done, len - done, at + (off_t)done);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	rec->h->job_len = (uint32_t)len;
	return 0;
}

int
record_get_job(const struct record *rec, void *buf, size_t size)
{
	if (rec->h->job_len == 0 || rec->h->job_len > size)
		return -ENOENT;
	return pread(rec->fd, buf, rec->h->job_len, (off_t)(RECORD_PAGE + rec->h->ring + rec->h->beyond)) == (ssize_t)rec->h->job_len ? 0 : -EIO;
}

void
record_wipe_job(struct record *rec)
{
	static const uint8_t zeroes[RECORD_PAGE];
	uint64_t at = RECORD_PAGE + rec->h->ring + rec->h->beyond, end = at + rec->h->job_len;

	for (uint64_t p = at; p < end; p += sizeof(zeroes))
		if (pwrite(rec->fd, zeroes, end - p < sizeof(zeroes) ? end - p : sizeof(zeroes), (off_t)p) < 0)
			break;
	if (rec->h->job_len != 0 && ftruncate(rec->fd, (off_t)at) == 0)
		rec->h->job_len = 0;
}

void
record_give_pages(const struct record *rec)
{
	madvise(rec->ring, (size_t)rec->h->ring, MADV_REMOVE);
}

bool
record_digest(struct record *rec, uint8_t ret_xxh3[16])
{
	XXH128_canonical_t c;

	if ((rec->h->flags & RECORD_F_NO_DIGEST) != 0)
		return false;
	hash_to(rec, rec->h->head);
	XXH128_canonicalFromHash(&c, XXH3_128bits_digest(&rec->h->digest[rec->h->digest_now].state));
	memcpy(ret_xxh3, c.digest, sizeof(c.digest));
	return true;
}

void
record_report(const struct record *rec, struct launch_report *ret_report)
{
	struct launch_report rep;

	if (pread(rec->report, &rep, sizeof(rep), 0) != (ssize_t)sizeof(rep) || (rep.flags & ~(LAUNCH_REPORT_STARTED | LAUNCH_REPORT_FAILED | LAUNCH_REPORT_EXITED | LAUNCH_REPORT_NETWORK)) != 0 ||
	    ((rep.flags & LAUNCH_REPORT_FAILED) != 0 && rep.flags != LAUNCH_REPORT_FAILED) ||
	    (rep.flags != 0 && (rep.flags & (LAUNCH_REPORT_STARTED | LAUNCH_REPORT_FAILED)) == 0))
		memset(&rep, 0, sizeof(rep));
	*ret_report = rep;
}
