/* The launcher's parts: main.c (start-up, workerd), held.c (workloads and their cgroups), workinit.c, confine.c, view.c and
 * filter.c (in the child). */
#ifndef EDGEWARD_LAUNCHER_H
#define EDGEWARD_LAUNCHER_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "common/ipc.h"
#include "common/notify.h"
#include "proto/ipc/launch.h"
#include "workerd/launcher/confine.h"

/* Low descriptors of a child; the launcher keeps 3 to FD_CHILD_END - 1 occupied, so nothing it opens lands there. */
enum { FD_INIT = 3, FD_REPORT = 4, FD_KILL = 5, FD_PROC = 6, FD_ROOT = 7, FD_SPEC = 8, FD_CHILD_END = 9 };

struct launcher {
	struct loop *loop;
	struct ipc_chan chan;		/* to workerd */
	struct ipc_conf conf;
	struct launch_ready ready;
	struct confine confine;
	struct held *held;		/* the workloads */
	char tree[512];			/* our cgroup, with READY's tree CGROUP */
	int tree_fd;
	int proc;			/* /proc of the machine */
	uid_t uid;
	gid_t gid;
	struct rlimit nofile;		/* as we were started; ours is raised */
	int listener;			/* for workerd, -1 = none */
	pid_t worker;			/* 0 = none */
	bool worker_up, stopping;	/* one has said HELLO since the start; we were told to end */
	int64_t delay;			/* ms until the next start of workerd */
	monotime_t worker_since;
	struct notify notify;
	struct loop_timer restart;
	char **worker_argv;
};

/* held.c: finds what can end a tree of processes here, ends what an earlier launcher left; fills READY. */
void held_init(struct launcher *l);
/* A child other than workerd was reaped. */
void held_reaped(struct launcher *l, pid_t pid, int wstatus, const struct rusage *ru);
/* Ends all work; returns when it is gone, or after a second. */
void held_end(struct launcher *l);
extern const struct ipc_rule held_rules[];
extern const size_t held_nrules;

/* workinit.c: starts one, a copy of this process in its cgroup or namespaces. Its pid or -errno. The descriptors are ours. */
struct workinit_fds {
	int output, init, report, spec, root, cgroup;	/* cgroup: -1 = none */
};
pid_t workinit_start(const struct launcher *l, const struct launch_start *s, const struct workinit_fds *fds);

#endif
