/*
 * Closes descriptors that others have sent. close(2) of one may wait for whoever serves its file, without end and past every signal (FUSE's
 * FLUSH); a thread waits for that, so that an event loop does not.
 */
#ifndef EDGEWARD_CLOSER_H
#define EDGEWARD_CLOSER_H

#include <stdbool.h>
#include <unistd.h>

#define CLOSER_MAX	256u	/* descriptors that may wait; then none is received */

struct closer {
	int to, from;		/* pipe to the thread; zeroed: there is none, and closer_drop() is close() */
	unsigned waiting;
};

/* Starts the thread; closer must outlive the process. Before the filter, and after capabilities are gone: both go thread by thread. -errno. */
int closer_start(struct closer *closer);

/* Takes fd over. What may wait is a fraction of what the pipe holds: the write does not. */
static inline void
closer_drop(struct closer *closer, int fd)
{
	if (closer->to > 0)
		__atomic_add_fetch(&closer->waiting, 1, __ATOMIC_RELAXED);
	if (closer->to <= 0 || write(closer->to, &fd, sizeof(fd)) != sizeof(fd))
		close(fd);
}

/* As many wait as may. */
static inline bool
closer_full(const struct closer *closer)
{
	return __atomic_load_n(&closer->waiting, __ATOMIC_RELAXED) >= CLOSER_MAX;
}

#endif
