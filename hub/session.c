#include "hub/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/client.h"
#include "hub/run.h"
#include "proto/hub/limits.h"

int
session_new(struct conn *conn, const char *device, const char *name, bool enrolling, bool edgeward)
{
	struct session *s = calloc(1, sizeof(*s));
	struct hub *hub = conn->hub;

	if (s == NULL)
		return -ENOMEM;
	s->hub = hub;
	s->conn = conn;
	s->epoch = ++hub->last_epoch;
	s->enrolling = enrolling;
	s->edgeward = edgeward;
	s->version = HUB_VERSION;
	snprintf(s->device, sizeof(s->device), "%s", device);
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->next = hub->sessions;
	if (s->next != NULL)
		s->next->prev = s;
	hub->sessions = s;
	s->listed = true;
	conn->session = s;
	return 0;
}

void
session_free(struct session *s)
{
	struct request *r;

	if (s == NULL)
		return;
	while ((r = s->requests) != NULL) {
		s->requests = r->next;
		free(r);
	}
	free(s);
}

struct session *
session_find(struct hub *hub, const char *device)
{
	for (struct session *s = hub->sessions; s != NULL; s = s->next)
		if (s->welcomed && !s->gone && strcmp(s->device, device) == 0)
			return s;
	return NULL;
}

struct session *
session_by_epoch(struct hub *hub, uint64_t epoch)
{
	for (struct session *s = hub->sessions; s != NULL; s = s->next)
		if (s->epoch == epoch && !s->gone)
			return s;
	return NULL;
}

void
session_send(struct session *s, const struct json_w *w)
{
	size_t len;

	if (json_w_done(w, &len) < 0 || len > HUB_MESSAGE_MAX) {
		log_error("device %s: a frame does not fit into a message", s->device);
		conn_close(s->conn, WSLAY_CODE_INTERNAL_SERVER_ERROR, "internal error");
		return;
	}
	conn_send_text(s->conn, w->buf, len);
}

void
session_error(struct session *s, const char *id, const char *handle, const char *code, const char *message)
{
	char buf[2048];
	struct json_w w;

	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, 1, "error", id, handle);
	json_w_str(&w, "code", code);
	json_w_str(&w, "message", message);
	frame_end(&w);
	session_send(s, &w);
}

static int
add_request(struct session *s, enum request_kind kind, const char *handle, uint64_t client, uint32_t client_id,
    char id[16])
{
	struct request *r;

	if (s->nrequests >= SESSION_REQUESTS_MAX)
		return -EBUSY;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->id = ++s->last_request;
	r->kind = kind;
	r->client = client;
	r->client_id = client_id;
	snprintf(r->handle, sizeof(r->handle), "%s", handle);
	r->next = s->requests;
	s->requests = r;
	s->nrequests++;
	snprintf(id, 16, "c%u", r->id);
	return 0;
}

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

int
session_start_run(struct session *s, const char *handle, const char *spec, size_t spec_len)
{
	struct json_w w;
	char id[16];
	int r = add_request(s, REQUEST_START, handle, 0, 0, id);

	if (r < 0)
		return r;
	json_w_init(&w, s->hub->scratch, HUB_SCRATCH);
	json_w_obj(&w, NULL);
	json_w_int(&w, "v", s->version);
	json_w_str(&w, "type", "start");
	json_w_str(&w, "id", id);
	json_w_str(&w, "handle", handle);
	json_w_raw(&w, "payload", spec, spec_len);
	json_w_end_obj(&w);
	session_send(s, &w);
	return 0;
}

int
session_signal_run(struct session *s, const char *handle, const char *signame, uint64_t client, uint32_t client_id)
{
	struct json_w w;
	char id[16], buf[512];
	int r = add_request(s, REQUEST_SIGNAL, handle, client, client_id, id);

	if (r < 0)
		return r;
	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, s->version, "signal", id, handle);
	json_w_str(&w, "signal", signame);
	frame_end(&w);
	session_send(s, &w);
	return 0;
}

void
session_bye(struct session *s, const char *reason, bool reconnect)
{
	struct json_w w;
	char buf[512];

	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, s->version, "bye", NULL, NULL);
	json_w_str(&w, "reason", reason);
	json_w_bool(&w, "reconnect", reconnect);
	frame_end(&w);
	session_send(s, &w);
	/* 1012: the hub restarts. A device spreads its return then. */
	conn_close(s->conn, reconnect ? 1012 : WSLAY_CODE_NORMAL_CLOSURE, reason);
}

/* The end of a session touches only what is bound to its own epoch. */
void
session_gone(struct session *s)
{
	struct hub *hub = s->hub;
	struct run *next;

	s->gone = true;
	if (s->listed) {
		if (s->prev != NULL)
			s->prev->next = s->next;
		else
			hub->sessions = s->next;
		if (s->next != NULL)
			s->next->prev = s->prev;
		s->listed = false;
	}
	for (struct request *r = s->requests; r != NULL; r = r->next)
		if (r->client != 0)
			client_answer(hub, r->client, r->client_id, -ENOTCONN, "the device went away before it answered");
	for (struct run *run = hub->runs; run != NULL; run = next) {
		next = run->next;
		if (run->epoch != s->epoch)
			continue;
		run->epoch = 0;
		run->channel = 0;
		run_put(run);
	}
	if (!s->welcomed)
		return;
	store_device_seen(hub->store, s->device, monotime_wall_ns());
	log_info("device %s (%s): disconnected", s->device, s->name);
}

bool
session_deadline(struct session *s)
{
	if (!s->welcomed)
		return false;
	/* The timer is not set anew for every message; look at when the last byte came. */
	int64_t idle = monotime_diff_ms(monotime_now(), s->conn->last_rx);

	if (idle < HUB_SILENCE_MS) {
		conn_deadline(s->conn, HUB_SILENCE_MS - idle);
		return true;
	}
	log_info("device %s (%s): silent for %d s", s->device, s->name, HUB_SILENCE_MS / 1000);
	return false;
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
	if (req == NULL) {
		log_info("device %s: says: %s", s->device, log_quote(quoted, sizeof(quoted), text, strlen(text)));
		return;
	}
	run = run_get(s->hub, req->handle);
	if (req->kind == REQUEST_START && run != NULL)
		run_refused(run, code, text);
	else if (req->client != 0)
		client_answer(s->hub, req->client, req->client_id,
		    code != NULL && strcmp(code, "unknown_handle") == 0 ? -ESRCH : -EREMOTEIO, text);
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
	if ((other != NULL && other != run) || (run->epoch == s->epoch && run->channel != 0 && run->channel != channel))
		session_error(s, f->id, handle, "protocol", "the channel or the run's log is open already");
	else if (run->epoch != s->epoch || run->channel == 0)
		run_bind(run, s, channel);
	run_put(run);
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
	case FRAME_BYE:
		conn_close(s->conn, WSLAY_CODE_NORMAL_CLOSURE, "bye");
		return;
	case FRAME_ERROR:
		take_error(s, f);
		return;
	case FRAME_REPORT:
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
