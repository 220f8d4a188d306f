/* Ends the keeping of finished runs: row, gaps and log file go after a time, so that disk and inodes stay bounded. */
#ifndef EDGEWARD_HUB_PRUNE_H
#define EDGEWARD_HUB_PRUNE_H

#include "hub/hub.h"

/* Starts at once, then now and then; keep_ms after the end of a run by the hub's clock. */
void prune_start(struct hub *hub, int64_t keep_ms);
void prune_stop(struct hub *hub);

#endif
