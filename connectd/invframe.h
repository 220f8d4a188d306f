/* inventory_req of the hub: answered with what workerd finds now, once and with its own id. */
#ifndef EDGEWARD_CONNECTD_INVFRAME_H
#define EDGEWARD_CONNECTD_INVFRAME_H

#include <stdint.h>

#include "connectd/cloop.h"

#define INVFRAME_MAX	4u	/* requests under way; each costs workerd a look at sysfs */

struct session;

struct invframe {
	struct invframe_ask {
		uint32_t ipc_id;	/* 0 = free */
		char id[CLOOP_ID_SIZE];
	} asks[INVFRAME_MAX];
};

void invframe_request(struct session *s, const struct cloop_frame *f);

/* workerd has answered, or went away: then what it said last is the answer. */
void invframe_answer(struct session *s, uint32_t ipc_id);
void invframe_work_down(struct session *s);

#endif
