/* What a welcomed device says, frame by frame, and its log channels. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/attach.h"
#include "hub/bundle.h"
#include "hub/client.h"
#include "hub/file.h"
#include "hub/result.h"
#include "hub/run.h"
#include "hub/harness.h"
#include "hub/secret.h"
#include "hub/shell.h"
#include "hub/streams.h"
#include "hub/usb.h"
#include "hub/upsend.h"

/* Takes the request an answer belongs to off the list; NULL when nobody waits for it. */
static struct request *
take_request(struct session *s, const char *id)
{
	char buf[16];

	if (id == NULL)
		return NULL;
	for (struct request **p = &s->requests; *p != NULL; p = &(*p)->next) {
		struct request *r = *p;

		snprintf(buf, sizeof(buf), "c%u", r->id);
		if (strcmp(buf, id) != 0)
			continue;
		*p = r->next;
		s->nrequests--;
		return r;
	}
	return NULL;
}

static void
take_started(struct session *s, const struct frame *f)
{
	struct request *req = take_request(s, f->id);
	struct run *run = run_get(s->hub, f->handle);
	struct frame_started started;

	free(req);
	if (frame_started(f->payload, &started) < 0) {
		session_error(s, f->id, f->handle, "protocol", "malformed started");
		return;
	}
	if (run == NULL || strcmp(run->info.device, s->device) != 0) {
		session_error(s, f->id, f->handle, "unknown_handle", "no such run");
		return;
	}
	if (started.error != NULL) {
		run_refused(run, started.code, started.error);
		return;
	}
	if (run->epoch != s->epoch)
		run_bind(run, s, 0);
	if (s->edgeward && started.log_channel != 0 && run->channel == 0)
		run_bind(run, s, started.log_channel);
	run_started(run, &started);
	shell_started(run);
}

static void
take_status(struct session *s, const struct frame *f)
{
	struct request *req = take_request(s, f->id);
	struct run *run = run_get(s->hub, f->handle);
	struct frame_status status;
	int r = frame_status(f->payload, &status);

	if (req != NULL && req->client != 0)
		client_answer(s->hub, req->client, req->client_id, r < 0 ? -EPROTO : 0,
		    r < 0 ? "the device's answer makes no sense" : "");
	free(req);
	if (r < 0)
		session_error(s, f->id, f->handle, "protocol", "malformed status");
	else if (run == NULL || strcmp(run->info.device, s->device) != 0)
		session_error(s, f->id, f->handle, "unknown_handle", "no such run");
	else
		run_status(run, &status);
	if (r < 0 && run != NULL)
		run_put(run);
}

static void
take_error(struct session *s, const struct frame *f)
{
	struct request *req = take_request(s, f->id);
	const char *code = json_get_str(f->payload, "code"), *message = json_get_str(f->payload, "message");
	char text[256], quoted[LOG_QUOTE_SIZE];
	struct run *run;

	text_clean(text, sizeof(text), message != NULL ? message : "no reason was given");
	if (req == NULL && upsend_error(s, f->id, text))
		return;
	if (req == NULL) {
		log_info("device %s: says: %s", s->device, log_quote(quoted, sizeof(quoted), text, strlen(text)));
		return;
	}
	run = req->kind == REQUEST_STREAM ? NULL : run_get(s->hub, req->handle);
	if (req->kind == REQUEST_STREAM)
		streams_refused(s, req->channel, code != NULL ? code : "", text);
	else if (req->kind == REQUEST_START && run != NULL)
		run_refused(run, code, text);
	else if (req->client != 0)
		client_answer(s->hub, req->client, req->client_id,
		    code != NULL && strcmp(code, "unknown_handle") == 0 ? -ESRCH : -EREMOTEIO, text);
	free(req);
}

/* revoked, secret_refreshed, inventory or harness_installed, if somebody waits for it. */
static void
take_report(struct session *s, const struct frame *f)
{
	struct request *req = take_request(s, f->id);
	char text[256];
	int r;

	if (f->type == FRAME_INVENTORY && f->id == NULL) {
		harness_inventory(s, f->payload, 0, 0);		/* it is another than the hello said */
	} else if (req != NULL && f->type == FRAME_INVENTORY) {
		harness_inventory(s, f->payload, req->client, req->client_id);
	} else if (req != NULL && f->type == FRAME_HARNESS) {
		harness_installed(s, f->payload, req->client, req->client_id);
	} else if (req != NULL && req->client != 0) {
		r = secret_answer(f->payload, text, sizeof(text)) ? 0 : -EREMOTEIO;
		client_answer(s->hub, req->client, req->client_id, r, text);
	}
	free(req);
}

static void
take_chunk(struct session *s, const struct frame *f)
{
	struct run *run = run_get(s->hub, f->handle);
	struct frame_chunk chunk;
	int r;

	if (run == NULL || strcmp(run->info.device, s->device) != 0) {
		session_error(s, f->id, f->handle, "unknown_handle", "no such run");
		return;
	}
	if (s->edgeward || frame_chunk(f->payload, &chunk) < 0)
		return;		/* dropped, as the reference hub does */
	if (run->epoch != s->epoch)
		run_bind(run, s, 0);
	r = run_text(run, s, &chunk);
	if (r < 0) {
		log_error("device %s: cannot store its log: %s", s->device, strerror(-r));
		conn_close(s->conn, 1013, "the hub cannot store logs now");
	}
	run_put(run);
}

static struct run *
run_of_channel(struct session *s, uint32_t channel)
{
	if (s->last != NULL && s->last->epoch == s->epoch && s->last->channel == channel)
		return s->last;
	for (struct run *run = s->hub->runs; run != NULL; run = run->next)
		if (run->epoch == s->epoch && run->channel == channel)
			return s->last = run;
	return NULL;
}

static void
take_log_open(struct session *s, const struct frame *f)
{
	struct run *run, *other;
	const char *handle;
	uint32_t channel;

	if (!s->edgeward || frame_log_open(f, &handle, &channel) < 0) {
		session_error(s, f->id, f->handle, "protocol", "malformed log_open");
		return;
	}
	run = run_get(s->hub, handle);
	if (run == NULL || strcmp(run->info.device, s->device) != 0) {
		session_error(s, f->id, handle, "unknown_handle", "no such run");
		return;
	}
	other = run_of_channel(s, channel);
	if (mux_find(&s->mux, channel) != NULL || (other != NULL && other != run) || (run->epoch == s->epoch && run->channel != 0 && run->channel != channel))
		session_error(s, f->id, handle, "protocol", "the channel or the run's log is open already");
	else if (run->epoch != s->epoch || run->channel == 0)
		run_bind(run, s, channel);
	run_put(run);
}

static void
take_stream_opened(struct session *s, const struct frame *f)
{
	struct request *req = take_request(s, f->id);

	if (req != NULL && req->kind == REQUEST_STREAM)
		streams_opened(s, req->channel, f->payload);
	else
		session_error(s, f->id, NULL, "protocol", "no such stream was asked for");
	free(req);
}

/* The only streams a device opens are bundles. */
static void
take_stream_open(struct session *s, const struct frame *f)
{
	int64_t channel = 0;

	json_get_int(f->payload, "channel", 1, UINT32_MAX, &channel);
	bundle_open(s, f, channel != 0 && run_of_channel(s, (uint32_t)channel) != NULL);
}

static void
dispatch(struct session *s, const struct frame *f)
{
	switch (f->type) {
	case FRAME_HELLO:
		session_error(s, f->id, NULL, "protocol", "a second hello");
		return;
	case FRAME_HEARTBEAT:
		session_heartbeat(s, f);
		return;
	case FRAME_STARTED:
		take_started(s, f);
		return;
	case FRAME_STATUS:
		take_status(s, f);
		return;
	case FRAME_LOG_CHUNK:
		take_chunk(s, f);
		return;
	case FRAME_LOG_OPEN:
		take_log_open(s, f);
		return;
	case FRAME_UPGRADING:
		upsend_upgrading(s, f);
		return;
	case FRAME_UPGRADE_RESULT:
		upsend_result(s, f);
		return;
	case FRAME_FILE_DONE:
		file_done(s, f->payload);
		return;
	case FRAME_STREAM_OPENED:
		take_stream_opened(s, f);
		return;
	case FRAME_DEVICE_OPENED:
		if (f->id != NULL && f->id[0] != '\0')
			take_stream_opened(s, f);
		else
			usb_news(s, f->payload);
		return;
	case FRAME_STREAM_OPEN:
		take_stream_open(s, f);
		return;
	case FRAME_RESULT_CHUNK:
		result_chunk(s, f);
		return;
	case FRAME_RESULT:
		result_take(s, f);
		return;
	case FRAME_ATTACH_CLOSE:
		attach_closed_by_device(s, f);
		return;
	case FRAME_BYE:
		snprintf(s->why, sizeof(s->why), "it said goodbye");
		conn_close(s->conn, WSLAY_CODE_NORMAL_CLOSURE, "bye");
		return;
	case FRAME_ERROR:
		take_error(s, f);
		return;
	case FRAME_REPORT:
	case FRAME_INVENTORY:
	case FRAME_HARNESS:
		take_report(s, f);
		return;
	case FRAME_UNKNOWN:
		session_error(s, f->id, f->handle, "protocol", "unknown frame type");
		return;
	}
}

void
session_text(struct session *s, const uint8_t *data, size_t len)
{
	struct json_doc *doc = NULL;
	struct frame f;
	int r = json_parse_nul(data, len, &doc);

	if (r == 0)
		r = frame_decode(json_root(doc), s->welcomed ? s->version : HUB_VERSION, &f);
	if (r < 0) {
		session_error(s, NULL, NULL, "protocol", "not a frame");
		conn_close(s->conn, WSLAY_CODE_PROTOCOL_ERROR, "not a frame");
	} else if (s->welcomed) {
		dispatch(s, &f);
	} else if (f.type == FRAME_HELLO) {
		session_hello(s, &f);
	} else {
		session_error(s, f.id, NULL, "protocol", "hello comes first");
		conn_close(s->conn, WSLAY_CODE_PROTOCOL_ERROR, "hello comes first");
	}
	json_doc_free(doc);
}

static void
reset_channel(struct session *s, uint32_t channel, enum stream_reset code, const char *reason)
{
	struct stream_frame f = { .type = STREAM_RESET, .channel = channel, .reset = code,
		.data = (const uint8_t *)reason, .len = strlen(reason) };
	uint8_t buf[STREAM_HEADER + 4 + STREAM_REASON_MAX];

	for (unsigned i = 0; i < sizeof(s->reset) / sizeof(s->reset[0]); i++)
		if (s->reset[i] == channel)
			return;
	s->reset[s->nreset++ % (sizeof(s->reset) / sizeof(s->reset[0]))] = channel;
	conn_send_binary(s->conn, buf, stream_put(buf, &f));
}

void
session_binary(struct session *s, const uint8_t *data, size_t len)
{
	enum stream_reset code = STREAM_RESET_INTERNAL;
	struct stream_frame f;
	struct run *run;
	int r;

	if (!s->edgeward || !s->welcomed) {
		conn_close(s->conn, WSLAY_CODE_UNSUPPORTED_DATA, "no binary messages in this session");
		return;
	}
	if (stream_parse(&f, data, len) < 0) {
		conn_close(s->conn, WSLAY_CODE_PROTOCOL_ERROR, "malformed stream frame");
		return;
	}
	if ((f.channel & 1) != 0 || mux_find(&s->mux, f.channel) != NULL) {
		mux_frame(&s->mux, &f);
		return;
	}
	run = run_of_channel(s, f.channel);
	if (run == NULL) {
		if (f.type != STREAM_RESET)
			reset_channel(s, f.channel, STREAM_RESET_GONE, "no such channel");
		return;
	}
	r = run_stream(run, s, &f, &code);
	if (r == -EPROTO) {
		log_warn("device %s, run %s: log channel reset (code %u)", s->device, run->info.handle, (unsigned)code);
		run->channel = 0;
		reset_channel(s, f.channel, code, "log channel reset");
	} else if (r < 0) {
		log_error("device %s: cannot store its log: %s", s->device, strerror(-r));
		conn_close(s->conn, 1013, "the hub cannot store logs now");
	}
}
