/*
 * revoke and secret_refresh on their way through workerd (cloop.md 3.3). Each is answered exactly once, to the id it came
 * with. A revocation that finds workerd away waits for it and is asked again, which changes nothing that was done already; a
 * refresh waits in hold.c for a moment, and is then refused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "connectd/session.h"
#include "proto/hub/start.h"

#define OPEN_MAX	1024u
#define FRAME_ROOM	4096u		/* of an answer without its names */
#define RESTARTING	"the workload daemon of this device is restarting; try again"

struct lease_request {
	struct lease_request *next;
	bool refresh;
	uint32_t ipc_id;		/* 0 = not with workerd now */
	struct work_revoke revoke;	/* of a refresh only the lease */
	char id[CLOOP_ID_SIZE];
};

static struct lease_request *
add(struct session *s, const struct cloop_frame *f, bool refresh)
{
	struct lease_request *r = NULL, **p = &s->leases;
	unsigned n = 0;

	for (; *p != NULL; p = &(*p)->next)
		n++;
	if (n < OPEN_MAX)
		r = calloc(1, sizeof(*r));
	if (r == NULL) {
		session_end(s, SESSION_FAILED, 1008, "protocol", "the hub has more than %u revocations and refreshes open", OPEN_MAX);
		return NULL;
	}
	r->refresh = refresh;
	snprintf(r->id, sizeof(r->id), "%s", f->id);
	*p = r;
	return r;
}

static void
finish(struct lease_request **p)
{
	struct lease_request *r = *p;

	*p = r->next;
	free(r);
}

void
leases_free(struct session *s)
{
	while (s->leases != NULL)
		finish(&s->leases);
}

/* ---- answers ---- */

static const char *
put_names(struct json_w *w, const char *key, const char *names, uint32_t n)
{
	if (n == 0)
		return names;
	json_w_arr(w, key);
	for (uint32_t i = 0; i < n; i++) {
		json_w_strn(w, NULL, names, strlen(names));
		names += strlen(names) + 1;
	}
	json_w_end_arr(w);
	return names;
}

static void
put_revoked(struct json_w *w, const struct lease_request *r, const struct work_report *rep)
{
	const char *names;

	if (r->revoke.grant[0] != '\0')
		json_w_str(w, "grant_id", r->revoke.grant);
	json_w_str(w, "action", r->revoke.kill != 0 ? "kill" : "scrub");
	json_w_bool(w, "known", rep->known != 0);
	names = put_names(w, "env_scrubbed", rep->names, rep->nenv);
	if (rep->files > 0)
		json_w_int(w, "files_removed", rep->files);
	put_names(w, "killed", names, rep->nhandles);
}

static void
put_refreshed(struct json_w *w, const struct work_report *rep)
{
	json_w_bool(w, "known", rep->known != 0);
	if (rep->files > 0)
		json_w_int(w, "files_rewritten", rep->files);
	put_names(w, "handles", rep->names, rep->nhandles);
}

static void
answer(struct session *s, const struct lease_request *r, const struct work_report *rep)
{
	size_t size = FRAME_ROOM + 6 * rep->names_len + 4 * ((size_t)rep->nenv + rep->nhandles);
	_cleanup_free_ char *buf = malloc(size);
	struct json_w w;

	if (buf == NULL) {
		session_end(s, SESSION_FAILED, 0, "stalled", "no memory for the answer to a revocation");
		return;
	}
	cloop_begin(&w, buf, size, s->version, r->refresh ? "secret_refreshed" : "revoked", r->id, NULL);
	json_w_str(&w, "lease_id", r->revoke.lease);
	if (r->refresh)
		put_refreshed(&w, rep);
	else
		put_revoked(&w, r, rep);
	if (rep->error[0] != '\0')
		json_w_strn(&w, "error", rep->error, strlen(rep->error));
	session_send(s, &w);
}

static void
answer_away(struct session *s, const struct lease_request *r)
{
	answer(s, r, &(struct work_report){ .error = RESTARTING });
}

/* ---- frames ---- */

void
leases_revoke(struct session *s, const struct cloop_frame *f)
{
	const char *action = json_get_str(f->payload, "action");
	struct work_revoke req = { .kill = action != NULL && strcmp(action, "kill") == 0 };
	struct lease_request *r;

	if (!json_copy_str(f->payload, "lease_id", req.lease, SECRET_ID_SIZE) || req.lease[0] == '\0' ||
	    !json_opt_str(f->payload, "grant_id", req.grant, SECRET_ID_SIZE)) {
		session_send_error(s, f->id, "protocol", "lease_id or grant_id is missing, no string or longer than 128 bytes");
		return;
	}
	r = add(s, f, false);
	if (r == NULL)
		return;
	r->revoke = req;
	/* It must not pass a start that the next workerd is given again: what that one brings would outlive it. */
	if (!s->p.work->synced || workchan_revoke(s->p.work, &req, &r->ipc_id) < 0)
		r->ipc_id = 0;
}

void
leases_refresh(struct session *s, const struct cloop_frame *f)
{
	struct lease_request *r, **p = &s->leases;
	char lease[SECRET_ID_SIZE], err[START_ERROR];
	uint8_t *items = NULL;
	size_t len = 0;

	if (refresh_secrets(f->payload, lease, &items, &len, err) != WORK_OK) {
		session_send_error(s, f->id, "protocol", err);
		return;
	}
	r = add(s, f, true);
	if (r != NULL) {
		snprintf(r->revoke.lease, sizeof(r->revoke.lease), "%s", lease);
		if (workchan_refresh(s->p.work, items, len, &r->ipc_id) < 0) {
			answer_away(s, r);
			while (*p != r)
				p = &(*p)->next;
			finish(p);
		}
	}
	explicit_bzero(items, len);
	free(items);
}

/* ---- workerd's word ---- */

void
leases_report(struct session *s, uint32_t ipc_id, const struct work_report *rep)
{
	struct lease_request **p = &s->leases;

	while (*p != NULL && (*p)->ipc_id != ipc_id)
		p = &(*p)->next;
	if (*p == NULL || ipc_id == 0 || s->state != SESSION_UP)
		return;		/* of an earlier session */
	answer(s, *p, rep);
	finish(p);
}

void
leases_work_down(struct session *s)
{
	for (struct lease_request **p = &s->leases; *p != NULL; ) {
		(*p)->ipc_id = 0;
		if (!(*p)->refresh) {
			p = &(*p)->next;
			continue;
		}
		answer_away(s, *p);
		finish(p);
	}
}

void
leases_work_back(struct session *s)
{
	for (struct lease_request *r = s->leases; r != NULL; r = r->next)
		if (r->ipc_id == 0 && workchan_revoke(s->p.work, &r->revoke, &r->ipc_id) < 0)
			r->ipc_id = 0;
}
