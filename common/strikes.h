/* Somebody who breaks the rules is refused for a time that doubles with each breach, up to a bound, and is forgiven after a quiet while. */
#ifndef EDGEWARD_STRIKES_H
#define EDGEWARD_STRIKES_H

#include <stdbool.h>

#include "common/monotime.h"

#define STRIKES_MIN_MS		1000		/* after the first */
#define STRIKES_STEPS		5		/* to 32 s */
#define STRIKES_FORGIVE_MS	60000		/* so long without one more, and it begins at the minimum again */

struct strikes {
	unsigned n;
	monotime_t until;
};

static inline bool
strikes_hold(const struct strikes *s)
{
	return s->n > 0 && monotime_before(monotime_now(), s->until);
}

/* One more. For how long, in ms. */
static inline int64_t
strikes_add(struct strikes *s)
{
	monotime_t now = monotime_now();
	int64_t ms;

	if (s->n > 0 && monotime_diff_ms(now, s->until) > STRIKES_FORGIVE_MS)
		s->n = 0;
	ms = (int64_t)STRIKES_MIN_MS << s->n;
	s->until = monotime_add_ms(now, ms);
	if (s->n < STRIKES_STEPS)
		s->n++;
	return ms;
}

#endif
