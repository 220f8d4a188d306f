/* What the daemons said, put together, and the two ways to show it. */
#ifndef EDGEWARD_EDGECTL_STATUS_H
#define EDGEWARD_EDGECTL_STATUS_H

#include <stdbool.h>

#include "edgectl/client.h"
#include "edgectl/edgectl.h"
#include "proto/ipc/ctl.h"

struct view {
	struct client connectd, workerd;
	struct ctl_connectd_status net;
	struct ctl_workerd_status work;
	bool net_up, work_up;		/* the daemon answered, so net or work is valid */
	bool priv_up, priv_known;	/* known: by at least one who answered */
	bool healthy;			/* all processes up, introduced to each other, connected */
};

/* Asks both daemons at once; what does not answer in time is shown as that. */
void status_look(struct edgectl *ctl, struct view *v);

void status_text(const struct view *v);
void status_json(const struct view *v);

#endif
