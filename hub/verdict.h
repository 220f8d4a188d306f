/* What the hub says to a device that offers a run in its hello. A pure decision, so that a table can test it. */
#ifndef EDGEWARD_HUB_VERDICT_H
#define EDGEWARD_HUB_VERDICT_H

#include <stdbool.h>
#include <stdint.h>

#include "hub/runinfo.h"

struct verdict_in {
	bool known;		/* the handle is in the store */
	bool ours;		/* and belongs to the device that offers it */
	enum run_state state;
	uint64_t durable;	/* first byte not on our disk */
};

struct verdict {
	bool keep;		/* continue, else terminate */
	uint64_t from_offset;
	const char *reason;	/* of a terminate */
};

/*
 * A run with a final status is kept: the device offers it because it has not heard that the status arrived. A lost one
 * is not: "lost" was told to whoever waited, and a final status stays.
 */
struct verdict verdict_decide(const struct verdict_in *in);

/*
 * A run the hub holds that the device did not offer. true: send its start again, else leave it to the next heartbeat.
 * Only where the device keeps a durable record before anything starts (edgeward.1) does "not offered" mean "never
 * received"; a plain cloop agent may have run it and forgotten it.
 */
bool verdict_resend(enum run_state state, bool edgeward1);

#endif
