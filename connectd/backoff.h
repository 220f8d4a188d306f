/*
 * How long to wait before the next attempt. Pure arithmetic: no clock, no timer.
 *
 * Full jitter from the first retry on. The bound doubles with each attempt and goes back only after a session has been
 * stable; what it doubles up to depends on who failed: short while nothing beyond our own network has answered, long
 * when the hub is there and refused. When the hub itself ended the session every device of a fleet is in the same place
 * at the same moment, so the first retries are spread wide.
 */
#ifndef EDGEWARD_CONNECTD_BACKOFF_H
#define EDGEWARD_CONNECTD_BACKOFF_H

#include <stdint.h>

#define BACKOFF_SPREAD_MS	30000		/* width of the spread after an orderly end by the hub */
#define BACKOFF_LONGEST_MS	300000		/* no wait is longer, whoever asked for it */
#define BACKOFF_PATIENCE	3		/* refusals of our identity in a row before the waits become long */

enum backoff_kind {
	BACKOFF_LOCAL,		/* resolver, route, no answer, a link that was lost */
	BACKOFF_ANSWERED,	/* the hub answered and refused */
	BACKOFF_IDENTITY,	/* it refused our identity */
	BACKOFF_HUB_CLOSED,	/* it ended the session in good order: 1001, 1012, 1013, bye */
};

struct backoff {
	int64_t min_ms, max_local_ms, max_ms;
	uint32_t attempts;	/* failures since the last stable session */
	uint32_t unauthorized;	/* in a row */
};

void backoff_init(struct backoff *b, int64_t min_ms, int64_t max_local_ms, int64_t max_ms);

/* When the hub asked to be tried again, in ms from now. to_ms 0: it named a beginning only. */
struct backoff_window {
	int64_t from_ms, to_ms;
};

/*
 * Counts a failure and draws the wait in ms: at least min_ms, never 0, at most BACKOFF_LONGEST_MS. named (may be NULL)
 * is the hub's wish; one that makes no sense (negative, backwards, beyond a day) becomes the ordinary wide spread.
 */
int64_t backoff_next(struct backoff *b, enum backoff_kind kind, const struct backoff_window *named);

/* A session has been stable: start again from the beginning. */
void backoff_stable(struct backoff *b);

/* The identity was accepted. */
void backoff_authorized(struct backoff *b);

#endif
