#include "common/closer.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

static pthread_barrier_t begun;

static void *
work(void *ctx)
{
	struct closer *closer = ctx;
	int fd;

	pthread_barrier_wait(&begun);
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
	int p[2], r;

	if (pipe2(p, O_CLOEXEC) < 0)
		return -errno;
	*closer = (struct closer){ .to = p[1], .from = p[0] };
	r = pthread_barrier_init(&begun, NULL, 2);
	r = r == 0 ? pthread_create(&thread, NULL, work, closer) : r;
	/* What a thread does before its own first line no filter of ours lets pass. */
	if (r == 0)
		pthread_barrier_wait(&begun);
	return -r;
}
