#include "connectd/backoff.h"

#include <stddef.h>

#include "connectd/jitter.h"

#define DAY_MS	86400000

void
backoff_init(struct backoff *b, int64_t min_ms, int64_t max_local_ms, int64_t max_ms)
{
	*b = (struct backoff){ .min_ms = min_ms < 1 ? 1 : min_ms };
	b->max_local_ms = max_local_ms < b->min_ms ? b->min_ms : max_local_ms;
	b->max_ms = max_ms < b->min_ms ? b->min_ms : max_ms;
}

/* min * 2^attempts, at most cap. The shift is bounded before it is made, so nothing can overflow. */
static int64_t
bound(int64_t min, uint32_t attempts, int64_t cap)
{
	for (uint32_t i = 0; i < attempts && min < cap; i++)
		min = min > cap / 2 ? cap : min * 2;
	return min < cap ? min : cap;
}

static int64_t
spread(const struct backoff *b, int64_t upper)
{
	int64_t wide = b->min_ms > BACKOFF_LONGEST_MS - BACKOFF_SPREAD_MS ? BACKOFF_LONGEST_MS :
	    b->min_ms + BACKOFF_SPREAD_MS;

	return jitter_between(b->min_ms, upper > wide ? upper : wide);
}

/* The hub's wish, made to fit what we are ready to wait. -1 when it makes no sense. */
static int64_t
within(const struct backoff *b, const struct backoff_window *named)
{
	int64_t from = named->from_ms, to = named->to_ms;

	if (from < 0 || from > DAY_MS || to < 0 || to > DAY_MS || (to != 0 && to <= from))
		return -1;
	if (to == 0)
		to = from + BACKOFF_SPREAD_MS;
	if (to > BACKOFF_LONGEST_MS)
		to = BACKOFF_LONGEST_MS;
	if (from >= to)
		from = to / 2;
	return jitter_between(from < b->min_ms ? b->min_ms : from, to);
}

int64_t
backoff_next(struct backoff *b, enum backoff_kind kind, const struct backoff_window *named)
{
	int64_t upper, wait = -1;

	if (b->attempts < UINT32_MAX)
		b->attempts++;
	if (kind == BACKOFF_IDENTITY && b->unauthorized < UINT32_MAX)
		b->unauthorized++;
	upper = bound(b->min_ms, b->attempts, kind == BACKOFF_LOCAL ? b->max_local_ms : b->max_ms);
	if (named != NULL)
		wait = within(b, named);
	if (wait < 0 && (named != NULL || kind == BACKOFF_HUB_CLOSED))
		wait = spread(b, upper);
	else if (wait < 0 && kind == BACKOFF_IDENTITY && b->unauthorized >= BACKOFF_PATIENCE)
		wait = jitter_between(BACKOFF_LONGEST_MS / 2, BACKOFF_LONGEST_MS);
	else if (wait < 0)
		wait = jitter_between(b->min_ms, upper);
	return wait < b->min_ms ? b->min_ms : wait;
}

void
backoff_stable(struct backoff *b)
{
	b->attempts = 0;
}

void
backoff_authorized(struct backoff *b)
{
	b->unauthorized = 0;
}
