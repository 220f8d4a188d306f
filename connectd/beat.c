/*
 * Heartbeats and the judgement that a link is dead. Dead is: no byte from the hub for dead-after, whatever our own socket
 * says; or a heartbeat without an acknowledgement for as long, twice as long while our own data is still queued before
 * it. Both are checked when they fall due and not on a tick, so an idle link costs one timer a heartbeat.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "connectd/jitter.h"
#include "connectd/session.h"
#include "connectd/usbdev.h"
#include "connectd/upframes.h"
#include "proto/hub/rfc3339.h"

#define SOON_MS		1000	/* least distance of a beat that is sent for the sake of an ack */
#define CROWD		16u	/* statuses that wait for an ack: then at once, one beat a round trip */
#define HEALTH_MAX	16
#define LEASE_MS	25000
#define BACKLOG		16384	/* bytes queued before the link counts as busy; a few control frames are no load */
#define FRAME_OVERHEAD	2048
#define HANDLE_ROOM	(6 * HANDLE_SIZE + 4)	/* the JSON writer wants room for the worst spelling */

static void beat_due(struct loop_timer *timer);
static void check_due(struct loop_timer *timer);

void
beat_stop(struct session *s)
{
	if (s->beat.cb == NULL) {
		loop_timer_init(&s->beat, beat_due, s);
		loop_timer_init(&s->check, check_due, s);
		s->unacked_since = MONOTIME_NEVER;
	}
	loop_timer_del(s->p.loop, &s->beat);
	loop_timer_del(s->p.loop, &s->check);
}

static void
put_health(struct session *s, struct json_w *w)
{
	const char *codes[HEALTH_MAX];
	size_t n = s->p.ops->health(codes, HEALTH_MAX, s->p.ctx);

	json_w_arr(w, "health");
	for (size_t i = 0; i < n; i++)
		json_w_str(w, NULL, codes[i]);
	json_w_end_arr(w);
}

static void
send_beat(struct session *s)
{
	size_t size = FRAME_OVERHEAD + s->p.mirror->n * (HANDLE_SIZE + 4) + HANDLE_ROOM;
	_cleanup_free_ char *buf = malloc(size);
	char id[32];
	struct json_w w;

	if (buf == NULL) {
		session_end(s, SESSION_FAILED, 1011, "internal", "out of memory for a heartbeat");
		return;
	}
	snprintf(id, sizeof(id), "hb-%llu", (unsigned long long)++*s->p.beat_seq);
	cloop_begin(&w, buf, size, s->version, "heartbeat", id, NULL);
	json_w_int(&w, "seq", (int64_t)*s->p.beat_seq);
	json_w_arr(&w, "active_handles");
	for (const struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next)
		if (mirror_listed(e))
			json_w_str(&w, NULL, e->w.handle);
	json_w_end_arr(&w);
	if (s->p.edgeward1)
		put_health(s, &w);
	if (s->p.edgeward1 && s->p.mirror->devices.audit_seq > 0)
		json_w_str(&w, "audit_head", s->p.mirror->devices.audit_head);
	s->last_beat_at = monotime_now();
	s->unconfirmed = 0;
	if (s->first_beat == 0)
		s->first_beat = *s->p.beat_seq;
	if (s->unacked_since.ns == INT64_MAX)
		s->unacked_since = s->last_beat_at;
	session_send(s, &w);
}

/*
 * A forwarded device is to be free on both sides 30 s after the link was lost (USB/IP itself has no keep-alive), so with one open the
 * link is judged sooner: the ack of every beat is heard before, unless the hub asked for long pauses between them.
 */
static int64_t
dead_after(const struct session *s)
{
	int64_t dead = s->p.conf->dead_after;

	return forward_any(s, &usbdev_kind) && dead > LEASE_MS && s->beat_ms * 5 / 4 < LEASE_MS ? LEASE_MS : dead;
}

/* When the link will have to be judged next. */
static monotime_t
judgement(const struct session *s)
{
	int64_t dead = dead_after(s);
	monotime_t silent = monotime_add_ms(hubconn_last_rx(s->p.conn), dead), unacked;

	if (s->unacked_since.ns == INT64_MAX)
		return silent;
	unacked = monotime_add_ms(s->unacked_since, hubconn_queued(s->p.conn) > BACKLOG ? 2 * dead : dead);
	return monotime_before(unacked, silent) ? unacked : silent;
}

static void
check_due(struct loop_timer *timer)
{
	struct session *s = timer->ctx;
	monotime_t now = monotime_now(), due = judgement(s);
	int64_t silent = monotime_diff_ms(now, hubconn_last_rx(s->p.conn));

	if (monotime_before(now, due))
		loop_timer_set(s->p.loop, timer, due);
	else if (silent >= dead_after(s))
		session_end(s, SESSION_FAILED, 0, "dead", "no byte from the hub for %lld ms; the link is dead", (long long)silent);
	else
		session_end(s, SESSION_FAILED, 0, "no-ack", "the hub does not acknowledge heartbeats; the link is dead");
}

static void
beat_due(struct loop_timer *timer)
{
	struct session *s = timer->ctx;

	send_beat(s);
	if (s->state != SESSION_UP)
		return;
	invframe_beat(s);
	branches_expire(s);
	loop_timer_set_ms(s->p.loop, &s->beat, jitter_between(s->beat_ms * 3 / 4, s->beat_ms * 5 / 4));
	/* Moved on with every beat, so that while all is well it never comes: a wake-up less in each 20 s. */
	loop_timer_set(s->p.loop, &s->check, judgement(s));
}

void
beat_start(struct session *s)
{
	beat_due(&s->beat);
}

/*
 * On cloop the beats keep their distance; there the regular one confirms. Many short commands would pile up within a second
 * (three descriptors and a record each), so a crowd is confirmed as fast as the link goes.
 */
void
beat_soon(struct session *s)
{
	monotime_t when = monotime_add_ms(s->last_beat_at, SOON_MS < s->beat_ms / 4 ? SOON_MS : s->beat_ms / 4);

	if (s->unconfirmed >= CROWD && s->unacked_since.ns == INT64_MAX)
		when = monotime_now();
	if (s->p.edgeward1 && monotime_before(when, s->beat.when))
		loop_timer_set(s->p.loop, &s->beat, when);
}

/* Only the ack of a beat of this session says anything. */
void
beat_acked(struct session *s, const struct cloop_frame *f)
{
	const char *text = json_get_str(f->payload, "server_time");
	int64_t seq, server_ns, wall = monotime_wall_ns();

	if (!json_get_int(f->payload, "seq", 1, INT64_MAX, &seq) || s->first_beat == 0 ||
	    (uint64_t)seq < s->first_beat || (uint64_t)seq > *s->p.beat_seq || (uint64_t)seq <= s->acked_beat)
		return;
	s->acked_beat = (uint64_t)seq;
	if ((uint64_t)seq == *s->p.beat_seq) {
		s->rtt_us = (monotime_now().ns - s->last_beat_at.ns) / 1000;
		s->unacked_since = MONOTIME_NEVER;
	} else {
		s->unacked_since = s->last_beat_at;	/* later than the true time of the next one: lenient by a beat */
	}
	/* Else it would come before the next beat, for nothing: what it was set by is the byte before this beat. */
	if (s->state == SESSION_UP)
		loop_timer_set(s->p.loop, &s->check, judgement(s));
	if (text != NULL && rfc3339_parse(text, &server_ns) == 0 && server_ns != 0) {
		s->clock_offset_ms = server_ns / 1000000 - wall / 1000000;
		s->p.ops->server_time(wall, server_ns, s->p.ctx);
	}
	report_acked(s, (uint64_t)seq);
	upframes_acked(s, (uint64_t)seq);
	if (s->unconfirmed > 0)
		beat_soon(s);
}
