#include "connectd/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "connectd/attach.h"
#include "connectd/counts.h"
#include "connectd/edgeward1.h"
#include "connectd/streams.h"
#include "connectd/usbdev.h"
#include "connectd/filestream.h"
#include "connectd/l2dev.h"
#include "proto/hub/limits.h"

#define PROTOCOL_ERROR	1002

static const struct workchan_listener listener;
static const struct logsend_ops log_ops;
static void handshake_due(struct loop_timer *timer);
static void logs_due(struct loop_timer *timer);

int
session_new(const struct session_params *params, struct session **ret_session)
{
	struct session *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->p = *params;
	s->version = 1;
	s->rtt_us = -1;
	s->clock_offset_ms = INT64_MIN;
	mirror_session_begin(s->p.mirror);
	logsend_init(&s->logs, s->p.conn, s->p.work, s->p.mirror, s->p.edgeward1, s->p.conf->work_retain, &log_ops, s);
	loop_timer_init(&s->handshake, handshake_due, s);
	loop_timer_init(&s->logs_timer, logs_due, s);
	streams_init(s);
	hold_init(s);
	beat_stop(s);
	loop_timer_set_ms(s->p.loop, &s->handshake, s->p.conf->handshake_timeout);
	workchan_listen(s->p.work, &listener, s);
	/* The hello shows workerd's view of this moment; while workerd is away, the last one we have. */
	if (workchan_sync(s->p.work) < 0)
		welcome_send_hello(s);
	*ret_session = s;
	return 0;
}

void
session_free(struct session *s)
{
	if (s == NULL)
		return;
	if (s->first_beat != 0)
		workchan_session(s->p.work, false, WORK_DIALECT_NONE);
	hold_done(s);
	forward_done(s);
	attach_done(s);
	filestream_done(s);
	results_done(s);
	streams_done(s);
	logsend_done(&s->logs);
	workchan_listen(s->p.work, NULL, NULL);
	beat_stop(s);
	loop_timer_del(s->p.loop, &s->handshake);
	loop_timer_del(s->p.loop, &s->logs_timer);
	requests_free(s);
	branches_free(s);
	leases_free(s);
	explicit_bzero(s->out, sizeof(s->out));
	free(s);
}

void
session_end(struct session *s, enum session_how how, uint16_t close_code, const char *code, const char *fmt, ...)
{
	struct session_over over = { .how = how, .close_code = close_code, .named = s->named, .window = s->window };
	va_list ap;

	if (s->state == SESSION_OVER)
		return;
	s->state = SESSION_OVER;
	beat_stop(s);
	loop_timer_del(s->p.loop, &s->handshake);
	snprintf(over.code, sizeof(over.code), "%s", code);
	va_start(ap, fmt);
	vsnprintf(over.detail, sizeof(over.detail), fmt, ap);
	va_end(ap);
	s->p.ops->over(&over, s->p.ctx);
}

static void
handshake_due(struct loop_timer *timer)
{
	struct session *s = timer->ctx;

	if (s->state == SESSION_SYNCING)
		session_end(s, SESSION_FAILED, 1001, "workerd-silent", "workerd did not say in time what it holds");
	else
		session_end(s, SESSION_FAILED, 1002, "handshake-timeout",
		    "the hub did not answer the hello within %lld s", (long long)s->p.conf->handshake_timeout / 1000);
}

/* ---- sending ---- */

void
session_begin_frame(struct session *s, struct json_w *w, const char *type, const char *id, const char *handle)
{
	cloop_begin(w, s->out, sizeof(s->out), s->version, type, id, handle);
}

void
session_send(struct session *s, struct json_w *w)
{
	size_t len;
	int r = cloop_end(w, &len);

	if (s->state == SESSION_OVER)
		return;
	if (r == 0)
		r = hubconn_send_text(s->p.conn, w->buf, len);
	if (r == -EPIPE)
		return;		/* its end is on the way and says more */
	if (r < 0)
		session_end(s, SESSION_FAILED, 0, "stalled", "a frame could not be sent: %s", strerror(-r));
}

void
session_send_error(struct session *s, const char *id, const char *code, const char *message)
{
	struct json_w w;

	if (s->p.counts != NULL)
		count_add(s->p.counts->errors, code);
	session_begin_frame(s, &w, "error", id, NULL);
	json_w_str(&w, "code", code);
	json_w_str(&w, "message", message);
	session_send(s, &w);
}

/* ---- from the hub ---- */

void
session_text(struct session *s, const uint8_t *data, size_t len)
{
	struct json_doc *doc;
	struct cloop_frame f;
	const char *why;

	if (s->state == SESSION_OVER)
		return;
	if (cloop_decode(data, len, s->state == SESSION_UP ? s->version : CLOOP_VERSION, &doc, &f, &why) < 0) {
		session_end(s, SESSION_FAILED, PROTOCOL_ERROR, "protocol", "the hub sent %s", why);
		return;
	}
	if (hold_take(s, &f, doc))
		return;
	frames_dispatch(s, &f);
	json_doc_free(doc);
}

static void
on_window(uint32_t channel, uint64_t offset, void *ctx)
{
	struct session *s = ctx;

	logsend_window(&s->logs, channel, offset);
}

static void
on_reset(uint32_t channel, enum stream_reset code, const uint8_t *reason, size_t len, void *ctx)
{
	struct session *s = ctx;
	const struct mirror_entry *e = mirror_by_channel(s->p.mirror, channel);
	char text[LOG_QUOTE_SIZE];

	if (e == NULL)
		return;
	log_warn("the hub reset the log of %s: %s%s", e->w.handle, log_quote(text, sizeof(text), reason, len),
	    code == STREAM_RESET_GONE ? "; it wants no more of it" : "; trying again later");
	logsend_reset(&s->logs, channel, code);
	logs_due(&s->logs_timer);
}

/* A hub has nothing to say on a log channel. */
static void
on_unwanted(uint32_t channel, void *ctx)
{
	struct session *s = ctx;
	uint8_t frame[EDGEWARD1_SMALL];
	size_t len = edgeward1_reset(frame, channel, STREAM_RESET_PROTOCOL, "nothing is received on this channel");

	if (hubconn_send_binary(s->p.conn, frame, len) < 0)
		log_debug("no room for a reset");
}

/* Odd channels are the hub's: streams. Even ones are logs, unless the agent has opened a stream there. */
static void
on_frame(const struct stream_frame *f, void *ctx)
{
	struct session *s = ctx;

	if (!hold_stream_frame(s, f) && s->state == SESSION_UP)
		mux_frame(&s->mux, f);
}

static bool
is_stream(uint32_t channel, void *ctx)
{
	struct session *s = ctx;

	return (channel & 1) != 0 || mux_find(&s->mux, channel) != NULL;
}

static const struct edgeward1_sink sink = { .window = on_window, .reset = on_reset, .unwanted = on_unwanted,
	.is_stream = is_stream, .stream = on_frame };

void
session_binary(struct session *s, const uint8_t *data, size_t len)
{
	if (s->state == SESSION_OVER)
		return;
	if (!s->p.edgeward1)
		session_end(s, SESSION_FAILED, 1003, "protocol", "the hub sent a binary message on a plain cloop session");
	else if (s->state != SESSION_UP)
		session_end(s, SESSION_FAILED, PROTOCOL_ERROR, "protocol", "the hub sent a binary message before its welcome");
	else if (edgeward1_receive(data, len, &sink, s) < 0)
		session_end(s, SESSION_FAILED, PROTOCOL_ERROR, "protocol", "the hub sent a binary frame that breaks the format");
}

void
session_writable(struct session *s)
{
	streams_writable(s);
	if (s->state == SESSION_UP)
		report_all(s);
}

/* ---- from workerd ---- */

static void
on_workload(struct mirror_entry *e, bool is_new, void *ctx)
{
	struct session *s = ctx;

	if (s->state != SESSION_UP || !s->p.work->synced)
		return;		/* a snapshot is taken as a whole */
	if (!e->log.open && !e->log.discard && !e->disowned && e->log.retry_at.ns == INT64_MAX)
		logsend_open(&s->logs, e, e->acked < e->w.produced ? e->acked : e->w.produced, true);
	requests_workload(s, e);
	report_try(s, e);
}

static void
on_gone(struct mirror_entry *e, void *ctx)
{
	struct session *s = ctx;

	logsend_close(&s->logs, e);
	requests_gone(s, e);
}

/* workerd is back in the middle of a session: what was said to the old one is said again. */
static void
tell_again(struct session *s)
{
	workchan_session(s->p.work, true, s->p.edgeward1 ? WORK_DIALECT_EDGEWARD1 : WORK_DIALECT_CLOOP);
	logsend_resubscribe(&s->logs);
	for (struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next) {
		if (e->disowned && (e->w.flags & WORK_F_DISOWNED) == 0)
			workchan_disown(s->p.work, e);
		if (e->delivered)
			workchan_delivered(s->p.work, e);
		on_workload(e, false, s);
	}
	requests_work_back(s);
	leases_work_back(s);
	harness_work_back(s);
	hold_release(s);
	invframe_compare(s);
}

static void
on_synced(void *ctx)
{
	struct session *s = ctx;

	if (s->state == SESSION_SYNCING)
		welcome_send_hello(s);
	else if (s->state == SESSION_UP)
		tell_again(s);
}

static void
on_down(void *ctx)
{
	struct session *s = ctx;

	requests_work_down(s);
	leases_work_down(s);
	harness_work_down(s);
	invframe_work_down(s);
	forward_work_down(s);
	attach_work_down(s);
	filestream_work_down(s);
	if (s->state == SESSION_SYNCING)
		welcome_send_hello(s);
}

static void
on_answer(uint16_t type, uint32_t id, const struct work_answer *a, void *ctx)
{
	(void)type;
	requests_answer(ctx, id, a);
}

static void
on_report(uint32_t id, const struct work_report *rep, void *ctx)
{
	leases_report(ctx, id, rep);
}

static void
on_harness(uint32_t id, const struct harness_done *done, void *ctx)
{
	harness_answer(ctx, id, done);
}

static uint8_t *
on_rx_buffer(void *ctx)
{
	struct session *s = ctx;

	return s->state == SESSION_UP ? logsend_rx_buffer(&s->logs) : NULL;
}

static void
on_rx_unused(void *ctx)
{
	struct session *s = ctx;

	logsend_rx_unused(&s->logs);
}

static int
on_output(struct mirror_entry *e, uint8_t *rec, size_t len, void *ctx)
{
	struct session *s = ctx;

	return s->state == SESSION_UP ? logsend_output(&s->logs, e, rec, len) : 0;
}

static int
on_gap(struct mirror_entry *e, const struct work_gap *gap, void *ctx)
{
	struct session *s = ctx;

	return s->state == SESSION_UP ? logsend_gap(&s->logs, e, gap) : 0;
}

static int
on_output_end(struct mirror_entry *e, const struct work_output_end *end, void *ctx)
{
	struct session *s = ctx;
	int r = s->state == SESSION_UP ? logsend_output_end(&s->logs, e, end) : 0;

	if (r == 0 && s->state == SESSION_UP)
		report_try(s, e);
	return r;
}

static void
on_inventory(uint32_t id, void *ctx)
{
	invframe_answer(ctx, id);
}

static void
on_device_answer(uint32_t id, const struct device_answer *a, int *fd, void *ctx)
{
	usbdev_answer(ctx, id, a, fd);
}

static void
on_l2_answer(uint32_t id, const struct l2_answer *a, int *fd, void *ctx)
{
	l2dev_answer(ctx, id, a, fd);
}

static void
on_attach_answer(uint32_t id, const struct attach_answer *a, int *fd, void *ctx)
{
	attach_answer_in(ctx, id, a, fd);
}

static void
on_attach_end(const struct attach_end *e, void *ctx)
{
	attach_end_in(ctx, e);
}

static void
on_file_answer(uint32_t id, const struct file_answer *a, int *fd, void *ctx)
{
	filestream_answer(ctx, id, a, fd);
}

static void
on_device(const struct device_info *info, void *ctx)
{
	usbdev_info(ctx, info);
}

static const struct workchan_listener listener = {
	.device_answer = on_device_answer, .device = on_device, .l2_answer = on_l2_answer,
	.attach_answer = on_attach_answer, .attach_end = on_attach_end,
	.file_answer = on_file_answer, .harness = on_harness,
	.inventory = on_inventory, .workload = on_workload, .gone = on_gone, .synced = on_synced, .down = on_down, .answer = on_answer, .report = on_report,
	.rx_buffer = on_rx_buffer, .rx_unused = on_rx_unused, .output = on_output, .gap = on_gap,
	.output_end = on_output_end,
};

/* ---- from logsend ---- */

static void
log_announce(struct mirror_entry *e, void *ctx)
{
	struct session *s = ctx;
	struct json_w w;

	session_begin_frame(s, &w, "log_open", NULL, e->w.handle);
	json_w_str(&w, "handle", e->w.handle);
	json_w_int(&w, "channel", e->log.channel);
	session_send(s, &w);
}

static void
log_failed(int err, void *ctx)
{
	if (err != -EPIPE)
		session_end(ctx, SESSION_FAILED, 0, "stalled", "a frame could not be sent: %s", strerror(-err));
}

static void
log_later(int64_t ms, void *ctx)
{
	struct session *s = ctx;
	monotime_t when = monotime_add_ms(monotime_now(), ms);

	if (!loop_timer_armed(&s->logs_timer) || monotime_before(when, s->logs_timer.when))
		loop_timer_set(s->p.loop, &s->logs_timer, when);
}

static const struct logsend_ops log_ops = { .announce = log_announce, .failed = log_failed, .later = log_later };

static void
logs_due(struct loop_timer *timer)
{
	struct session *s = timer->ctx;
	int64_t ms = s->state == SESSION_UP ? logsend_due(&s->logs) : -1;

	if (ms >= 0)
		loop_timer_set_ms(s->p.loop, timer, ms);
}
