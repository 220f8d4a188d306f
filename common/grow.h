/*
 * A pause that doubles with each fault and starts over after a quiet time: what a peer does wrong again and again must not
 * become a hot loop.
 */
#ifndef EDGEWARD_GROW_H
#define EDGEWARD_GROW_H

#include <stdint.h>

#include "common/monotime.h"

struct grow {
	int64_t min_ms, max_ms;	/* both set by the owner before the first use */
	int64_t quiet_ms;	/* so long after the end of the last pause without a fault, and it starts over */
	int64_t pause_ms;	/* the last one, 0 = none yet */
	monotime_t last;	/* when it began */
};

/* One more fault: how many milliseconds to pause now. */
static inline int64_t
grow_fault(struct grow *g)
{
	monotime_t now = monotime_now();
	int64_t next = g->pause_ms * 2;

	if (g->pause_ms == 0 || monotime_diff_ms(now, g->last) - g->pause_ms > g->quiet_ms)
		next = g->min_ms;
	g->pause_ms = next < g->max_ms ? next : g->max_ms;
	g->last = now;
	return g->pause_ms;
}

#endif
