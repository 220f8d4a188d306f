/*
 * Time with a type. Every deadline in Edgeward is on CLOCK_BOOTTIME, which no clock change moves and which goes on
 * while the machine sleeps. Wall time is only for stamps: monotime_wall_ns() is the one place that reads it.
 */
#ifndef EDGEWARD_MONOTIME_H
#define EDGEWARD_MONOTIME_H

#include <stdbool.h>
#include <stdint.h>

typedef struct monotime {
	int64_t ns;
} monotime_t;

#define MONOTIME_NEVER	((monotime_t){ INT64_MAX })

monotime_t monotime_now(void);

/* CLOCK_REALTIME in ns since 1970, for stamps and certificates. */
int64_t monotime_wall_ns(void);

/* Saturating; ms may be negative. NEVER stays NEVER. */
monotime_t monotime_add_ms(monotime_t t, int64_t ms);
monotime_t monotime_add_us(monotime_t t, int64_t us);

/* a - b in milliseconds, rounded towards zero, saturating. */
int64_t monotime_diff_ms(monotime_t a, monotime_t b);

static inline bool
monotime_before(monotime_t a, monotime_t b)
{
	return a.ns < b.ns;
}

/* Tests put their own clocks here; NULL restores the kernel's. Both in ns. */
void monotime_set_source(int64_t (*boot_ns)(void), int64_t (*wall_ns)(void));

#endif
