#include "workerd/lostset.h"

#include <string.h>

bool
lostset_ok(const struct lostset *set)
{
	if (set->n > LOSTSET_MAX)
		return false;
	for (unsigned i = 0; i < set->n; i++)
		if (set->at[i].from >= set->at[i].to || (i > 0 && set->at[i].from <= set->at[i - 1].to))
			return false;
	return true;
}

/* Ranges [i, j) become one. i == j: a new one in front of i. */
static void
replace(struct lostset *set, unsigned i, unsigned j, uint64_t from, uint64_t to)
{
	memmove(&set->at[i + 1], &set->at[j], (set->n - j) * sizeof(set->at[0]));
	set->at[i].from = from;
	set->at[i].to = to;
	set->n = set->n + 1 - (j - i);
}

uint64_t
lostset_add(struct lostset *set, uint64_t from, uint64_t to, int *ret_gaps)
{
	uint64_t lo = from, hi = to, known = 0;
	unsigned i = 0, j;

	*ret_gaps = 0;
	if (from >= to)
		return 0;
	while (i < set->n && set->at[i].to < from)
		i++;
	for (j = i; j < set->n && set->at[j].from <= to; j++) {
		uint64_t a = set->at[j].from, b = set->at[j].to;

		known += (b < to ? b : to) - (a > from ? a : from);
		lo = a < lo ? a : lo;
		hi = b > hi ? b : hi;
	}
	*ret_gaps = 1 - (int)(j - i);
	replace(set, i, j, lo, hi);
	if (set->n > LOSTSET_MAX)
		replace(set, 0, 2, set->at[0].from, set->at[1].to);
	return to - from - known;
}

void
lostset_forget(struct lostset *set, uint64_t offset)
{
	unsigned gone = 0;

	while (gone < set->n && set->at[gone].to < offset)
		gone++;
	memmove(&set->at[0], &set->at[gone], (set->n - gone) * sizeof(set->at[0]));
	set->n -= gone;
}
