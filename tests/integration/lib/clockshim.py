"""Another wall clock for the processes under test: a preloaded library that adds an offset to CLOCK_REALTIME.

The offset lies in a file that the library maps before any sandbox closes, so a test moves it while the agent runs.
"""
import os
import struct
import subprocess

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long long *offset;

__attribute__((constructor)) static void
start(void)
{
	const char *path = getenv("TEST_CLOCK");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd >= 0 ? mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (p != MAP_FAILED)
		offset = p;
	if (fd >= 0)
		close(fd);
}

int
clock_gettime(clockid_t id, struct timespec *ts)
{
	int r = (int)syscall(SYS_clock_gettime, id, ts);

	if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && offset != NULL)
		ts->tv_sec += *offset;
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


class Clock:
    def __init__(self, directory):
        os.chmod(directory, 0o755)
        source, self.lib = os.path.join(directory, "clock.c"), os.path.join(directory, "clock.so")
        self.file = os.path.join(directory, "offset")
        with open(source, "w", encoding="ascii") as f:
            f.write(SOURCE)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.lib, source], check=True)
        with open(self.file, "wb") as f:
            f.write(struct.pack("q", 0))
        os.chmod(self.file, 0o644)

    @property
    def env(self):
        return {"LD_PRELOAD": self.lib, "TEST_CLOCK": self.file}

    def set(self, seconds):
        """Wall time = real wall time + seconds, from now on."""
        with open(self.file, "r+b") as f:
            f.write(struct.pack("q", int(seconds)))
