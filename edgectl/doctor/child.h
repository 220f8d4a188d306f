/* Other programs that doctor asks: started together, waited for together, ended when their time is up. */
#ifndef EDGEWARD_EDGECTL_CHILD_H
#define EDGEWARD_EDGECTL_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/monotime.h"

#define CHILD_OUT	65536u

struct child {
	pid_t pid;			/* 0 = none */
	int fd;				/* -1 = nothing more comes */
	int status;			/* exit code; -1 = ended by a signal, by us too, or never started */
	bool timeout;			/* it was ended when its time was up */
	size_t len;
	char out[CHILD_OUT + 1];	/* NUL behind it; what is longer is cut */
};

struct child_spec {
	const char *const *argv;	/* argv[0] is a path */
	const char *const *env;		/* "name=value", besides PATH and LC_ALL; NULL = none */
	uid_t uid;			/* used when we are root */
	gid_t gid;
	bool errors_too;		/* standard error comes with the output; else it is ours */
};

/* Standard input is /dev/null. A child that cannot be started has pid 0 and status -1. It does not outlive its parent. */
void child_start(struct child *c, const struct child_spec *spec);

/* Waits until all have ended, or ends what has not by then. Those with pid 0 and fd -1 are passed over. */
void child_wait(struct child **children, size_t n, monotime_t deadline);

/* Finds an executable in the directories of systems where root may have no PATH. NULL when there is none; a static buffer. */
const char *child_find(const char *name);

#endif
