/* The handshake: hello with an offer for everything held, welcome with a verdict for each. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "connectd/session.h"
#include "connectd/upframes.h"
#include "proto/hub/limits.h"
#include "proto/hub/rfc3339.h"
#include "version.h"

#define HELLO_OVERHEAD	32768	/* identity, capabilities with 32 labels, and the JSON writer's own room */
#define OFFER_ROOM	256

static void
put_offer(struct session *s, struct json_w *w, struct mirror_entry *e)
{
	char stamp[RFC3339_SIZE];

	json_w_obj(w, NULL);
	json_w_str(w, "handle_id", e->w.handle);
	json_w_str(w, "started_at", rfc3339_format(e->w.started_at, stamp));
	json_w_int(w, "log_offset", (int64_t)e->w.produced);
	logsend_assign(&s->logs, e);
	if (e->log.channel != 0)
		json_w_int(w, "log_channel", e->log.channel);
	json_w_end_obj(w);
	e->offered = true;
}

void
welcome_send_hello(struct session *s)
{
	size_t size = HELLO_OVERHEAD + INVENTORY_ROOM + s->p.mirror->n * OFFER_ROOM;
	_cleanup_free_ char *buf = malloc(size);
	struct json_w w;

	if (buf == NULL) {
		session_end(s, SESSION_FAILED, 1011, "internal", "out of memory for the hello");
		return;
	}
	s->state = SESSION_HELLO;
	cloop_begin(&w, buf, size, 1, "hello", "hello", NULL);
	json_w_int(&w, "protocol_version", CLOOP_VERSION);
	json_w_str(&w, "agent_id", s->p.agent_id);
	if (s->p.name[0] != '\0')
		json_w_str(&w, "name", s->p.name);
	json_w_str(&w, "agent_version", EDGEWARD_VERSION);
	caps_put(&w, s->p.device, s->p.mirror, s->p.conf->work_sandbox, s->p.policy, s->p.edgeward1);
	invframe_begin(s);
	json_w_arr(&w, "resume");
	for (struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next)
		if (mirror_listed(e))
			put_offer(s, &w, e);
	json_w_end_arr(&w);
	session_send(s, &w);
}

/* Notes the verdicts; the first one for a handle counts. Unknown actions mean continue: fail towards keeping the work. */
static void
take_verdicts(struct session *s, const struct json *list)
{
	for (const struct json *j = list != NULL && list->type == JSON_ARRAY ? list->child : NULL; j != NULL; j = j->next) {
		const char *id = json_get_str(j, "handle_id"), *action = json_get_str(j, "action");
		struct mirror_entry *e = id != NULL ? mirror_by_handle(s->p.mirror, id) : NULL;
		int64_t from = 0;

		if (e == NULL || !e->offered || e->verdict_given)
			continue;
		json_get_int(j, "from_offset", 0, INT64_MAX, &from);
		e->verdict_given = true;
		e->verdict_stop = action != NULL && strcmp(action, "terminate") == 0;
		e->verdict_from = (uint64_t)from;
	}
}

/* Sets the cursor of one offered workload before anything of it can be sent. */
static void
resume(struct session *s, struct mirror_entry *e)
{
	/* The count of a lost workload may have died with the launcher; the hub knows better then. */
	bool lost = e->w.state == WORK_ENDED && e->w.outcome == WORK_OUTCOME_LOST;
	uint64_t from = e->verdict_from < e->w.produced || lost ? e->verdict_from : e->w.produced;

	if (!e->verdict_given || e->verdict_stop) {
		/* Its dying output still has somewhere to go; what came before the hello is of no use to anybody. */
		e->disowned = true;
		if (from == 0)
			from = e->w.produced;
	} else {
		e->acked = from;	/* the hub will not ask for less again */
	}
	logsend_open(&s->logs, e, from, false);
}

static void
stop_refused(struct session *s)
{
	char handle[LOG_QUOTE_SIZE];

	for (struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next) {
		if (!e->offered || !e->disowned)
			continue;
		log_warn("the hub does not know workload %s any more; stopping it",
		    log_quote(handle, sizeof(handle), e->w.handle, strlen(e->w.handle)));
		workchan_disown(s->p.work, e);
	}
}

static void
publish(struct session *s, const struct json *payload)
{
	int64_t seconds;

	s->state = SESSION_UP;
	loop_timer_del(s->p.loop, &s->handshake);
	take_verdicts(s, json_get(payload, "resume_accepted"));
	for (struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next) {
		if (e->offered)
			resume(s, e);
		else if (!e->disowned && !e->delivered)
			logsend_open(&s->logs, e, 0, true);	/* it began between hello and welcome */
	}
	workchan_session(s->p.work, true, s->p.edgeward1 ? WORK_DIALECT_EDGEWARD1 : WORK_DIALECT_CLOOP);
	s->beat_ms = s->p.conf->heartbeat;
	if (json_get_int(payload, "heartbeat_seconds", 1, 3600, &seconds) && seconds * 1000 < s->beat_ms)
		s->beat_ms = seconds * 1000;
	s->p.ops->up(s->p.ctx);
	upframes_tell(s);
	beat_start(s);
	stop_refused(s);
	report_all(s);
	invframe_compare(s);	/* workerd may have said more since the hello */
}

void
welcome_take(struct session *s, const struct cloop_frame *f)
{
	const char *id = json_get_str(f->payload, "executor_id");
	const char *credential = json_get_str(f->payload, "credential");
	int64_t version;
	int r;

	if (s->state != SESSION_HELLO) {
		session_end(s, SESSION_FAILED, 1002, "protocol", "the hub sent a second welcome");
		return;
	}
	if (!json_get_int(f->payload, "protocol_version", 1, CLOOP_VERSION, &version)) {
		session_end(s, SESSION_FAILED, 1002, "version",
		    "the hub's welcome names a protocol version this agent did not offer");
		return;
	}
	s->version = s->logs.version = version;
	r = s->p.ops->identity(credential, id != NULL ? id : "", s->p.ctx);
	if (r < 0) {
		session_end(s, SESSION_STOPPED, 1011, r == -ENOKEY ? "no-credential" : "credential-not-stored",
		    r == -ENOKEY ? "the hub took the token and gave no credential; get a new one at the hub, then edgectl enroll --token-file FILE" :
		    "the new credential could not be stored (%s); the token is spent, get a new one at the hub",
		    strerror(-r));
		return;
	}
	publish(s, f->payload);
}
