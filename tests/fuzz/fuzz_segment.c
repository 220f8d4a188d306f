/* A file of the spool: segment_scan, and segment_read at every place of what it calls good. Most inputs get their checksums
 * put right first, or nothing behind them would ever be reached. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "workerd/segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILE_MAX	200000u

static void
help(uint8_t *file, size_t size)
{
	struct segment_head head = { .magic = SEGMENT_MAGIC, .version = SEGMENT_VERSION, .before = file[12], .base = 7, .produced = file[24],
		.handle = "h1" };
	struct segment_block b;
	uint64_t offset = head.base;

	head.sum = XXH3_64bits(&head, offsetof(struct segment_head, sum));
	memcpy(file, &head, sizeof(head));
	for (size_t pos = sizeof(head); size - pos > sizeof(b); pos += sizeof(b) + b.len) {
		memcpy(&b, file + pos, sizeof(b));
		b.magic = SEGMENT_BLOCK_MAGIC;
		b.len %= 70000;
		b.offset = b.offset % 16 == 15 ? b.offset : offset;
		b.produced = b.produced % 16 == 15 ? b.produced : offset + b.len + b.produced % 1000;
		if (b.len > size - pos - sizeof(b))
			b.len = (uint32_t)(size - pos - sizeof(b));
		if (b.data_sum % 16 != 15)
			b.data_sum = XXH3_64bits(file + pos + sizeof(b), b.len);
		b.sum = XXH3_64bits(&b, offsetof(struct segment_block, sum));
		memcpy(file + pos, &b, sizeof(b));
		offset += b.len;
	}
}

static void
read_all(int fd, const struct segment *seg)
{
	static uint8_t buf[SEGMENT_BLOCK];
	struct segment_place place = { 0 };
	uint64_t at;

	assert(seg->base <= seg->end && seg->size >= sizeof(struct segment_head) && seg->size <= FILE_MAX);
	for (uint64_t offset = seg->base; offset < seg->end;) {
		ssize_t n = segment_read(fd, seg, &place, offset, buf, &at);

		assert(n == -EBADMSG || (n > 0 && at <= offset && offset < at + (uint64_t)n && at + (uint64_t)n <= seg->end));
		offset = n > 0 ? at + (uint64_t)n : offset + 1 + offset % 1000;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[FILE_MAX];
	char handle[HANDLE_SIZE], name[SEGMENT_NAME + 8] = "";
	struct segment seg;
	uint64_t base;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	size = size < FILE_MAX ? size : FILE_MAX;
	memcpy(file, data, size);
	if (size > sizeof(struct segment_head) && data[size - 1] % 8 != 0)
		help(file, size);
	if (fd < 0 || write(fd, file, size) != (ssize_t)size)
		abort();
	if (segment_scan(fd, "h1", 7, &seg) == 0)
		read_all(fd, &seg);
	close(fd);
	memcpy(name, data, size < sizeof(name) - 1 ? size : sizeof(name) - 1);
	if (segment_name_parse(name, handle, &base) == 0) {
		char again[SEGMENT_NAME];

		segment_name(again, handle, base);
		assert(strcmp(name, again) == 0);
	}
	return 0;
}
