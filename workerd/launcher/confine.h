/* The confinement of workloads: what this machine gives, found out once, and the steps of a start in their order. */
#ifndef EDGEWARD_LAUNCHER_CONFINE_H
#define EDGEWARD_LAUNCHER_CONFINE_H

#include <linux/filter.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ipc/launch.h"
#include "workerd/launcher/netns.h"
#include "workerd/launcher/view.h"

struct confine {
	struct view view;
	struct sock_fprog filter, filter_shared;	/* with and without a pid namespace of its own */
	uint32_t machine;	/* machine.h, when it was tried */
	int32_t *first;		/* shared with the process that makes a pid namespace: pid 1 of it, as we number it; 0 = none */
};

/*
 * Before the launcher closes its own filter: compiles the workloads' and finds out what can be done here, as uid and gid if
 * uid is not 0; fills ready->parts and ready->landlock_abi. A failure that is not one of the machine is fatal.
 */
void confine_init(struct confine *c, struct launch_ready *ready, uid_t uid, gid_t gid);

/*
 * For another workerd that has said HELLO: user namespaces may have been switched off or on, the packet filter's programs installed. If
 * machine.h says so, what can be done here is tried again; what cannot be tried now stays as it was, and is tried for the next one.
 */
void confine_again(struct confine *c, struct launch_ready *ready, uid_t uid, gid_t gid);

/* Installs the part of the filter the launcher itself lives under. 0 or -errno. */
int confine_launcher(void);

/*
 * In workinit, which is the runner already and, with LAUNCH_PART_USER, in its user namespace with every capability there; the
 * work directory is the current one. Does all parts but Landlock, which is the payload's alone, and is without capability
 * afterwards, but for one with links. 0, or -errno and the stage.
 */
struct confine_who {
	uid_t uid;
	gid_t gid;
	uint32_t parts;
	const char *show;
	struct firewall *fw;	/* with LAUNCH_PART_FILTER */
	struct netns *netns;	/* filled then */
	bool secrets;		/* it brings some: workinit places them afterwards */
	uint32_t slot;		/* which runner it is */
};
int confine_workload(const struct confine *c, const struct confine_who *who, enum init_stage *ret_stage);

#endif
