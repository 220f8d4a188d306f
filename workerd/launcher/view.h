/* What a workload sees of the file system. */
#ifndef EDGEWARD_LAUNCHER_VIEW_H
#define EDGEWARD_LAUNCHER_VIEW_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/ipc/firewall.h"
#include "workerd/launcher/hide.h"

#define VIEW_ROWS	64

struct view_entry {
	int row;		/* in the table */
	char link[64];		/* what the machine has there is this link; "" = it is no link */
};

/* The rows of the table but those this machine did not have when the launcher started; what comes and goes is looked for at each start. */
struct view {
	struct view_entry entries[VIEW_ROWS];
	unsigned n;
	const char *own[HIDE_OWN];	/* the caller's, before view_init(): files and directories that are hidden besides those of every device */
};

void view_init(struct view *view);

struct view_wish {
	uid_t uid;		/* the runner */
	gid_t gid;
	const char *show;	/* more directories, launch_show_ok() */
	bool own_proc, own_net;	/* else the machine's */
	const struct firewall *fw;	/* of a filtered network: resolv.conf names its resolvers; NULL = leave it */
	bool secrets;		/* with an empty LAUNCH_SECRETS of its own */
	uint32_t slot;		/* runner id: its directory of lent devices is shown */
};

/*
 * In a user, mount and pid namespace of our own, with the work directory as the current one: builds the view, makes it the root
 * and is back in the work directory. 0 or -errno; *ret_proc is then true if it was /proc that was refused.
 */
int view_enter(const struct view *view, const struct view_wish *wish, bool *ret_proc);

/*
 * Landlock for the same: everything may be read and run, the work directory (the current one) and the private directories
 * changed. Without a view (not in_view) the table is all there is to see. 0 or -errno.
 */
int view_landlock(const struct view *view, const char *show, bool in_view);

#endif
