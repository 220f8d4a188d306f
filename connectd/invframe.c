#include "connectd/invframe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "connectd/session.h"

#define OVERHEAD	8192	/* all but the inventory: envelope, labels */

static void
answer(struct session *s, const char *id)
{
	_cleanup_free_ char *buf = malloc(OVERHEAD + INVENTORY_ROOM);
	struct json_w w;

	if (buf == NULL) {
		session_send_error(s, id, "internal", "the agent is out of memory");
		return;
	}
	cloop_begin(&w, buf, OVERHEAD + INVENTORY_ROOM, s->version, "inventory", id, NULL);
	caps_put(&w, s->p.device, s->p.mirror, s->p.conf->work_sandbox, s->p.policy, s->p.edgeward1);
	session_send(s, &w);
}

void
invframe_request(struct session *s, const struct cloop_frame *f)
{
	for (unsigned i = 0; i < INVFRAME_MAX; i++) {
		struct invframe_ask *ask = &s->inventory.asks[i];

		if (ask->ipc_id != 0)
			continue;
		if (workchan_inventory(s->p.work, &ask->ipc_id) < 0) {
			ask->ipc_id = 0;
			answer(s, f->id);
			return;
		}
		snprintf(ask->id, sizeof(ask->id), "%s", f->id);
		return;
	}
	session_send_error(s, f->id, "busy", "four inventory requests are under way; wait for one");
}

static void
finish(struct session *s, struct invframe_ask *ask)
{
	ask->ipc_id = 0;
	answer(s, ask->id);
}

void
invframe_answer(struct session *s, uint32_t ipc_id)
{
	for (unsigned i = 0; i < INVFRAME_MAX; i++)
		if (s->inventory.asks[i].ipc_id == ipc_id && ipc_id != 0)
			finish(s, &s->inventory.asks[i]);
}

void
invframe_work_down(struct session *s)
{
	for (unsigned i = 0; i < INVFRAME_MAX; i++)
		if (s->inventory.asks[i].ipc_id != 0)
			finish(s, &s->inventory.asks[i]);
}
