/* The table of frames a hub may send, and the short handlers. */
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "connectd/attach.h"
#include "connectd/bundlesend.h"
#include "connectd/devframes.h"
#include "connectd/session.h"
#include "connectd/streams.h"
#include "connectd/upframes.h"

#define NAMED_MAX_MS	(24LL * 3600 * 1000)
#define IN_HELLO	0x1u
#define IN_UP		0x2u
#define NEEDS_HANDLE	0x4u
#define NEEDS_PAYLOAD	0x8u

struct frame_rule {
	const char *type;
	unsigned flags;
	void (*handler)(struct session *s, const struct cloop_frame *f);
};

static void
on_log_ack(struct session *s, const struct cloop_frame *f)
{
	struct mirror_entry *e = mirror_by_handle(s->p.mirror, f->handle);
	int64_t offset;

	if (e != NULL && json_get_int(f->payload, "offset", 0, INT64_MAX, &offset))
		logsend_acked(&s->logs, e, (uint64_t)offset);
}

/* "it goes for good" and "it will be back", the latter perhaps with the time it wants us to return in. */
static void
on_bye(struct session *s, const struct cloop_frame *f)
{
	const char *reason = json_get_str(f->payload, "reason");
	bool reconnect = true;
	char text[LOG_QUOTE_SIZE];

	json_get_bool(f->payload, "reconnect", &reconnect);
	/* When to be back, from a hub that knows how many it has sent away. What makes no sense is as good as nothing. */
	s->named = json_get_int(f->payload, "retry_from_ms", 0, NAMED_MAX_MS, &s->window.from_ms) &&
	    json_get_int(f->payload, "retry_to_ms", 1, NAMED_MAX_MS, &s->window.to_ms);
	log_quote(text, sizeof(text), reason != NULL ? reason : "", reason != NULL ? strlen(reason) : 0);
	if (!reconnect)
		session_end(s, SESSION_STOPPED, 1000, "hub-bye",
		    "the hub said goodbye for good: %s; enroll again: edgectl enroll --replace --token-file FILE", text);
	else
		session_end(s, SESSION_HUB_LEFT, 1000, "hub-bye", "the hub is going away: %s", text);
}


static void
on_error(struct session *s, const struct cloop_frame *f)
{
	const char *code = json_get_str(f->payload, "code"), *message = json_get_str(f->payload, "message");
	struct mirror_entry *e = f->handle[0] != '\0' ? mirror_by_handle(s->p.mirror, f->handle) : NULL;
	char c[LOG_QUOTE_SIZE], m[LOG_QUOTE_SIZE];

	code = code != NULL ? code : "";
	message = message != NULL ? message : "";
	log_quote(c, sizeof(c), code, strlen(code));
	log_quote(m, sizeof(m), message, strlen(message));
	if (s->state == SESSION_HELLO) {
		if (strcmp(code, "unauthorized") == 0)
			session_end(s, SESSION_STOPPED, 1000, "unauthorized",
			    "the hub refuses this identity: %s; enroll again: edgectl enroll --replace --token-file FILE", m);
		else if (strcmp(code, "version_unsupported") == 0)
			session_end(s, SESSION_STOPPED, 1000, "version", "the hub does not accept this agent's version: %s", m);
		else
			session_end(s, SESSION_FAILED, 1000, "refused-hello", "the hub refused the hello: %s: %s", c, m);
		return;
	}
	if (bundlesend_refused(s, f))
		return;
	/* The hub has lost this one: no byte of it is wanted any more. */
	if (e != NULL && strcmp(code, "unknown_handle") == 0) {
		if (!e->log.discard)
			log_warn("the hub does not know %s; its output is not sent any more", e->w.handle);
		logsend_discard(&s->logs, e);
		return;
	}
	log_warn("the hub reports an error: %s: %s", c, m);
}

/* The only streams we open are bundles. */
static void
on_stream_opened(struct session *s, const struct cloop_frame *f)
{
	if (!bundlesend_opened(s, f))
		log_debug("the hub answers a stream that nobody waits for");
}

static const struct frame_rule rules[] = {
	{ "welcome", IN_HELLO | IN_UP | NEEDS_PAYLOAD, welcome_take },
	{ "heartbeat_ack", IN_UP | NEEDS_PAYLOAD, beat_acked },
	{ "branch_chunk", IN_UP | NEEDS_HANDLE | NEEDS_PAYLOAD, branch_chunk },
	{ "start", IN_UP | NEEDS_HANDLE | NEEDS_PAYLOAD, requests_start },
	{ "signal", IN_UP | NEEDS_HANDLE | NEEDS_PAYLOAD, requests_signal },
	{ "device_open", IN_UP | NEEDS_PAYLOAD, devframes_open },
	{ "device_close", IN_UP | NEEDS_PAYLOAD, devframes_close },
	{ "attach_open", IN_UP | NEEDS_HANDLE | NEEDS_PAYLOAD, attach_open_frame },
	{ "attach_data", IN_UP | NEEDS_PAYLOAD, attach_data_frame },
	{ "attach_resize", IN_UP | NEEDS_PAYLOAD, attach_resize_frame },
	{ "attach_close", IN_UP | NEEDS_PAYLOAD, attach_close_frame },
	{ "inventory_req", IN_UP, invframe_request },
	{ "upgrade", IN_UP | NEEDS_PAYLOAD, upframes_request },
	{ "stream_open", IN_UP | NEEDS_PAYLOAD, streams_open },
	{ "stream_opened", IN_UP | NEEDS_PAYLOAD, on_stream_opened },
	{ "status_req", IN_UP | NEEDS_HANDLE, requests_status },
	{ "install_harness", IN_UP | NEEDS_PAYLOAD, harness_install },
	{ "revoke", IN_UP | NEEDS_PAYLOAD, leases_revoke },
	{ "secret_refresh", IN_UP | NEEDS_PAYLOAD, leases_refresh },
	{ "log_ack", IN_UP | NEEDS_HANDLE | NEEDS_PAYLOAD, on_log_ack },
	{ "bye", IN_HELLO | IN_UP, on_bye },
	{ "error", IN_HELLO | IN_UP, on_error },
};

/* A newer hub knows frames we do not. The stock agent says nothing; on edgeward.1 an asker gets an answer. */
static void
unknown(struct session *s, const struct cloop_frame *f)
{
	char type[LOG_QUOTE_SIZE], text[160];

	log_quote(type, sizeof(type), f->type, strlen(f->type));
	if (s->unknown_frames++ < 20)
		log_warn("the hub sent a frame of unknown type %s", type);
	if (!s->p.edgeward1 || f->id[0] == '\0' || s->state != SESSION_UP)
		return;
	snprintf(text, sizeof(text), "this agent does not know the frame %s; update it", type);
	session_send_error(s, f->id, "protocol", text);
}

void
frames_dispatch(struct session *s, const struct cloop_frame *f)
{
	const struct frame_rule *rule = NULL;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]) && rule == NULL; i++)
		if (strcmp(f->type, rules[i].type) == 0)
			rule = &rules[i];
	if (rule == NULL) {
		unknown(s, f);
		return;
	}
	if ((rule->flags & (s->state == SESSION_UP ? IN_UP : IN_HELLO)) == 0 || s->state == SESSION_SYNCING) {
		session_end(s, SESSION_FAILED, 1002, "protocol", "the hub sent %s where it does not belong", rule->type);
		return;
	}
	if (((rule->flags & NEEDS_HANDLE) != 0 && f->handle[0] == '\0') ||
	    ((rule->flags & NEEDS_PAYLOAD) != 0 && f->payload == NULL)) {
		log_warn("the hub sent %s without %s", rule->type, f->payload == NULL ? "a payload" : "a handle");
		session_send_error(s, f->id, "protocol", "handle or payload is missing");
		return;
	}
	rule->handler(s, f);
}
