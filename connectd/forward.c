/*
 * Who calls: devframes.c for the hub's frames, the mux, session.c for workerd's word, the two kinds. On error: that one ends, with a
 * reason both sides get; the session and the others go on.
 */
#include "connectd/forward.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "connectd/streams.h"

static struct forward *
find(const struct session *s, const char *id)
{
	struct forward *f = s->forwards;

	while (f != NULL && strcmp(f->id, id) != 0)
		f = f->next;
	return f;
}

struct forward *
forward_find(const struct session *s, const struct forward_kind *kind, const char *id)
{
	struct forward *f = find(s, id);

	return f != NULL && f->kind == kind ? f : NULL;
}

struct forward *
forward_asked(const struct session *s, const struct forward_kind *kind, uint32_t ipc_id)
{
	struct forward *f = s->forwards;

	while (f != NULL && (f->kind != kind || f->ipc_id == 0 || f->ipc_id != ipc_id))
		f = f->next;
	return f;
}

bool
forward_any(const struct session *s, const struct forward_kind *kind)
{
	const struct forward *f = s->forwards;

	while (f != NULL && f->kind != kind)
		f = f->next;
	return f != NULL;
}

/* ---- the end ---- */

/* Out of the list, the descriptor closed: what is behind it ends with it. The channel is the caller's. */
static void
drop(struct forward *f)
{
	struct session *s = f->s;
	struct forward **p = &s->forwards;
	int fd = f->io.fd;

	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	loop_timer_del(s->p.loop, &f->timer);
	loop_io_del(s->p.loop, &f->io);
	if (fd >= 0)
		close(fd);
	free(f);
}

static void
tell(struct forward *f, const char *why)
{
	struct json_w w;

	f->kind->over(f, why);
	if (f->s->state != SESSION_UP)
		return;
	if (!f->opened) {
		session_send_error(f->s, f->frame_id, "device_unavailable", why);
		return;
	}
	session_begin_frame(f->s, &w, "device_close", NULL, NULL);
	json_w_str(&w, "device_id", f->id);
	json_w_str(&w, "reason", why);
	session_send(f->s, &w);
}

void
forward_end(struct forward *f, const char *why)
{
	tell(f, why);
	mux_reset(&f->chan, f->opened ? STREAM_RESET_GONE : STREAM_RESET_REFUSED, why);
	drop(f);
}

void
forward_end_soon(struct forward *f, const char *why)
{
	if (f->why[0] != '\0')
		return;
	snprintf(f->why, sizeof(f->why), "%s", why);
	loop_timer_set(f->s->p.loop, &f->timer, monotime_now());
}

static void
timer_due(struct loop_timer *timer)
{
	struct forward *f = timer->ctx;

	forward_end(f, f->why[0] != '\0' ? f->why : f->kind->late);
}

void
forward_ended(struct mux_chan *c, const uint8_t *digest)
{
	forward_end_soon(c->ctx, "the forwarder ended the stream");
}

void
forward_closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct forward *f = c->ctx;
	char why[200];

	snprintf(why, sizeof(why), "the stream ended: %.150s", reason);
	tell(f, why);
	drop(f);
}

/* ---- device_open ---- */

/* NULL, or one sentence. */
static const char *
admit(struct forward *f, const struct json *payload, char text[POLICY_WHERE + 8])
{
	const struct session *s = f->s;
	const struct forward_kind *k = f->kind;
	char where[POLICY_WHERE], value[8];
	const struct forward *same;
	const char *why;
	unsigned n = 0;

	if (!json_copy_str(payload, "device_id", f->id, sizeof(f->id)) || !device_id_ok(f->id))
		return "device_id must be 1 to 31 of a-z 0-9 -";
	why = k->read(f, payload);
	if (why != NULL)
		return why;
	policy_value(s->p.policy, k->policy, value, sizeof(value));
	if (strcmp(value, "yes") != 0) {
		snprintf(text, POLICY_WHERE + 8, "%s = no", policy_where(s->p.policy, k->policy, where));
		return text;
	}
	for (const struct forward *o = s->forwards; o != NULL; o = o->next)
		n += o->kind == k;
	same = find(s, f->id);
	if (n < k->most && same == NULL)
		return NULL;
	if (same != NULL)
		snprintf(text, POLICY_WHERE + 8, "a %s of this id is open already", same->kind->what);
	else
		snprintf(text, POLICY_WHERE + 8, "as many %s are open as this agent holds", k->many);
	return text;
}

void
forward_open(struct session *s, const struct cloop_frame *frame, uint32_t channel, const struct forward_kind *kind)
{
	struct forward *f = calloc(1, kind->size);
	const char *why = "out of memory";
	char text[POLICY_WHERE + 8];

	if (f != NULL) {
		f->s = s;
		f->kind = kind;
		f->io.fd = -1;
		why = admit(f, frame->payload, text);
	}
	if (why == NULL && mux_open(&s->mux, &f->chan, channel, &kind->mux, f, 0, 0, 0, 0) < 0)
		why = "too many streams are open";
	if (why != NULL) {
		free(f);
		session_send_error(s, frame->id, "device_unavailable", why);
		return;
	}
	snprintf(f->frame_id, sizeof(f->frame_id), "%s", frame->id);
	loop_timer_init(&f->timer, timer_due, f);
	f->next = s->forwards;
	s->forwards = f;
	mux_widen(&f->chan, MUX_WINDOW_BULK);
	kind->begin(f);
}

bool
forward_close(struct session *s, const char *id, const char *reason)
{
	struct forward *f = find(s, id);

	if (f != NULL)
		forward_end(f, reason);
	return f != NULL;
}

bool
forward_take_fd(struct forward *f, int *fd, void (*cb)(struct loop_io *io, uint32_t events))
{
	if (fd_set_nonblock(*fd) < 0 || loop_io_add(f->s->p.loop, &f->io, *fd, EPOLLIN, cb, f) < 0) {
		forward_end(f, "no room for its descriptor");
		return false;
	}
	*fd = -1;
	return true;
}

void
forward_begin_opened(struct forward *f, struct json_w *w)
{
	session_begin_frame(f->s, w, "device_opened", f->opened ? NULL : f->frame_id, NULL);
	json_w_str(w, "device_id", f->id);
	json_w_str(w, "kind", f->kind->name);
	json_w_int(w, "channel", f->chan.id);
	f->opened = true;
}

/* ---- the session's and workerd's end ---- */

void
forward_work_down(struct session *s)
{
	for (struct forward *f = s->forwards, *next; f != NULL; f = next) {
		const char *why = f->kind->work_down(f);

		next = f->next;
		if (why != NULL)
			forward_end(f, why);
	}
}

void
forward_done(struct session *s)
{
	while (s->forwards != NULL) {
		tell(s->forwards, "the session with the hub has ended");
		mux_drop(&s->forwards->chan);
		drop(s->forwards);
	}
}
