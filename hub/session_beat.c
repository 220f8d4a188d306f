/*
 * Heartbeats. An ack tells the device that everything it said before is safe here: a final status may be forgotten,
 * acknowledged bytes may be dropped. So it waits for the disk, and the log acks go out just before it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/attach.h"
#include "hub/run.h"
#include "hub/shell.h"
#include "proto/hub/rfc3339.h"

#define ACTIVE_MAX	4096u	/* handles looked at: far above any max_concurrent */

struct beat {
	struct sync_item item;
	struct hub *hub;
	uint64_t epoch, seq;
	char id[FRAME_ID_MAX + 1];
};

static void
send_ack(struct session *s, const char *id, uint64_t seq)
{
	char buf[512], stamp[RFC3339_SIZE];
	struct json_w w;

	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, s->version, "heartbeat_ack", id[0] != '\0' ? id : NULL, NULL);
	json_w_int(&w, "seq", (int64_t)seq);
	json_w_str(&w, "server_time", rfc3339_format(monotime_wall_ns(), stamp));
	frame_end(&w);
	session_send(s, &w);
}

static void
beat_flushed(struct sync_item *item, int err)
{
	struct beat *b = item->ctx;
	struct session *s = session_by_epoch(b->hub, b->epoch);

	(void)err;	/* a barrier has none; a failed flush of a log or of the store keeps its own acks back */
	if (s != NULL && store_dirty_before(b->hub->store, b->item.mark))
		log_error("device %s: heartbeat not acknowledged, the database cannot be flushed", s->device);
	else if (s != NULL)
		send_ack(s, b->id, b->seq);
	free(b);
}

/* Runs the device must list but does not, in the order of the reference hub: before anything is acknowledged. */
static void
find_missing(struct session *s, const struct json *active)
{
	struct run *next;
	unsigned n = 0;

	for (struct run *run = s->hub->runs; run != NULL; run = run->next)
		run->listed = false;
	for (; active != NULL && n < ACTIVE_MAX; active = active->next, n++) {
		if (active->type != JSON_STRING)
			continue;
		for (struct run *run = s->hub->runs; run != NULL; run = run->next)
			if (strcmp(run->info.handle, active->str) == 0) {
				run->listed = true;
				break;
			}
	}
	for (struct run *run = s->hub->runs; run != NULL; run = next) {
		next = run->next;
		if (!run->listed && strcmp(run->info.device, s->device) == 0 && run->info.state == RUN_RUNNING)
			run_lost(run, "the device does not hold it any more");
	}
}

void
session_heartbeat(struct session *s, const struct frame *f)
{
	struct frame_heartbeat hb;
	struct beat *b;

	if (frame_heartbeat(f->payload, &hb) < 0)
		return;		/* a sign of life all the same */
	find_missing(s, hb.active);
	shell_session(s);
	attach_session(s);
	for (struct run *run = s->hub->runs; run != NULL; run = run->next)
		if (run->epoch == s->epoch)
			run_want_ack(run);
	if (!syncer_busy(s->hub->syncer) && !store_dirty(s->hub->store)) {
		send_ack(s, f->id != NULL ? f->id : "", hb.seq);
		return;
	}
	b = calloc(1, sizeof(*b));
	if (b == NULL)
		return;
	*b = (struct beat){ .item = { .fd = -1, .done = beat_flushed, .ctx = b, .mark = store_mark(s->hub->store) },
		.hub = s->hub, .epoch = s->epoch, .seq = hb.seq };
	snprintf(b->id, sizeof(b->id), "%s", f->id != NULL ? f->id : "");
	syncer_add(s->hub->syncer, &b->item);
}
