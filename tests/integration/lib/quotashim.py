"""A disk quota that is used up, for one process under test: writes to files are refused while a flag is set.

Tracing cannot do it: the filters end a process whose call is taken away.
"""
from .preload import Preload

SOURCE = r"""
#include <errno.h>
#include <sys/stat.h>
#include <sys/uio.h>

/* Files of a disk, which have a name. */
static int
refused(int fd)
{
	struct stat st;

	if (mapped == NULL || !*(const volatile char *)mapped || fd <= 2 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0)
		return 0;
	errno = EDQUOT;
	return 1;
}

ssize_t
write(int fd, const void *buf, size_t len)
{
	return refused(fd) ? -1 : syscall(SYS_write, fd, buf, len);
}

ssize_t
writev(int fd, const struct iovec *iov, int n)
{
	return refused(fd) ? -1 : syscall(SYS_writev, fd, iov, n);
}
"""


class Quota(Preload):
    def __init__(self, directory):
        super().__init__(directory, "quota", SOURCE, b"\0")

    @property
    def env(self):
        return {**super().env, "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:verify_asan_link_order=0"}

    def set(self, used_up):
        self.put(b"\1" if used_up else b"\0")
