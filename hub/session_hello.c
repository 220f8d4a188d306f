/* The hello: identity, enrollment, version, and a verdict for everything the device holds. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/attach.h"
#include "hub/run.h"
#include "hub/shell.h"
#include "hub/ship.h"
#include "hub/upsend.h"
#include "hub/verdict.h"
#include "proto/hub/limits.h"

static void
refuse(struct session *s, const struct frame *f, const char *code, const char *message)
{
	session_error(s, f->id, NULL, code, message);
	conn_close(s->conn, WSLAY_CODE_POLICY_VIOLATION, message);
}

/* Makes the device's identity. The credential is secret and crosses the wire once. */
static int
enroll(struct session *s, const char *hello_name, char credential[TOKEN_SIZE])
{
	struct store_device d = { .created = monotime_wall_ns() };
	struct token token;
	int r = token_mint(TOKEN_CREDENTIAL, s->hub->key, NULL, credential, &token);

	if (r < 0)
		return r;
	memcpy(d.id, token.id, sizeof(d.id));
	memcpy(d.hash, token.hash, sizeof(d.hash));
	text_clean(d.name, sizeof(d.name), s->name[0] != '\0' ? s->name : hello_name);
	r = store_device_add(s->hub->store, &d);
	if (r == 0)
		r = store_token_device(s->hub->store, s->token, d.id);
	/* A device that has stored its credential must find it here again, power cut or not. */
	if (r == 0)
		r = store_flush(s->hub->store);
	if (r < 0)
		return r;
	memcpy(s->device, d.id, sizeof(s->device));
	memcpy(s->name, d.name, sizeof(s->name));
	return 0;
}

/* The device's capabilities are kept as it sent them, for `devices -j`; they are already bounded by the message. */
static size_t
copy_json(struct json_w *w, const char *key, const struct json *v)
{
	size_t len = 0;

	switch (v->type) {
	case JSON_NULL:
		json_w_null(w, key);
		break;
	case JSON_BOOL:
		json_w_bool(w, key, v->i != 0);
		break;
	case JSON_INT:
		json_w_int(w, key, v->i);
		break;
	case JSON_REAL:
		json_w_null(w, key);	/* no capability is one */
		break;
	case JSON_STRING:
		json_w_strn(w, key, v->str, v->len);
		break;
	case JSON_ARRAY:
	case JSON_OBJECT:
		if (v->type == JSON_ARRAY)
			json_w_arr(w, key);
		else
			json_w_obj(w, key);
		for (const struct json *c = v->child; c != NULL; c = c->next)
			copy_json(w, c->key, c);
		if (v->type == JSON_ARRAY)
			json_w_end_arr(w);
		else
			json_w_end_obj(w);
		break;
	}
	return json_w_done(w, &len) == 0 ? len : 0;
}

static void
store_caps(struct session *s, const char *name, const char *version, const struct json *caps)
{
	struct json_w w;
	size_t len = 0;

	json_w_init(&w, s->hub->scratch, HUB_SCRATCH);
	if (caps != NULL)
		len = copy_json(&w, NULL, caps);
	store_device_hello(s->hub->store, s->device, name, version, len > 0 ? (char *)s->hub->scratch : "{}",
	    len > 0 ? len : 2, monotime_wall_ns());
}

void
session_store_caps(struct session *s, const struct json *caps)
{
	struct store_device d;

	if (store_device_get(s->hub->store, s->device, &d) == 0)
		store_caps(s, d.name, d.version, caps);
}

static void
store_hello(struct session *s, const struct frame_hello *hello)
{
	char name[DEVICE_NAME_SIZE], version[64];

	text_clean(name, sizeof(name), hello->name);
	text_clean(version, sizeof(version), hello->agent_version);
	if (s->name[0] == '\0')
		memcpy(s->name, name, sizeof(s->name));
	store_caps(s, name, version, hello->capabilities);
}

static void
put_verdict(struct json_w *w, const char *handle, const struct verdict *v)
{
	json_w_obj(w, NULL);
	json_w_str(w, "handle_id", handle);
	json_w_int(w, "from_offset", (int64_t)v->from_offset);
	json_w_str(w, "action", v->keep ? "continue" : "terminate");
	if (v->reason != NULL)
		json_w_str(w, "reason", v->reason);
	json_w_end_obj(w);
}

/* An even number that no other run of the session has. */
static bool
channel_ok(const struct session *s, uint32_t channel)
{
	if (!s->edgeward || channel == 0 || (channel & 1) != 0)
		return false;
	for (const struct run *run = s->hub->runs; run != NULL; run = run->next)
		if (run->epoch == s->epoch && run->channel == channel)
			return false;
	return true;
}

/* One verdict; a run that is kept is bound to this session. */
static struct verdict
judge(struct session *s, const struct frame_offer *offer)
{
	struct run *run = run_get(s->hub, offer->handle);
	struct verdict_in in = { .known = run != NULL };
	struct verdict v;

	if (run != NULL) {
		in.ours = strcmp(run->info.device, s->device) == 0;
		in.state = run->info.state;
		if (!s->edgeward && in.ours && run->epoch == 0)
			logfile_trim_text(&run->log);
		in.durable = run->log.durable;
	}
	v = verdict_decide(&in);
	if (v.keep)
		run_bind(run, s, channel_ok(s, offer->log_channel) ? offer->log_channel : 0);
	else if (run != NULL)
		run_put(run);
	return v;
}

static void
put_verdicts(struct session *s, struct json_w *w, const struct json *resume)
{
	unsigned refused = 0;
	struct frame_offer offer;

	json_w_arr(w, "resume_accepted");
	for (; resume != NULL; resume = resume->next) {
		struct verdict v;

		if (frame_offer(resume, &offer) < 0)
			continue;
		v = judge(s, &offer);
		if (v.keep || refused++ < HUB_VERDICTS_MAX)
			put_verdict(w, offer.handle, &v);
		if (!v.keep)
			log_info("device %s: told to stop %s: %s", s->device, offer.handle, v.reason);
	}
	json_w_end_arr(w);
}

static int
load_run(const struct run_info *info, void *ctx)
{
	struct session *s = ctx;

	(void)run_get(s->hub, info->handle);
	return 0;
}

/* Starts whose answer was lost with the old session and that the device does not know. */
static void
resend_starts(struct session *s)
{
	struct run *next;

	for (struct run *run = s->hub->runs; run != NULL && !s->gone; run = next) {
		size_t len = 0;
		char *spec;

		next = run->next;
		if (run->epoch == s->epoch || strcmp(run->info.device, s->device) != 0 ||
		    run_state_is_final(run->info.state))
			continue;
		if (run->info.state == RUN_PENDING && shell_is_owed(run)) {
			run_lost(run, "the shell it was for ended before it began");
			continue;
		}
		if (run->info.state == RUN_PENDING && !s->edgeward) {
			run_lost(run, "the link was lost while it was being started");
			continue;
		}
		if (!verdict_resend(run->info.state, s->edgeward))
			continue;
		spec = store_run_spec(s->hub->store, run->info.handle, &len);
		if (spec != NULL)
			ship_restore(s->hub, run->info.handle, spec, len);
		if (spec == NULL)
			run_lost(run, "its start was lost");
		else if (ship_start(s, run->info.handle, spec, len) == 0)
			log_info("device %s: start of %s sent again", s->device, run->info.handle);
		free(spec);
	}
}

static void
replace_older(struct session *s)
{
	struct session *old = session_find(s->hub, s->device);

	if (old == NULL || old == s)
		return;
	/* It may be gone without a word; what is heard of still is another device with the same identity (B77). */
	if (monotime_diff_ms(monotime_now(), old->conn->last_rx) < HUB_HEARTBEAT_MS + HUB_HEARTBEAT_MS / 4 && strcmp(old->conn->peer, s->conn->peer) != 0)
		log_warn("device %s (%s): session from %s superseded by one from %s; if both go on coming, two devices have one identity: enroll one anew",
		    s->device, s->name, old->conn->peer, s->conn->peer);
	else
		log_info("device %s (%s): older session superseded", s->device, s->name);
	conn_close(old->conn, WSLAY_CODE_NORMAL_CLOSURE, "superseded");
}

static void
welcome(struct session *s, const struct frame *f, const struct frame_hello *hello, const char *credential)
{
	struct json_w w;

	/* Open runs first: judge() and the heartbeats look at what is in memory. */
	store_runs(s->hub->store, s->device, true, 0, 10000, load_run, s);
	json_w_init(&w, s->hub->scratch, HUB_SCRATCH);
	frame_begin(&w, s->version, "welcome", f->id, NULL);
	json_w_int(&w, "protocol_version", s->version);
	json_w_str(&w, "executor_id", s->device);
	if (credential != NULL)
		json_w_str(&w, "credential", credential);
	json_w_int(&w, "heartbeat_seconds", HUB_HEARTBEAT_MS / 1000);
	if (hello->resume != NULL)
		put_verdicts(s, &w, hello->resume);
	frame_end(&w);
	session_send(s, &w);
	OPENSSL_cleanse(s->hub->scratch, 1024);
}

void
session_hello(struct session *s, const struct frame *f)
{
	char credential[TOKEN_SIZE] = "";
	struct frame_hello hello;
	int r = 0;

	if (frame_hello(f->payload, &hello) < 0) {
		refuse(s, f, "protocol", "malformed hello");
		return;
	}
	if (hello.protocol_version < 1) {
		refuse(s, f, "version_unsupported", "this hub needs protocol version 1 or newer");
		return;
	}
	/* An enrolling device has no identity yet; any other must be who its credential says. */
	if (strcmp(hello.agent_id, s->enrolling ? "" : s->device) != 0) {
		refuse(s, f, "unauthorized", "the hello names another device than the credential");
		return;
	}
	if (s->enrolling)
		r = enroll(s, hello.name, credential);
	if (r < 0) {
		log_error("cannot enroll a device: %s", strerror(-r));
		refuse(s, f, "protocol", "the hub could not store the device");
		return;
	}
	s->version = hello.protocol_version < HUB_VERSION ? (unsigned)hello.protocol_version : HUB_VERSION;
	replace_older(s);
	store_hello(s, &hello);
	s->welcomed = true;
	s->since = monotime_wall_ns();
	s->hub->count.sessions++;
	welcome(s, f, &hello, s->enrolling ? credential : NULL);
	OPENSSL_cleanse(credential, sizeof(credential));
	log_info("device %s (%s): %s from %s, %s", s->device, s->name, s->enrolling ? "enrolled" : "connected",
	    s->conn->peer, s->edgeward ? HUB_SUBPROTOCOL : "cloop");
	if (!s->gone)
		conn_deadline(s->conn, HUB_SILENCE_MS);
	resend_starts(s);
	shell_session(s);
	attach_session(s);
	upsend_session(s);
}
