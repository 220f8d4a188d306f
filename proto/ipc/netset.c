#include "proto/ipc/netset.h"

#include <errno.h>
#include <string.h>

/* The first range that ends at or behind addr; n when there is none. */
static uint32_t
first_from(const struct netset *s, netaddr_t addr)
{
	uint32_t lo = 0, hi = s->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (s->r[mid].hi < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Puts with[0..m) in the place of s->r[from..to). */
static int
replace(struct netset *s, uint32_t from, uint32_t to, const struct netrange *with, uint32_t m)
{
	if (s->n - (to - from) + m > NETSET_MAX)
		return -ENOSPC;
	memmove(s->r + from + m, s->r + to, (s->n - to) * sizeof(s->r[0]));
	if (m > 0)
		memcpy(s->r + from, with, m * sizeof(with[0]));
	s->n = s->n - (to - from) + m;
	return 0;
}

int
netset_add(struct netset *s, struct netrange r)
{
	/* A neighbour is taken in, too: two ranges that touch are one. */
	uint32_t from = first_from(s, r.lo > 0 ? r.lo - 1 : 0), to = from;

	for (; to < s->n && (s->r[to].lo <= r.hi || s->r[to].lo - r.hi == 1); to++) {
		r.lo = s->r[to].lo < r.lo ? s->r[to].lo : r.lo;
		r.hi = s->r[to].hi > r.hi ? s->r[to].hi : r.hi;
	}
	return replace(s, from, to, &r, 1);
}

int
netset_sub(struct netset *s, struct netrange r)
{
	uint32_t from = first_from(s, r.lo), to = from, m = 0;
	struct netrange left[2];

	for (; to < s->n && s->r[to].lo <= r.hi; to++)
		;
	if (to == from)
		return 0;
	if (s->r[from].lo < r.lo)
		left[m++] = (struct netrange){ s->r[from].lo, r.lo - 1 };
	if (s->r[to - 1].hi > r.hi)
		left[m++] = (struct netrange){ r.hi + 1, s->r[to - 1].hi };
	return replace(s, from, to, left, m);
}

bool
netset_has_all(const struct netset *s, struct netrange r)
{
	uint32_t i = first_from(s, r.lo);

	return i < s->n && s->r[i].lo <= r.lo && s->r[i].hi >= r.hi;
}

bool
netset_has(const struct netset *s, netaddr_t addr)
{
	return netset_has_all(s, (struct netrange){ addr, addr });
}

bool
netset_inside(const struct netset *a, const struct netset *b)
{
	for (uint32_t i = 0; i < a->n; i++)
		if (!netset_has_all(b, a->r[i]))
			return false;
	return true;
}
