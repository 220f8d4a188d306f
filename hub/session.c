#include "hub/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/client.h"
#include "hub/run.h"
#include "hub/streams.h"
#include "hub/forward.h"
#include "proto/hub/limits.h"

#define BACK_FIRST_MS	200	/* the new process needs a moment */
#define BACK_EACH_MS	100	/* ten devices a second */
#define BACK_MAX_MS	120000

int
session_new(struct conn *conn, const char *device, const char *name, const char *token, bool edgeward)
{
	struct session *s = calloc(1, sizeof(*s));
	struct hub *hub = conn->hub;

	if (s == NULL)
		return -ENOMEM;
	s->hub = hub;
	s->conn = conn;
	s->epoch = ++hub->last_epoch;
	s->enrolling = token != NULL;
	if (token != NULL)
		snprintf(s->token, sizeof(s->token), "%s", token);
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
	streams_init(s);
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

int
session_request_stream(struct session *s, uint32_t channel, char id[16])
{
	int r = add_request(s, REQUEST_STREAM, "", 0, 0, id);

	if (r == 0)
		s->requests->channel = channel;
	return r;
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
session_ask(struct session *s, const char *type, const char *handle, const char *payload, size_t len, uint64_t client,
    uint32_t client_id)
{
	struct json_w w;
	char id[16];
	int r = add_request(s, REQUEST_SECRET, handle, client, client_id, id);

	if (r < 0)
		return r;
	json_w_init(&w, s->hub->scratch, HUB_SCRATCH);
	json_w_obj(&w, NULL);
	json_w_int(&w, "v", s->version);
	json_w_str(&w, "type", type);
	json_w_str(&w, "id", id);
	json_w_raw(&w, "payload", payload, len);
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

/*
 * returning: how many devices are told to come back, 0 = this one shall not. They are asked to spread over a time that fits
 * their number: a device by itself is back at once, a fleet does not come in one second.
 */
void
session_bye(struct session *s, const char *reason, unsigned returning)
{
	int64_t spread = (int64_t)returning * BACK_EACH_MS;
	bool reconnect = returning > 0;
	struct json_w w;
	char buf[512];

	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, s->version, "bye", NULL, NULL);
	json_w_str(&w, "reason", reason);
	json_w_bool(&w, "reconnect", reconnect);
	if (reconnect) {
		json_w_int(&w, "retry_from_ms", BACK_FIRST_MS);
		json_w_int(&w, "retry_to_ms", BACK_FIRST_MS + (spread < BACK_MAX_MS ? spread : BACK_MAX_MS));
	}
	frame_end(&w);
	session_send(s, &w);
	/* 1012: the hub restarts. A device spreads its return then. */
	conn_close(s->conn, reconnect ? 1012 : WSLAY_CODE_NORMAL_CLOSURE, reason);
}

int64_t
session_heard(const struct session *s)
{
	return monotime_wall_ns() - (monotime_now().ns - s->conn->last_rx.ns);
}

/* The end of a session touches only what is bound to its own epoch; what it tells of the device is true until a newer one comes. */
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
	streams_done(s);
	for (struct request *r = s->requests; r != NULL; r = r->next)
		if (r->client != 0)
			client_answer(hub, r->client, r->client_id, -ENOTCONN, "the device went away before it answered");
	for (struct run *run = hub->runs; run != NULL; run = next) {
		next = run->next;
		if (s->welcomed && strcmp(run->info.device, s->device) == 0)
			memcpy(run->away, s->why, sizeof(run->away));
		if (run->epoch != s->epoch)
			continue;
		run->epoch = 0;
		run->channel = 0;
		run_put(run);
	}
	if (!s->welcomed)
		return;
	store_device_seen(hub->store, s->device, session_heard(s));
	log_info("device %s (%s): disconnected", s->device, s->name);
}

bool
session_deadline(struct session *s)
{
	if (!s->welcomed)
		return false;
	/* The timer is not set anew for every message; look at when the last byte came. */
	int64_t idle = monotime_diff_ms(monotime_now(), s->conn->last_rx);

	int64_t limit = forward_any(s) ? FORWARD_SILENCE_MS : HUB_SILENCE_MS;

	if (idle < limit) {
		conn_deadline(s->conn, limit - idle);
		return true;
	}
	snprintf(s->why, sizeof(s->why), "silent for %lld s", (long long)limit / 1000);
	log_info("device %s (%s): %s", s->device, s->name, s->why);
	return false;
}
