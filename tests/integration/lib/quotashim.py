"""A disk quota that is used up, for one process under test: a preloaded library that refuses writes to files while a flag is set.

The flag lies in a file that the library maps before any sandbox closes. Tracing cannot do it: the filters end a process whose call is taken away.
"""
import os
import subprocess

SOURCE = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const volatile char *used_up;

__attribute__((constructor)) static void
start(void)
{
	const char *path = getenv("TEST_QUOTA");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd >= 0 ? mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (p != MAP_FAILED)
		used_up = p;
	if (fd >= 0)
		close(fd);
}

/* Files of a disk, which have a name. */
static int
refused(int fd)
{
	struct stat st;

	if (used_up == NULL || !*used_up || fd <= 2 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_nlink == 0)
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


class Quota:
    def __init__(self, directory):
        os.chmod(directory, 0o755)
        source, self.lib = os.path.join(directory, "quota.c"), os.path.join(directory, "quota.so")
        self.file = os.path.join(directory, "used-up")
        with open(source, "w", encoding="ascii") as f:
            f.write(SOURCE)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.lib, source], check=True)
        self.set(False)
        os.chmod(self.file, 0o644)

    @property
    def env(self):
        return {"LD_PRELOAD": self.lib, "TEST_QUOTA": self.file, "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:verify_asan_link_order=0"}

    def set(self, used_up):
        """In place: the file is mapped."""
        with open(self.file, "r+b" if os.path.exists(self.file) else "wb") as f:
            f.write(b"\1" if used_up else b"\0")
