"""Another wall clock for the processes under test: an offset is added to CLOCK_REALTIME, and a test moves it while the agent runs."""
import struct

from .preload import Preload

SOURCE = r"""
#include <sys/time.h>
#include <time.h>

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && mapped != NULL)
		ts->tv_sec += *(const volatile long long *)mapped;
	return r;
}

int
gettimeofday(struct timeval *tv, void *tz)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t
time(time_t *t)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	if (t != NULL)
		*t = ts.tv_sec;
	return ts.tv_sec;
}
"""


class Clock(Preload):
    def __init__(self, directory):
        super().__init__(directory, "clock", SOURCE, struct.pack("q", 0))

    def set(self, seconds):
        """Wall time = real wall time + seconds, from now on."""
        self.put(struct.pack("q", int(seconds)))
