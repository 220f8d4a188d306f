#include "connectd/streams.h"

#include <errno.h>
#include <string.h>

#include "connectd/attach.h"
#include "connectd/branch.h"
#include "connectd/counts.h"
#include "connectd/svcstream.h"
#include "connectd/filestream.h"
#include "connectd/upframes.h"

struct stream_row {
	const char *kind;
	/* Must answer f. channel is claimed. */
	void (*open)(struct session *s, const struct cloop_frame *f, uint32_t channel);
};

static void
open_http(struct session *s, const struct cloop_frame *f, uint32_t channel)
{
	if (s->p.services == NULL)
		session_send_error(s, f->id, "protocol", "this agent serves nothing");
	else
		s->p.services->open(s, f, channel);
}

static const struct stream_row rows[] = {
	{ "attach", attach_stream },
	{ "bundle", branch_stream },
	{ "file", filestream_open },
	{ "release", upframes_release },
	{ "http", open_http },
	{ NULL, NULL },
};

uint32_t
streams_claim(struct session *s, const struct cloop_frame *f)
{
	int64_t channel = 0;
	int r;

	if (!s->p.edgeward1) {
		session_send_error(s, f->id, "protocol", "streams need the edgeward.1 dialect");
		return 0;
	}
	json_get_int(f->payload, "channel", 1, UINT32_MAX, &channel);
	r = mux_claim(&s->mux, channel);
	if (r == 0)
		return (uint32_t)channel;
	session_send_error(s, f->id, "protocol", r == -EEXIST ? "this channel was used before in this session" :
	    r == -EINVAL ? "channel must be an odd number" : "too many streams are open");
	return 0;
}

void
streams_open(struct session *s, const struct cloop_frame *f)
{
	const char *kind = json_get_str(f->payload, "kind");
	const struct stream_row *row = rows;
	uint32_t channel;

	while (row->kind != NULL && (kind == NULL || strcmp(row->kind, kind) != 0))
		row++;
	if (s->p.edgeward1 && row->kind == NULL) {
		session_send_error(s, f->id, "protocol", "this agent has no stream of that kind");
		return;
	}
	channel = streams_claim(s, f);
	if (channel != 0)
		row->open(s, f, channel);
}

void
streams_begin_opened(struct session *s, struct json_w *w, const struct cloop_frame *f, uint32_t channel)
{
	session_begin_frame(s, w, "stream_opened", f->id, NULL);
	json_w_int(w, "channel", channel);
}

/* ---- the connection below ---- */

static void
send_small(const uint8_t *frame, size_t len, void *ctx)
{
	struct session *s = ctx;
	int r = hubconn_send_binary(s->p.conn, frame, len);

	/* At once: the hub may be waiting for nothing else, and this turn may read on for a while. */
	if (r == 0 && frame[0] == STREAM_WINDOW_TO)
		hubconn_flush(s->p.conn);
	if (r < 0 && r != -EPIPE)
		session_end(s, SESSION_FAILED, 0, "stalled", "a frame could not be sent: %s", strerror(-r));
}

static uint8_t *
begin(size_t len, void *ctx)
{
	struct session *s = ctx;

	return hubconn_bulk_begin(s->p.conn, len);
}

static void
commit(size_t len, void *ctx)
{
	struct session *s = ctx;

	hubconn_bulk_commit(s->p.conn, len);
}

static void
kick(void *ctx)
{
	struct session *s = ctx;

	if (!loop_timer_armed(&s->streams_timer))
		loop_timer_set(s->p.loop, &s->streams_timer, monotime_now());
}

static const struct mux_ops ops = { .small = send_small, .begin = begin, .commit = commit, .kick = kick };

void
streams_writable(struct session *s)
{
	if (s->state == SESSION_UP)
		mux_pump(&s->mux, MUX_ATTACH, MUX_L2);
	if (s->state == SESSION_UP)
		attach_writable(s);
	logsend_writable(&s->logs);
	/* A log that waits for room comes before a file. */
	if (s->state == SESSION_UP && !s->logs.paused)
		mux_pump(&s->mux, MUX_FILE, MUX_FILE);
}

static void
pump_due(struct loop_timer *timer)
{
	struct session *s = timer->ctx;

	streams_writable(s);
	/* Now: what waits for the end of the turn waits for another look at the descriptors first. */
	if (s->state == SESSION_UP)
		hubconn_flush(s->p.conn);
}

void
streams_init(struct session *s)
{
	mux_init(&s->mux, false, &ops, s);
	s->mux.counts = s->p.counts != NULL ? s->p.counts->streams : NULL;
	loop_timer_init(&s->streams_timer, pump_due, s);
}

void
streams_done(struct session *s)
{
	loop_timer_del(s->p.loop, &s->streams_timer);
	mux_done(&s->mux, "the session has ended");
}
