/* The filtered network of a workload: its rules, its way out, and the check that it holds. */
#ifndef EDGEWARD_LAUNCHER_NETNS_H
#define EDGEWARD_LAUNCHER_NETNS_H

#include <sys/types.h>

#include "proto/ipc/firewall.h"
#include "proto/ipc/launch.h"

struct netns {
	struct firewall *fw;	/* the caller's; the device's own addresses are denied in it, too */
	pid_t pasta;		/* 0 = none; when it ends, so does the way out */
	int hand, ready;	/* to it: the namespace; from it: that it is there */
};

/*
 * In pid 1 of a new pid namespace, with every capability in its user namespace, while the network is still the device's: looks at
 * the device's addresses and makes the process that stays in it. 0 or -errno.
 */
int netns_begin(struct netns *n, struct firewall *fw);

/* In the new, empty network namespace, before the view: rules, way out, check. 0, or -errno and the stage. */
int netns_build(struct netns *n, enum init_stage *ret_stage);

#endif
