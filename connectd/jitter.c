/*
 * Every draw asks the kernel. A draw happens once a retry or a heartbeat, so its cost does not matter, and there is no
 * seed that two devices from one image could share.
 */
#include "connectd/jitter.h"

#include <stddef.h>
#include <sys/random.h>

static uint64_t (*test_source)(void);

void
jitter_set_source(uint64_t (*source)(void))
{
	test_source = source;
}

static uint64_t
draw(void)
{
	uint64_t v = 0;

	if (test_source != NULL)
		return test_source();
	/* A request of 8 bytes is never cut short; should the call fail, the middle is a bearable answer. */
	if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
		v = UINT64_MAX / 2;
	return v;
}

int64_t
jitter_between(int64_t lo, int64_t hi)
{
	uint64_t range;

	if (hi <= lo)
		return hi;
	range = (uint64_t)hi - (uint64_t)lo;
	if (range == UINT64_MAX)
		return (int64_t)draw();
	/* The high half of the product: uniform to 2^-64 without a division. */
	return (int64_t)((uint64_t)lo + (uint64_t)(((unsigned __int128)draw() * (range + 1)) >> 64));
}
