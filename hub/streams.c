#include "hub/streams.h"

#include <errno.h>
#include <stdio.h>

#include "proto/hub/limits.h"

static void
send_small(const uint8_t *frame, size_t len, void *ctx)
{
	struct session *s = ctx;

	conn_send_binary(s->conn, frame, len);
	s->conn->urgent = s->conn->urgent || frame[0] == STREAM_WINDOW_TO;
}

static uint8_t *
begin(size_t len, void *ctx)
{
	struct session *s = ctx;

	return conn_bulk_begin(s->conn, len);
}

static void
commit(size_t len, void *ctx)
{
	struct session *s = ctx;

	conn_bulk_commit(s->conn, len);
}

static void
kick(void *ctx)
{
	struct session *s = ctx;

	conn_kick(s->conn);
}

static const struct mux_ops ops = { .small = send_small, .begin = begin, .commit = commit, .kick = kick };

void
streams_init(struct session *s)
{
	mux_init(&s->mux, true, &ops, s);
}

void
streams_done(struct session *s)
{
	mux_done(&s->mux, "the device is gone");
}

void
session_pump(struct session *s)
{
	if (!s->gone)
		mux_pump(&s->mux, MUX_ATTACH, MUX_FILE);
}

bool
session_has_more(const struct session *s)
{
	return !s->gone && mux_waiting(&s->mux, MUX_ATTACH, MUX_FILE);
}

int
streams_begin(struct session *s, struct hub_stream *st, const struct mux_kind *mk, void *ctx, struct json_w *w,
    const char *type, const char *kind)
{
	uint32_t channel;
	char id[16];
	int r;

	if (!s->edgeward)
		return -ENOTSUP;
	channel = mux_new_id(&s->mux);
	r = mux_open(&s->mux, &st->chan, channel, mk, ctx, 0, 0, 0, 0);
	if (r < 0)
		return r;
	r = session_request_stream(s, channel, id);
	if (r < 0) {
		mux_drop(&st->chan);
		return r;
	}
	st->refused[0] = '\0';
	json_w_init(w, s->hub->scratch, HUB_SCRATCH);
	frame_begin(w, s->version, type, id, NULL);
	json_w_int(w, "channel", channel);
	if (kind != NULL)
		json_w_str(w, "kind", kind);
	return 0;
}

/* ---- an end from the loop ---- */

static void
end_due(struct loop_timer *timer)
{
	struct hub_stream *st = timer->ctx;

	mux_reset(&st->chan, STREAM_RESET_GONE, st->why);
	st->over(st, st->why);
}

void
stream_end_init(struct hub_stream *st, struct hub *hub, void (*over)(struct hub_stream *st, const char *why))
{
	st->hub = hub;
	st->over = over;
	st->why[0] = '\0';
	loop_timer_init(&st->end, end_due, st);
}

void
stream_end_soon(struct hub_stream *st, const char *why, int64_t ms)
{
	if (st->why[0] != '\0')
		return;
	snprintf(st->why, sizeof(st->why), "%s", why);
	loop_timer_set_ms(st->hub->loop, &st->end, ms);
}

void
stream_end_off(struct hub_stream *st)
{
	loop_timer_del(st->hub->loop, &st->end);
}

/* ---- the answers ---- */

/* All channels of a hub are struct hub_stream. */
static struct hub_stream *
stream_of(struct session *s, uint32_t channel)
{
	return (struct hub_stream *)mux_find(&s->mux, channel);
}

void
streams_opened(struct session *s, uint32_t channel, const struct json *payload)
{
	struct hub_stream *st = stream_of(s, channel);

	if (st != NULL)
		st->opened(st, payload);
}

void
streams_refused(struct session *s, uint32_t channel, const char *code, const char *text)
{
	struct hub_stream *st = stream_of(s, channel);

	if (st == NULL)
		return;
	snprintf(st->refused, sizeof(st->refused), "%s%s%.150s", code, code[0] != '\0' ? ": " : "", text);
	mux_drop(&st->chan);
	st->chan.kind->closed(&st->chan, STREAM_RESET_REFUSED, st->refused);
}
