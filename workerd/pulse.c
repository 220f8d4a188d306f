#include "workerd/pulse.h"

#include <stdlib.h>
#include <sys/time.h>

#include "common/parse.h"
#include "proto/ipc/launch.h"

static struct {
	struct loop *loop;
	struct loop_timer timer;
	int64_t period_ms;
} self;

static void
beat(struct loop_timer *timer)
{
	const struct itimerval end = { .it_value = { .tv_sec = self.period_ms * 2 / 1000, .tv_usec = self.period_ms * 2 % 1000 * 1000 } };

	setitimer(ITIMER_REAL, &end, NULL);
	loop_timer_set_ms(self.loop, timer, self.period_ms);
}

void
pulse_start(struct loop *loop)
{
	const char *usec = getenv(LAUNCH_WATCHDOG);
	uint64_t us;

	if (usec == NULL || parse_u64(usec, 100000, INT64_MAX / 1000, &us) < 0)
		return;
	self.loop = loop;
	self.period_ms = (int64_t)(us / 1000);
	loop_timer_init(&self.timer, beat, NULL);
	beat(&self.timer);
}
