#include "workerd/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>
#include <xxhash.h>

#include "common/cleanup.h"
#include "proto/ipc/ipc.h"
#include "proto/ipc/work.h"

#define BLOCKS		(SEGMENT_WRITE / SEGMENT_BLOCK)

void
segment_name(char name[SEGMENT_NAME], const char *handle, uint64_t base)
{
	snprintf(name, SEGMENT_NAME, "w.%s.%016" PRIx64, handle, base);
}

static int
hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int
segment_name_parse(const char *name, char ret_handle[HANDLE_SIZE], uint64_t *ret_base)
{
	size_t len = strnlen(name, SEGMENT_NAME);
	char handle[HANDLE_SIZE];
	uint64_t base = 0;

	if (len < 2 + 1 + 17 || len >= SEGMENT_NAME || name[0] != 'w' || name[1] != '.' || name[len - 17] != '.')
		return -EINVAL;
	memcpy(handle, name + 2, len - 19);
	handle[len - 19] = '\0';
	for (size_t i = len - 16; i < len; i++) {
		int digit = hex_digit(name[i]);

		if (digit < 0)
			return -EINVAL;
		base = base << 4 | (unsigned)digit;
	}
	if (!handle_ok(handle))
		return -EINVAL;
	memcpy(ret_handle, handle, len - 18);
	*ret_base = base;
	return 0;
}

uint64_t
segment_cost(uint64_t len)
{
	return len + (len + SEGMENT_BLOCK - 1) / SEGMENT_BLOCK * sizeof(struct segment_block);
}

/* ---- writing ---- */

static void
fill_head(struct segment_head *head, const char *handle, const struct segment *seg)
{
	*head = (struct segment_head){ .magic = SEGMENT_MAGIC, .version = SEGMENT_VERSION, .before = seg->before,
		.base = seg->base, .produced = seg->produced };
	memcpy(head->handle, handle, strnlen(handle, sizeof(head->handle) - 1));
	head->sum = XXH3_64bits(head, offsetof(struct segment_head, sum));
}

int
segment_create(int dirfd, const char *handle, uint64_t base, uint32_t before, struct segment *ret_seg)
{
	struct segment seg = { .base = base, .end = base, .size = sizeof(struct segment_head), .before = before };
	struct segment_head head;
	char name[SEGMENT_NAME];
	_cleanup_close_ int fd = -1;
	ssize_t n;

	segment_name(name, handle, base);
	unlinkat(dirfd, name, 0);	/* one without a block in it, which nobody adopted */
	fd = openat(dirfd, name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	fill_head(&head, handle, &seg);
	n = write(fd, &head, sizeof(head));
	if (n != (ssize_t)sizeof(head)) {
		int err = n < 0 ? errno : ENOSPC;

		unlinkat(dirfd, name, 0);
		return -err;
	}
	*ret_seg = seg;
	return take_fd(&fd);
}

int
segment_append(int fd, struct segment *seg, const uint8_t *data, size_t len, uint64_t produced)
{
	struct segment_block blocks[BLOCKS];
	struct iovec iov[2 * BLOCKS];
	size_t total = 0, done = 0;
	int n = 0;
	ssize_t w;

	for (; done < len && n < (int)(2 * BLOCKS); n += 2) {
		struct segment_block *b = &blocks[n / 2];
		size_t part = len - done < SEGMENT_BLOCK ? len - done : SEGMENT_BLOCK;

		*b = (struct segment_block){ .magic = SEGMENT_BLOCK_MAGIC, .len = (uint32_t)part, .offset = seg->end + done,
			.produced = produced, .data_sum = XXH3_64bits(data + done, part) };
		b->sum = XXH3_64bits(b, offsetof(struct segment_block, sum));
		iov[n] = (struct iovec){ b, sizeof(*b) };
		iov[n + 1] = (struct iovec){ (void *)(data + done), part };
		total += sizeof(*b) + part;
		done += part;
	}
	w = writev(fd, iov, n);
	if (w != (ssize_t)total) {
		int err = w < 0 ? errno : ENOSPC;

		return w > 0 && ftruncate(fd, (off_t)seg->size) < 0 ? -ESTALE : -err;
	}
	seg->size += total;
	seg->end += done;
	seg->produced = produced > seg->produced ? produced : seg->produced;
	return 0;
}

int
segment_set_head(int dirfd, const char *handle, const struct segment *seg)
{
	struct segment_head head;
	char name[SEGMENT_NAME];
	_cleanup_close_ int fd = -1;

	segment_name(name, handle, seg->base);
	fd = openat(dirfd, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	fill_head(&head, handle, seg);
	return pwrite(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) ? 0 : -EIO;
}

/* ---- reading ---- */

int
segment_open(int dirfd, const char *handle, uint64_t base)
{
	_cleanup_close_ int fd = -1;
	char name[SEGMENT_NAME];
	struct stat st;

	segment_name(name, handle, base);
	fd = openat(dirfd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? take_fd(&fd) : -EINVAL;
}

static bool
head_ok(const struct segment_head *head, const char *handle, uint64_t base)
{
	static const uint8_t none[sizeof(head->reserved)];

	return head->magic == SEGMENT_MAGIC && head->version == SEGMENT_VERSION && head->before <= WORK_GAP_LOST &&
	    head->base == base && base <= INT64_MAX && head->produced <= INT64_MAX && ipc_str_ok(head->handle, sizeof(head->handle)) &&
	    strcmp(head->handle, handle) == 0 && memcmp(head->reserved, none, sizeof(none)) == 0 &&
	    head->sum == XXH3_64bits(head, offsetof(struct segment_head, sum));
}

/* The block at pos, which must carry the output from offset on and end within size. 0 or -EBADMSG; -errno. */
static int
block_at(int fd, uint64_t pos, uint64_t size, uint64_t offset, struct segment_block *ret_b)
{
	ssize_t n;

	if (pos > size || size - pos < sizeof(*ret_b))
		return -EBADMSG;
	n = pread(fd, ret_b, sizeof(*ret_b), (off_t)pos);
	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(*ret_b) && ret_b->magic == SEGMENT_BLOCK_MAGIC && ret_b->len > 0 &&
	    ret_b->len <= SEGMENT_BLOCK && ret_b->len <= size - pos - sizeof(*ret_b) && ret_b->offset == offset &&
	    ret_b->produced <= INT64_MAX && ret_b->produced >= offset + ret_b->len &&
	    ret_b->sum == XXH3_64bits(ret_b, offsetof(struct segment_block, sum)) ? 0 : -EBADMSG;
}

int
segment_scan(int fd, const char *handle, uint64_t base, struct segment *ret_seg)
{
	struct segment seg = { .base = base, .end = base, .size = sizeof(struct segment_head) };
	struct segment_head head;
	struct segment_block b;
	struct stat st;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (pread(fd, &head, sizeof(head), 0) != (ssize_t)sizeof(head) || !head_ok(&head, handle, base))
		return -EBADMSG;
	seg.before = head.before;
	seg.produced = head.produced;
	while (seg.size < (uint64_t)st.st_size) {
		r = block_at(fd, seg.size, (uint64_t)st.st_size, seg.end, &b);
		if (r == -EBADMSG)
			seg.damaged = true;
		if (r < 0)
			break;
		seg.size += sizeof(b) + b.len;
		seg.end += b.len;
		seg.produced = b.produced > seg.produced ? b.produced : seg.produced;
	}
	*ret_seg = seg;
	return 0;
}

ssize_t
segment_read(int fd, const struct segment *seg, struct segment_place *place, uint64_t offset,
    uint8_t buf[SEGMENT_BLOCK], uint64_t *ret_at)
{
	struct segment_block b;
	struct segment_place at = *place;

	if (at.pos == 0 || at.offset > offset)
		at = (struct segment_place){ .pos = sizeof(struct segment_head), .offset = seg->base };
	for (;;) {
		*ret_at = at.offset;
		if (block_at(fd, at.pos, seg->size, at.offset, &b) < 0)
			return -EBADMSG;
		if (offset < at.offset + b.len)
			break;
		at.pos += sizeof(b) + b.len;
		at.offset += b.len;
	}
	if (pread(fd, buf, b.len, (off_t)(at.pos + sizeof(b))) != (ssize_t)b.len || b.data_sum != XXH3_64bits(buf, b.len))
		return -EBADMSG;
	*place = (struct segment_place){ .pos = at.pos + sizeof(b) + b.len, .offset = at.offset + b.len };
	return (ssize_t)b.len;
}
