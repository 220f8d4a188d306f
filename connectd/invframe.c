#include "connectd/invframe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "connectd/session.h"

#define OVERHEAD	8192	/* all but the inventory: envelope, labels */

/* The capabilities as they are told, but for what always changes. */
static void
digest(struct session *s, uint8_t ret[16])
{
	_cleanup_free_ char *buf = malloc(OVERHEAD + INVENTORY_ROOM);
	uint64_t *disk_free = &s->p.mirror->inventory.head.disk_free, was = *disk_free;
	XXH128_canonical_t hash;
	struct json_w w;
	size_t len;

	if (buf == NULL)
		return;
	*disk_free = 0;
	json_w_init(&w, buf, OVERHEAD + INVENTORY_ROOM);
	json_w_obj(&w, NULL);
	caps_put(&w, s->p.device, s->p.mirror, s->p.conf->work_sandbox, s->p.policy, s->p.edgeward1);
	json_w_end_obj(&w);
	*disk_free = was;
	if (json_w_done(&w, &len) < 0)
		return;
	XXH128_canonicalFromHash(&hash, XXH3_128bits(buf, len));
	memcpy(ret, hash.digest, sizeof(hash.digest));
}

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
	digest(s, s->inventory.told);
}

void
invframe_begin(struct session *s)
{
	s->inventory.looked = monotime_now();
	digest(s, s->inventory.told);
}

void
invframe_look(struct session *s)
{
	if (!s->p.edgeward1 || s->state != SESSION_UP || s->inventory.look != 0)
		return;
	s->inventory.looked = monotime_now();
	if (workchan_inventory(s->p.work, &s->inventory.look) < 0)
		s->inventory.look = 0;
}

void
invframe_beat(struct session *s)
{
	if (monotime_diff_ms(monotime_now(), s->inventory.looked) >= s->p.conf->heartbeat * INVFRAME_BEATS)
		invframe_look(s);
}

void
invframe_compare(struct session *s)
{
	uint8_t now[16];

	if (!s->p.edgeward1 || s->state != SESSION_UP)
		return;
	memcpy(now, s->inventory.told, sizeof(now));
	digest(s, now);
	if (memcmp(now, s->inventory.told, sizeof(now)) == 0)
		return;
	log_info("what this device can do has changed; the hub is told");
	answer(s, NULL);
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
	if (s->inventory.look == ipc_id && ipc_id != 0) {
		s->inventory.look = 0;
		invframe_compare(s);
	}
}

void
invframe_work_down(struct session *s)
{
	s->inventory.look = 0;
	for (unsigned i = 0; i < INVFRAME_MAX; i++)
		if (s->inventory.asks[i].ipc_id != 0)
			finish(s, &s->inventory.asks[i]);
}
