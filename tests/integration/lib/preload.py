"""A library that is loaded into the processes under test before the C library, to change what some of its functions do. A test tells it
what to do by a file, which the library maps before any sandbox closes: `mapped` in the source, NULL where there is none."""
import os
import subprocess

HEAD = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const volatile void *mapped;

__attribute__((constructor)) static void
start(void)
{
	const char *path = getenv("TEST_%s");
	int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd >= 0 ? mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;

	if (p != MAP_FAILED)
		mapped = p;
	if (fd >= 0)
		close(fd);
}
"""


class Preload:
    def __init__(self, directory, name, source, value):
        """value: bytes, what the file holds at first. It keeps its length."""
        os.chmod(directory, 0o755)
        self.name = name.upper()
        code, self.lib, self.file = (os.path.join(directory, name + end) for end in (".c", ".so", ".value"))
        with open(code, "w", encoding="ascii") as f:
            f.write(HEAD % self.name + source)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", self.lib, code], check=True)
        with open(self.file, "wb") as f:
            f.write(value)
        os.chmod(self.file, 0o644)

    @property
    def env(self):
        return {"LD_PRELOAD": self.lib, f"TEST_{self.name}": self.file}

    def put(self, value):
        """From now on; in place, as the file is mapped."""
        with open(self.file, "r+b") as f:
            f.write(value)
