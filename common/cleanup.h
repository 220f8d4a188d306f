/* Ownership by scope: a variable frees what it holds when it goes out of scope, take_*() hands it on. */
#ifndef EDGEWARD_CLEANUP_H
#define EDGEWARD_CLEANUP_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void
cleanup_close(const int *fd)
{
	int saved = errno;

	if (*fd >= 0)
		close(*fd);
	errno = saved;
}

static inline void
cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void
cleanup_fclose(FILE **f)
{
	if (*f != NULL)
		fclose(*f);
}

#define _cleanup_close_		__attribute__((cleanup(cleanup_close)))
#define _cleanup_free_		__attribute__((cleanup(cleanup_free)))
#define _cleanup_fclose_	__attribute__((cleanup(cleanup_fclose)))

static inline int
take_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

#define take_ptr(pp) __extension__({ __typeof__(*(pp)) taken_ = *(pp); *(pp) = NULL; taken_; })

#endif
