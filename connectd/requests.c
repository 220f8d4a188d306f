/*
 * start and signal on their way through workerd. Each request keeps its own ids from the frame to the answer, and each is
 * answered exactly once: by workerd's word, or, when workerd went away in between, by what the new one holds. A start that the old
 * one had not taken is given to the new one, once: it may be what ended the old one. What workerd shows as a workload it has taken:
 * what the start was made of, the branch that came with it included, is not kept until the answer, which a fetch may put off by an hour.
 *
 * workerd is the authority on repetition (a start for a handle it holds is answered as before) and on order (both kinds
 * travel on one channel).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "connectd/session.h"
#include "proto/hub/rfc3339.h"
#include "proto/hub/start.h"

#define REQUESTS_MAX	1024u
#define SPECS_MAX	(4u << 20)	/* of starts that are kept until workerd has answered */

enum request_kind { REQUEST_START, REQUEST_SIGNAL };

struct request {
	struct request *next;
	enum request_kind kind;
	uint32_t ipc_id;	/* 0 = not with workerd now */
	bool accepted;		/* START: workerd has said yes, the process is not there yet */
	int32_t signo;
	uint8_t *spec;		/* START that workerd has not taken, to be said once more; NULL = it is not */
	size_t len;
	int branch;		/* that goes with it, -1 = none */
	char handle[HANDLE_SIZE];
	char id[CLOOP_ID_SIZE];
};

static struct request *
add(struct session *s, enum request_kind kind, const struct cloop_frame *f)
{
	struct request *r = s->nrequests < REQUESTS_MAX ? calloc(1, sizeof(*r)) : NULL;
	struct request **p = &s->requests;

	if (r == NULL)
		return NULL;
	r->kind = kind;
	r->branch = -1;
	snprintf(r->handle, sizeof(r->handle), "%s", f->handle);
	snprintf(r->id, sizeof(r->id), "%s", f->id);
	while (*p != NULL)
		p = &(*p)->next;
	*p = r;
	s->nrequests++;
	return r;
}

static void
forget_spec(struct session *s, struct request *r)
{
	if (r->spec != NULL) {
		s->specs -= r->len;
		explicit_bzero(r->spec, r->len);
		free(r->spec);
	}
	r->spec = NULL;
	if (r->branch >= 0)
		close(r->branch);
	r->branch = -1;
}

/* Takes *p out of the list and frees it. */
static void
finish(struct session *s, struct request **p)
{
	struct request *r = *p;

	*p = r->next;
	s->nrequests--;
	forget_spec(s, r);
	free(r);
}

void
requests_free(struct session *s)
{
	while (s->requests != NULL)
		finish(s, &s->requests);
}

/* ---- answers ---- */

static void
send_started(struct session *s, const char *id, const struct mirror_entry *e)
{
	char stamp[RFC3339_SIZE];
	struct json_w w;

	session_begin_frame(s, &w, "started", id, e->w.handle);
	json_w_str(&w, "handle_id", e->w.handle);
	if (e->w.pid > 0)
		json_w_int(&w, "pid", e->w.pid);
	json_w_str(&w, "started_at", rfc3339_format(e->w.started_at, stamp));
	if (e->log.channel != 0)
		json_w_int(&w, "log_channel", e->log.channel);
	session_send(s, &w);
}

static void
send_refused(struct session *s, const char *id, const char *handle, enum work_refusal why, const char *text)
{
	static const char *const codes[] = { [WORK_REFUSED_POLICY] = "policy", [WORK_REFUSED_SANDBOX] = "sandbox",
		[WORK_REFUSED_DISK_LOW] = "disk_low", [WORK_REFUSED_MEMORY_LOW] = "memory_low",
		[WORK_REFUSED_UNSUPPORTED] = "unsupported", [WORK_REFUSED_START_FAILED] = NULL };
	const struct mirror_entry *e = mirror_by_handle(s->p.mirror, handle);
	struct json_w w;

	session_begin_frame(s, &w, "started", id, handle);
	json_w_str(&w, "handle_id", handle);
	json_w_str(&w, "started_at", RFC3339_ZERO);
	json_w_str(&w, "error", text[0] != '\0' ? text : "the device refused the start");
	if (s->p.edgeward1 && why < sizeof(codes) / sizeof(codes[0]) && codes[why] != NULL)
		json_w_str(&w, "code", codes[why]);
	if (e != NULL && e->w.state == WORK_PENDING && work_over_disk(&e->w) && (s->p.edgeward1 || s->version >= CLOOP_V_DISK))
		cloop_put_disk(&w, &e->w, monotime_wall_ns());
	session_send(s, &w);
}

static void
refuse(struct session *s, const char *id, const char *handle, enum work_refusal why, const char *text)
{
	static const char *const errors[] = { [WORK_REFUSED_BUSY] = "busy", [WORK_REFUSED_FORBIDDEN_PATH] =
		"forbidden_path", [WORK_REFUSED_BAD_SPEC] = "protocol", [WORK_REFUSED_UNKNOWN_HANDLE] = "unknown_handle" };
	char quoted[LOG_QUOTE_SIZE];

	log_warn("start of %s refused: %s", log_quote(quoted, sizeof(quoted), handle, strlen(handle)), text);
	if (why < sizeof(errors) / sizeof(errors[0]) && errors[why] != NULL)
		session_send_error(s, id, errors[why], text);
	else
		send_refused(s, id, handle, why, text);
}

static void
send_status(struct session *s, const char *id, const struct work_workload *wl, bool final)
{
	struct json_w w;

	session_begin_frame(s, &w, "status", id, wl->handle);
	cloop_put_status(&w, wl, final, s->version, s->p.edgeward1);
	session_send(s, &w);
}

static void
send_unknown(struct session *s, const char *id)
{
	session_send_error(s, id, "unknown_handle", "this device does not hold that workload");
}

/* ---- start ---- */

void
requests_start(struct session *s, const struct cloop_frame *f)
{
	_cleanup_free_ uint8_t *spec = NULL;
	_cleanup_close_ int branch = branch_claim(s, f->handle);
	struct request *r;
	char err[208];
	size_t len = 0;
	uint32_t ipc_id;
	enum work_refusal why = start_decode(f->payload, f->handle, &spec, &len, err);

	if (why == WORK_OK && !s->p.policy->start) {
		why = WORK_REFUSED_POLICY;
		policy_no_start(s->p.policy, err, sizeof(err));
	}
	if (why == WORK_OK && workchan_start(s->p.work, spec, len, branch, &ipc_id) < 0) {
		why = WORK_REFUSED_START_FAILED;
		snprintf(err, sizeof(err), "the workload daemon of this device is restarting; try again");
	}
	r = why == WORK_OK ? add(s, REQUEST_START, f) : NULL;
	if (r != NULL) {
		r->ipc_id = ipc_id;
		if (len <= SPECS_MAX - s->specs) {
			r->spec = take_ptr(&spec);
			r->len = len;
			s->specs += len;
			r->branch = take_fd(&branch);
		}
	}
	if (spec != NULL)
		explicit_bzero(spec, len);
	if (why != WORK_OK)
		refuse(s, f->id, f->handle, why, err);
	else if (r == NULL)
		session_end(s, SESSION_FAILED, 1008, "protocol", "the hub has more than %u requests open", REQUESTS_MAX);
}

/* True when the request was answered: the workload has got as far as a process or its end. */
static bool
try_started(struct session *s, const struct request *r)
{
	const struct mirror_entry *e = mirror_by_handle(s->p.mirror, r->handle);

	if (e == NULL || e->w.state == WORK_PENDING)
		return false;
	send_started(s, r->id, e);
	return true;
}

void
requests_workload(struct session *s, const struct mirror_entry *e)
{
	for (struct request **p = &s->requests; *p != NULL;) {
		if ((*p)->kind == REQUEST_START && strcmp((*p)->handle, e->w.handle) == 0)
			forget_spec(s, *p);
		if ((*p)->kind == REQUEST_START && (*p)->accepted && strcmp((*p)->handle, e->w.handle) == 0 &&
		    try_started(s, *p))
			finish(s, p);
		else
			p = &(*p)->next;
	}
}

void
requests_gone(struct session *s, const struct mirror_entry *e)
{
	for (struct request **p = &s->requests; *p != NULL;) {
		struct request *r = *p;

		if (r->kind == REQUEST_START && r->accepted && strcmp(r->handle, e->w.handle) == 0) {
			refuse(s, r->id, r->handle, WORK_REFUSED_START_FAILED, e->w.error[0] != '\0' ? e->w.error :
			    "the workload was given up before it ran");
			finish(s, p);
		} else {
			p = &r->next;
		}
	}
}

/* ---- signal and status ---- */

void
requests_signal(struct session *s, const struct cloop_frame *f)
{
	struct work_signal sig = { .signo = cloop_signal_number(json_get_str(f->payload, "signal")) };
	struct request *r;

	if (sig.signo == 0) {
		session_send_error(s, f->id, "protocol", "the signal is not interrupt, terminate or kill");
		return;
	}
	if (!handle_ok(f->handle)) {
		send_unknown(s, f->id);
		return;
	}
	r = add(s, REQUEST_SIGNAL, f);
	if (r == NULL) {
		session_end(s, SESSION_FAILED, 1008, "protocol", "the hub has more than %u requests open", REQUESTS_MAX);
		return;
	}
	r->signo = sig.signo;
	snprintf(sig.handle, sizeof(sig.handle), "%s", f->handle);
	/* While workerd is away, or has not said what it holds, it waits: behind the start that the next one is given. */
	if (!s->p.work->synced || workchan_signal(s->p.work, &sig, &r->ipc_id) < 0)
		r->ipc_id = 0;
}

static bool
is_starting(const struct session *s, const char *handle)
{
	for (const struct request *r = s->requests; r != NULL; r = r->next)
		if (r->kind == REQUEST_START && strcmp(r->handle, handle) == 0)
			return true;
	return false;
}

/* The state of a workload we hold, or are just starting; unknown_handle otherwise. */
static void
send_state(struct session *s, const char *id, const char *handle)
{
	const struct mirror_entry *e = mirror_by_handle(s->p.mirror, handle);
	struct work_workload pending = { .state = WORK_PENDING };

	if (e != NULL) {
		send_status(s, id, &e->w, e->report.sent);
	} else if (is_starting(s, handle)) {
		snprintf(pending.handle, sizeof(pending.handle), "%s", handle);
		send_status(s, id, &pending, false);
	} else {
		send_unknown(s, id);
	}
}

void
requests_status(struct session *s, const struct cloop_frame *f)
{
	send_state(s, f->id, f->handle);
}

static void
answer_signal(struct session *s, const struct request *r, const struct work_answer *a)
{
	if (a->refusal == WORK_REFUSED_UNKNOWN_HANDLE)
		send_unknown(s, r->id);
	else if (a->refusal != WORK_OK)
		session_send_error(s, r->id, "protocol", a->error[0] != '\0' ? a->error : "the signal was not delivered");
	else
		send_state(s, r->id, r->handle);
}

/* ---- workerd's word ---- */

void
requests_answer(struct session *s, uint32_t ipc_id, const struct work_answer *a)
{
	struct request **p = &s->requests, *r;

	while (*p != NULL && (*p)->ipc_id != ipc_id)
		p = &(*p)->next;
	r = *p;
	if (r == NULL || ipc_id == 0 || s->state != SESSION_UP)
		return;		/* of an earlier session */
	r->ipc_id = 0;
	forget_spec(s, r);
	if (r->kind == REQUEST_SIGNAL) {
		answer_signal(s, r, a);
	} else if (a->refusal != WORK_OK) {
		refuse(s, r->id, r->handle, (enum work_refusal)a->refusal, a->error);
	} else {
		r->accepted = true;
		if (!try_started(s, r))
			return;
	}
	finish(s, p);
}

void
requests_work_down(struct session *s)
{
	for (struct request *r = s->requests; r != NULL; r = r->next)
		r->ipc_id = 0;
}

/*
 * The new workerd has told all it holds: what the old one was asked and the new one does not know was never started. What
 * came after the new one's HELLO is in its own queue, behind the list; it answers for itself.
 */
void
requests_work_back(struct session *s)
{
	for (struct request **p = &s->requests; *p != NULL;) {
		struct request *r = *p;
		struct work_signal sig = { .signo = r->signo };

		if (r->ipc_id != 0) {
			p = &r->next;
		} else if (r->kind == REQUEST_SIGNAL) {
			snprintf(sig.handle, sizeof(sig.handle), "%s", r->handle);
			workchan_signal(s->p.work, &sig, &r->ipc_id);
			p = &r->next;
		} else if (mirror_by_handle(s->p.mirror, r->handle) == NULL && r->spec != NULL &&
		    workchan_start(s->p.work, r->spec, r->len, r->branch, &r->ipc_id) == 0) {
			forget_spec(s, r);
			p = &r->next;
		} else if (mirror_by_handle(s->p.mirror, r->handle) == NULL) {
			refuse(s, r->id, r->handle, WORK_REFUSED_START_FAILED,
			    "the workload daemon was restarted before it took the start; nothing was started");
			finish(s, p);
		} else {
			r->accepted = true;
			forget_spec(s, r);
			if (try_started(s, r))
				finish(s, p);
			else
				p = &r->next;
		}
	}
}
