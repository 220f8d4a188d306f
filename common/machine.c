#include "common/machine.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"

void
machine_open(int fds[MACHINE_SWITCHES])
{
	static const char *const paths[MACHINE_SWITCHES] = { "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/unprivileged_userns_clone",
		"/proc/sys/kernel/apparmor_restrict_unprivileged_userns" };

	for (unsigned i = 0; i < MACHINE_SWITCHES; i++)
		fds[i] = open(paths[i], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

void
machine_close(int fds[MACHINE_SWITCHES])
{
	for (unsigned i = 0; i < MACHINE_SWITCHES; i++)
		cleanup_close(&fds[i]);
}

uint32_t
machine_bits(const int fds[MACHINE_SWITCHES], const char *const *files)
{
	uint32_t bits = 0, bit = 1;
	struct stat st;

	for (unsigned i = 0; i < MACHINE_SWITCHES; i++, bit <<= 1) {
		char text[16];

		if (fds[i] >= 0 && pread(fds[i], text, sizeof(text), 0) > 0 && text[0] != '0')
			bits |= bit;
	}
	for (; *files != NULL; files++, bit <<= 1)
		if (stat(*files, &st) == 0 && (!S_ISCHR(st.st_mode) || (st.st_mode & 06) == 06))
			bits |= bit;
	return bits;
}
