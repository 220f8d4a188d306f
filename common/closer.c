#include "common/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static void *
work(void *ctx)
{
	struct closer *closer = ctx;
	int fd;

	while (read(closer->from, &fd, sizeof(fd)) == sizeof(fd)) {
		close(fd);
		__atomic_sub_fetch(&closer->waiting, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int
closer_start(struct closer *closer)
{
	pthread_t thread;
	int p[2];

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	*closer = (struct closer){ .to = p[1], .from = p[0] };
	return -pthread_create(&thread, NULL, work, closer);
}
