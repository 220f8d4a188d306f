#include "common/monotime.h"

#include <stddef.h>
#include <time.h>

static int64_t (*boot_source)(void);
static int64_t (*wall_source)(void);

static int64_t
clock_ns(clockid_t id)
{
	struct timespec ts = { 0 };

	clock_gettime(id, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

monotime_t
monotime_now(void)
{
	return (monotime_t){ boot_source != NULL ? boot_source() : clock_ns(CLOCK_BOOTTIME) };
}

int64_t
monotime_wall_ns(void)
{
	return wall_source != NULL ? wall_source() : clock_ns(CLOCK_REALTIME);
}

static monotime_t
add_scaled(monotime_t t, int64_t n, int64_t scale)
{
	int64_t d, sum;

	if (t.ns == INT64_MAX)
		return t;
	if (__builtin_mul_overflow(n, scale, &d) || __builtin_add_overflow(t.ns, d, &sum))
		return (monotime_t){ n > 0 ? INT64_MAX : INT64_MIN };
	return (monotime_t){ sum };
}

monotime_t
monotime_add_ms(monotime_t t, int64_t ms)
{
	return add_scaled(t, ms, 1000000);
}

monotime_t
monotime_add_us(monotime_t t, int64_t us)
{
	return add_scaled(t, us, 1000);
}

int64_t
monotime_diff_ms(monotime_t a, monotime_t b)
{
	int64_t d;

	if (__builtin_sub_overflow(a.ns, b.ns, &d))
		d = a.ns > b.ns ? INT64_MAX : INT64_MIN;
	return d / 1000000;
}

void
monotime_set_source(int64_t (*boot_ns)(void), int64_t (*wall_ns)(void))
{
	boot_source = boot_ns;
	wall_source = wall_ns;
}
