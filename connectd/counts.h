/* What connectd counts over all its sessions, for `edgectl metrics`. */
#ifndef EDGEWARD_CONNECTD_COUNTS_H
#define EDGEWARD_CONNECTD_COUNTS_H

#include <stdint.h>

#include "common/ipc.h"
#include "proto/hub/mux.h"

#define COUNT_NAMES	24u	/* the last one is for all that have no place of their own */

struct count {
	char name[32];
	uint64_t n;
};

struct counts {
	struct count ends[COUNT_NAMES];		/* attempts and sessions that ended, by cause */
	struct count errors[COUNT_NAMES];	/* requests of the hub that were answered by an error, by its code */
	struct count services[COUNT_NAMES];	/* requests to local services, by what came of them */
	struct mux_count streams[MUX_CLASSES];	/* also attach sessions of plain cloop, which have no channel */
};

void count_add(struct count of[COUNT_NAMES], const char *name);

/* CTL_REQ_METRICS: the answer, and before it one event for each count that is not 0. */
int counts_answer(struct ipc_chan *chan, const struct ipc_msg *msg, const struct counts *c);

#endif
