/* record_adopt over the head of a record, and everything that may be done with one that was accepted. */
#include <assert.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "workerd/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RING	(4u * RECORD_PAGE)

/* The fields a random input would never hit: everything else is the fuzzer's. */
static void
help(struct record_head *h)
{
	struct record_spares none = { .n = 0 };
	struct record good;

	if (record_new(&none, "h1", RING, &good) < 0)
		abort();
	h->magic = good.h->magic;
	h->version = good.h->version;
	h->ring = RING;
	memcpy(h->handle, good.h->handle, sizeof(h->handle));
	if (h->digest_version % 2 == 0)
		h->digest[h->digest_now % 2].state = good.h->digest[0].state;
	record_free(NULL, &good);
}

static void
use(struct record *rec, int pipe)
{
	uint8_t xxh3[16];
	struct launch_report rep;
	volatile uint8_t sum = 0;

	for (uint64_t o = rec->h->tail; o < rec->h->head; o++)
		sum = (uint8_t)(sum + *record_at(rec, o));
	record_report(rec, &rep);
	record_fill(rec, pipe, 100);
	record_drop(rec, rec->h->tail + 3, rec->h->tail);
	record_ack(rec, rec->h->head);
	record_fill(rec, pipe, 10);
	record_digest(rec, xxh3);
	assert(rec->h->head - rec->h->tail <= RING);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct record_head h;
	struct record rec;
	int fd = memfd_create("fuzz", MFD_CLOEXEC), p[2];

	if (fd < 0 || pipe2(p, O_NONBLOCK | O_CLOEXEC) < 0 || ftruncate(fd, RECORD_PAGE + RING) < 0)
		abort();
	memset(&h, 0, sizeof(h));
	memcpy(&h, data, size < sizeof(h) ? size : sizeof(h));
	if (size > 0 && data[size - 1] % 8 != 0)
		help(&h);
	if (pwrite(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h) || write(p[1], data, size < 1000 ? size : 1000) < 0)
		abort();
	if (record_adopt(fd, -1, "h1", p[0], &rec) == 0) {
		use(&rec, p[0]);
		record_free(NULL, &rec);
	} else {
		close(fd);
	}
	close(p[0]);
	close(p[1]);
	return 0;
}
