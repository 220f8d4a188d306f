/* The hub's half of a session, as little as a benchmark needs, for both dialects and for the peers' own small one. */
#ifndef EDGEWARD_BENCH_HUB_H
#define EDGEWARD_BENCH_HUB_H

#include <stdbool.h>
#include <stddef.h>

#include "conn.h"

enum hub_kind {
	HUB_NOTHING,		/* a frame that concerns no run */
	HUB_OUTPUT,
	HUB_ENDED,
};

struct hub_event {
	enum hub_kind kind;
	unsigned run;		/* which run of this process, from 1 */
	size_t bytes;		/* OUTPUT: of payload */
};

/* After the upgrade: answers hello with welcome. Peers say nothing. */
bool hub_begin(enum conn_path path, bool enroll);

/* Starts a run. argv must need no escaping in JSON. */
bool hub_start(const char *const argv[]);

/* Reads one frame, answers what wants an answer (acks, windows, heartbeats). False when the agent is gone. */
bool hub_next(struct hub_event *ev);

#endif
