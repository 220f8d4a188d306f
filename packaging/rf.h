/* run-foreground's parts: what is to be started, the cgroup it owns, the child's side of a start. */
#ifndef EDGEWARD_PACKAGING_RF_H
#define EDGEWARD_PACKAGING_RF_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/capability.h>
#include <sys/types.h>

#include "common/loop.h"

#define RF_ARGS	24

/* One process that is kept running. */
struct rf_job {
	const char *name;		/* from here to ncaps: set by the caller of rf_supervise() */
	char path[PATH_MAX];
	const char *argv[RF_ARGS];	/* NULL-terminated */
	int listener;			/* becomes its descriptor 3 */
	uid_t uid;			/* and gid; ours where we are not root */
	cap_value_t caps[3];		/* what it keeps */
	size_t ncaps;
	bool own_net;			/* gets a network namespace with nothing in it, where we may make one */
	bool in_cgroup;			/* is born in the delegated cgroup, which dies with it */
	pid_t pid;			/* 0 = not running */
	monotime_t since;
	int64_t backoff_ms;
	struct loop_timer again;
};

/*
 * A cgroup v2 below our own, owned by uid, so that the launcher may keep its subtree there. base is empty afterwards
 * where there is none to be had: the launcher then ends work by other means and says so.
 */
struct rf_cgroup {
	char base[PATH_MAX];
	uid_t uid;
	ino_t filtered;		/* that one has the filter of rf_cgroup_deny_fuse(); the kernel gives no other the same number */
};

/* Finds the place; makes nothing yet. 0 or -errno. */
int rf_cgroup_find(struct rf_cgroup *cg, uid_t uid);

/* Makes it anew, with the controllers that can be had. Its cgroup.procs to *ret_fd for the child to enter, or -errno. */
int rf_cgroup_make(const struct rf_cgroup *cg, int *ret_fd);

/* Root only: from now on nobody in it, or below, opens /dev/fuse, whatever its node is called. 0 or -errno; -EPERM also where a parent's
 * filter would hold no longer. */
int rf_cgroup_deny_fuse(struct rf_cgroup *cg);

/*
 * Notes in dirfd which one is made, so that rf_cgroup_sweep() of the next run in the same place removes it where nobody else has: we may be
 * killed. By its number, which no other has, since its name may be another one's by then.
 */
void rf_cgroup_note(const struct rf_cgroup *cg, int dirfd);
void rf_cgroup_sweep(const struct rf_cgroup *cg, int dirfd);

/* Gives what is in it a second to end, kills what is left and removes it: three seconds at most. */
void rf_cgroup_remove(const struct rf_cgroup *cg);

/* Keeps the jobs running and dirfd's file "pids" up to date until a signal says stop and all have ended. 0 or -errno. */
int rf_supervise(struct rf_job *jobs, size_t njobs, struct rf_cgroup *cgroup, int dirfd);

/* Forks and execs; procs_fd (-1 = none) is the cgroup to enter. The pid or -errno; what fails in the child is logged there. */
pid_t rf_spawn(const struct rf_job *job, int procs_fd);

#endif
