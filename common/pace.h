/* How often something may be done: once in every ms, after a burst that was saved up by waiting. */
#ifndef EDGEWARD_PACE_H
#define EDGEWARD_PACE_H

#include <stdbool.h>

#include "common/monotime.h"

struct pace {
	monotime_t next;
};

/* True, and counted, unless it is too soon. */
static inline bool
pace_take(struct pace *p, int64_t ms, int64_t burst)
{
	monotime_t now = monotime_now();

	if (monotime_before(p->next, monotime_add_ms(now, -ms * burst)))
		p->next = monotime_add_ms(now, -ms * burst);
	if (monotime_before(now, p->next))
		return false;
	p->next = monotime_add_ms(p->next, ms);
	return true;
}

#endif
