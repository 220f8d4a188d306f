/* The launcher's parts: main.c (start-up, workerd), held.c (workloads and their cgroups), handover.c (its own upgrade), workinit.c, attached.c, confine.c,
 * view.c and filter.c (in the child). */
#ifndef EDGEWARD_LAUNCHER_H
#define EDGEWARD_LAUNCHER_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "common/ipc.h"
#include "common/notify.h"
#include "proto/ipc/attach.h"
#include "proto/ipc/launch.h"
#include "workerd/launcher/confine.h"

/* Low descriptors of a child; the launcher keeps 3 to FD_CHILD_END - 1 occupied, so nothing it opens lands there. */
enum { FD_INIT = 3, FD_REPORT = 4, FD_KILL = 5, FD_PROC = 6, FD_ROOT = 7, FD_SPEC = 8, FD_CHILD_END = 9 };

#define MANAGER 3	/* variables of the service manager */

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
	const char *pool_file;
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
	struct loop_timer reloaded;	/* a workerd that kept its place, because of a mistake in what it read, ends a reload, too */
	char **worker_argv;
	pid_t trial;			/* the successor's check of our state, 0 = none */
	const char *path;
	struct stat file, refused;	/* what we were started from, and a file that failed the check; by device and inode */
	char *manager[MANAGER];
};

enum { OUTPUT, INIT, RECORD, REPORT, HELD_FDS };

struct held {
	struct held *next;
	struct launcher *l;
	struct launch_held info;
	struct launch_ended end;
	bool reaped;			/* workinit is; only the tree is awaited */
	int fds[HELD_FDS];
	int cgroup;			/* its directory, -1 = none or removed */
	struct loop_io events;		/* cgroup.events, while a tree outlives its workinit */
};

/* held.c: finds what can end a tree of processes here, ends what an earlier launcher left; fills READY. */
void held_init(struct launcher *l);
/* The same for what an older launcher in this process held: watches the trees that it had begun to watch. */
void held_resume(struct launcher *l);
/* A child other than workerd was reaped. */
void held_reaped(struct launcher *l, pid_t pid, int wstatus, const struct rusage *ru);
/* Ends all work; returns when it is gone, or after a second. */
void held_end(struct launcher *l);
extern const struct ipc_rule held_rules[];
extern const size_t held_nrules;

/* handover.c. Before anything else: remembers the file and the variables that the start uses up. */
void handover_init(struct launcher *l);
/* The descriptor an older launcher left in this process, or -1. */
int handover_received(void);
/* Takes over what it says, fd included; what cannot be taken is fatal. READY's pool must be set. */
void handover_take(struct launcher *l, int fd);
/* The file we were started from is another one now, which has not failed its check. */
bool handover_wanted(const struct launcher *l);
/* Starts that check: a child whose exit status 0 says that its launcher can go on with our state. Its pid or -errno. */
pid_t handover_try(struct launcher *l);
/* Becomes it. Returns only on failure, with -errno and everything as before. */
int handover_exec(struct launcher *l);

/* workinit.c: starts one, a copy of this process in its cgroup or namespaces. Its pid or -errno. The descriptors are ours. */
struct workinit_fds {
	int output, init, report, spec, root, cgroup;	/* cgroup: -1 = none */
	int input;					/* descriptor 0, -1 = ours, which is /dev/null */
};
/* initlink.c: a record of workerd about interfaces; netns is -1 where it may get none. */
void initlink_asked(const struct ipc_hdr *hdr, const void *payload, size_t len, int netns);
/* attached.c: in a copy of workinit. What it needs to know of the workload; env is the payload's, NULL-terminated. */
struct attached {
	const struct view *view;
	const char *show;
	uint32_t parts;			/* LAUNCH_PART_* */
	char *const *env;
};
_Noreturn void attached_run(const struct attached *who, const struct init_attach *req, int session, int command);
/* carrier.c: in the sandbox already, in place of a payload. */
_Noreturn void carrier_run(void);
pid_t workinit_start(const struct launcher *l, const struct launch_start *s, const struct workinit_fds *fds);

#endif
