#include "connectd/upframes.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "connectd/streams.h"
#include "connectd/upgrader.h"
#include "version.h"

/* ---- upgrade ---- */

static void
answer(struct session *s, const char *id, bool accepted, bool current, const char *reason, const char *target)
{
	struct json_w w;

	session_begin_frame(s, &w, "upgrading", id, NULL);
	json_w_bool(&w, "accepted", accepted);
	if (reason[0] != '\0')
		json_w_str(&w, "reason", reason);
	if (current)
		json_w_bool(&w, "already_current", true);
	json_w_str(&w, "from_version", EDGEWARD_VERSION);
	json_w_str(&w, "target_version", target);
	session_send(s, &w);
}

/* What is malformed is no request. Everything else gets an answer with a reason. */
static bool
decode(struct session *s, const struct cloop_frame *f, struct uptarget *ret_target, int64_t *ret_settle)
{
	const char *target = json_get_str(f->payload, "target_version");
	const struct json *settle = json_get(f->payload, "settle_seconds");

	*ret_settle = 0;
	if (target == NULL || uptarget_parse(target, ret_target) < 0) {
		session_send_error(s, f->id, "protocol", "target_version must be a release tag, latest or edge: and a commit");
		return false;
	}
	if (settle != NULL && settle->type != JSON_NULL && !json_get_int(f->payload, "settle_seconds", 0, INT64_MAX, ret_settle)) {
		session_send_error(s, f->id, "protocol", "settle_seconds must be a number of at least 0");
		return false;
	}
	return true;
}

void
upframes_request(struct session *s, const struct cloop_frame *f)
{
	struct upgrader *u = s->p.upgrader;
	char reason[UPTARGET_REASON], quoted[LOG_QUOTE_SIZE], target[UPTARGET_SIZE + 8];
	struct upfacts facts = { .version = EDGEWARD_VERSION };
	struct uptarget t;
	bool current = false, good;
	int64_t settle;
	int r = 0;

	if (!decode(s, f, &t, &settle))
		return;
	snprintf(target, sizeof(target), "%s%s", t.kind == UPTARGET_EDGE ? "edge:" : "", t.name);
	if (u != NULL && upgrader_has(u, f->id, &t)) {
		answer(s, f->id, true, false, "", target);
		return;
	}
	if (u != NULL)
		upgrader_facts(u, t.name, &facts);
	good = uptarget_judge(&facts, &t, reason, &current);
	if (good && settle > UPGRADE_SETTLE_MAX) {
		snprintf(reason, sizeof(reason), "settle_seconds is more than %u", UPGRADE_SETTLE_MAX);
		good = false;
	}
	if (good)
		r = upgrader_begin(u, f->id, &t, (uint64_t)settle);
	if (r < 0) {
		snprintf(reason, sizeof(reason), "the request cannot be stored: %s", strerror(-r));
		good = false;
	}
	log_info("upgrade to %s asked for by the hub: %s", log_quote(quoted, sizeof(quoted), target, strlen(target)), good ? "accepted" : reason);
	answer(s, f->id, good, current, reason, target);
}

/* ---- the stream release ---- */

struct release_stream {
	struct mux_chan chan;
	struct session *s;
};

/* It was no good: the hub hears why, and what has come of it is gone. */
static void
turn_down(struct release_stream *st, int err)
{
	struct upgrader *u = st->s->p.upgrader;
	char reason[STREAM_REASON_MAX + 1];

	if (err == -ECANCELED && u->check != NULL)
		snprintf(reason, sizeof(reason), "%.24s: %.170s", u->check->why.code, u->check->why.detail);
	else
		snprintf(reason, sizeof(reason), "io: %s", strerror(-err));
	log_warn("upgrade: the release the hub sends is refused: %s", reason);
	upgrader_forget(u);
	mux_reset(&st->chan, STREAM_RESET_REFUSED, reason);
	free(st);
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct release_stream *st = c->ctx;
	int r = upgrader_bytes(st->s->p.upgrader, data, len);

	if (r < 0) {
		turn_down(st, r);
		return 0;
	}
	return (ssize_t)len;
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	struct release_stream *st = c->ctx;
	int r = upgrader_received(st->s->p.upgrader);

	if (r < 0)
		turn_down(st, r);
	else
		mux_end(c, NULL);	/* our END: it is here, whole, on the disk */
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct release_stream *st = c->ctx;

	if (code != 0)
		upgrader_pause(st->s->p.upgrader);
	free(st);
}

static const struct mux_kind release_kind = { .class = MUX_FILE, .take = take, .ended = ended, .closed = closed };

static int
parse_hex(const char *s, uint8_t hash[RELEASE_HASH])
{
	static const char digits[] = "0123456789abcdef";

	if (s == NULL || strlen(s) != 2 * RELEASE_HASH || strspn(s, digits) != 2 * RELEASE_HASH)
		return -EINVAL;
	for (size_t i = 0; i < RELEASE_HASH; i++)
		hash[i] = (uint8_t)((strchr(digits, s[2 * i]) - digits) << 4 | (strchr(digits, s[2 * i + 1]) - digits));
	return 0;
}

/* 0, or a sentence. */
static const char *
begin(struct session *s, const struct cloop_frame *f, uint64_t *ret_from)
{
	static const struct uptarget any = { .kind = UPTARGET_LATEST, .name = "latest" };
	static char reason[UPTARGET_REASON];
	struct upgrader *u = s->p.upgrader;
	uint8_t sha256[RELEASE_HASH];
	int64_t size, sequence, offset = 0;
	struct upfacts facts;
	bool current;
	int r;

	if (u == NULL)
		return "this agent takes no upgrades";
	if (!json_get_int(f->payload, "size", 1, RELEASE_TOTAL_MAX + RELEASE_HEAD_MAX, &size) ||
	    !json_get_int(f->payload, "sequence", 1, RELEASE_SEQUENCE_MAX, &sequence) ||
	    parse_hex(json_get_str(f->payload, "sha256"), sha256) < 0 ||
	    (json_get(f->payload, "offset") != NULL && !json_get_int(f->payload, "offset", 0, size, &offset)))
		return "sequence, size or sha256 is missing or not one";
	upgrader_facts(u, NULL, &facts);
	facts.staged = true;		/* it brings its own: no mirror is needed */
	if (!uptarget_judge(&facts, &any, reason, &current))
		return reason;
	if (facts.sequence != 0 && (uint64_t)sequence <= facts.sequence) {
		snprintf(reason, sizeof(reason), "sequence %lld is not higher than %llu, which runs", (long long)sequence,
		    (unsigned long long)facts.sequence);
		return reason;
	}
	r = upgrader_receive(u, (uint64_t)size, sha256, ret_from);
	return r == 0 ? NULL : r == -EBUSY ? "a release is being received already" : strerror(-r);
}

void
upframes_release(struct session *s, const struct cloop_frame *f, uint32_t channel)
{
	struct release_stream *st = calloc(1, sizeof(*st));
	uint64_t from = 0;
	const char *why = st == NULL ? "the agent is out of memory" : begin(s, f, &from);
	struct json_w w;

	if (why == NULL && mux_open(&s->mux, &st->chan, channel, &release_kind, st, from, 0, 0, 0) < 0) {
		upgrader_pause(s->p.upgrader);
		why = "too many streams are open";
	}
	if (why != NULL) {
		free(st);
		session_send_error(s, f->id, "protocol", why);
		return;
	}
	st->s = s;
	log_info("upgrade: the hub sends a release, from byte %llu on", (unsigned long long)from);
	streams_begin_opened(s, &w, f, channel);
	json_w_int(&w, "offset", (int64_t)from);
	session_send(s, &w);
}

/* ---- results ---- */

static void
send_result(struct session *s, const struct upgrader_result *r)
{
	struct json_w w;

	session_begin_frame(s, &w, "upgrade_result", r->id, NULL);
	json_w_str(&w, "from_version", r->from);
	json_w_str(&w, "to_version", r->to);
	json_w_str(&w, "outcome", r->outcome);
	json_w_str(&w, "reason", r->reason);
	session_send(s, &w);
	log_info("upgrade from %s to %s: %s: %s", r->from, r->to, r->outcome, r->reason);
}

void
upframes_tell(struct session *s)
{
	struct upgrader_result r;

	if (s->p.upgrader == NULL || s->state != SESSION_UP)
		return;
	for (unsigned i = 0; upgrader_result(s->p.upgrader, i, &r); i++) {
		if (r.attempt != 0 ? r.attempt <= s->results_to : strcmp(r.id, s->results_job) == 0)
			continue;	/* in this session */
		/* A plain cloop hub has no such frame: the version in the hello tells it. */
		if (s->p.edgeward1)
			send_result(s, &r);
		s->results_beat = *s->p.beat_seq + 1;
		if (r.attempt == 0)
			snprintf(s->results_job, sizeof(s->results_job), "%s", r.id);
		else
			s->results_to = r.attempt;
	}
}

void
upframes_acked(struct session *s, uint64_t seq)
{
	if (s->results_beat != 0 && seq >= s->results_beat) {
		s->results_beat = 0;
		upgrader_told_job(s->p.upgrader, s->results_job);
		upgrader_told(s->p.upgrader, s->results_to);
	}
	upframes_tell(s);
}
