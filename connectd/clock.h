/*
 * The least time that certificate checks may use: the latest of the saved time and the build time (hubconn takes the
 * system clock where it is later). A device without a battery clock boots in 1970 and must still be able to connect, and
 * a certificate that has expired must not become valid again by it.
 *
 * A time is saved only from inside an authenticated session, so a clock that was wrong for a day, or a hub we could not
 * verify, cannot push the floor into the future.
 */
#ifndef EDGEWARD_CONNECTD_CLOCK_H
#define EDGEWARD_CONNECTD_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#define CLOCK_FILE		"clock"
#define CLOCK_SAVE_EVERY_NS	(INT64_C(3600) * 1000000000)	/* flash wears out: at most one write an hour */
#define CLOCK_YEARS_AHEAD	20	/* of the build: no hub can push the floor further */

struct clock_floor {
	int dirfd;		/* state directory, not owned */
	int64_t build_ns;
	int64_t saved_ns;	/* 0 = never */
};

/* Never fails: a damaged file is kept aside and counts as never saved. *ret_damaged tells. */
void clock_init(struct clock_floor *c, int dirfd, int64_t build_ns, bool *ret_damaged);

int64_t clock_floor_ns(const struct clock_floor *c);

/* The time to check a certificate by. */
int64_t clock_check_ns(const struct clock_floor *c, int64_t wall_ns);

/* True when the system clock is before the floor. */
bool clock_implausible(const struct clock_floor *c, int64_t wall_ns);

/* The hub of an authenticated session said server_ns while our clock said wall_ns. 0, 1 = saved, -errno of the write. */
int clock_confirm(struct clock_floor *c, int64_t wall_ns, int64_t server_ns);

#endif
