/*
 * install_harness (cloop.md 5.11), from the frame to the answer. workerd decides and installs; while it is away the request waits for the
 * one that comes back, which knows what is under way. One request is answered once, in the session it came in.
 */
#include <stdio.h>
#include <string.h>

#include "connectd/session.h"

static void
answer(struct session *s, const struct harness_request *r, const struct harness_done *done)
{
	struct json_w w;

	session_begin_frame(s, &w, "harness_installed", r->id, NULL);
	json_w_bool(&w, "installed", done->installed != 0);
	if (done->present != 0)
		json_w_bool(&w, "already_present", true);
	json_w_str(&w, "harness", r->ask.name);
	if (done->path[0] != '\0')
		json_w_str(&w, "path", done->path);
	if (done->version[0] != '\0')
		json_w_str(&w, "version", done->version);
	if (done->reason[0] != '\0')
		json_w_str(&w, "reason", done->reason);
	session_send(s, &w);
}

void
harness_install(struct session *s, const struct cloop_frame *f)
{
	const char *name = json_get_str(f->payload, "harness");
	struct harness_request *r = s->harnesses;

	if (name == NULL || !harness_name_ok(name)) {
		session_send_error(s, f->id, "protocol", "the harness is no bare name");
		return;
	}
	while (r < s->harnesses + HARNESS_REQUESTS && r->used)
		r++;
	if (r == s->harnesses + HARNESS_REQUESTS) {
		session_send_error(s, f->id, "busy", "four installations were asked for; wait for one");
		return;
	}
	*r = (struct harness_request){ .used = true };
	snprintf(r->ask.name, sizeof(r->ask.name), "%s", name);
	snprintf(r->id, sizeof(r->id), "%s", f->id);
	if (workchan_harness(s->p.work, &r->ask, &r->ipc_id) < 0)
		r->ipc_id = 0;
}

void
harness_answer(struct session *s, uint32_t ipc_id, const struct harness_done *done)
{
	for (struct harness_request *r = s->harnesses; r < s->harnesses + HARNESS_REQUESTS; r++) {
		if (!r->used || r->ipc_id != ipc_id || ipc_id == 0 || s->state != SESSION_UP)
			continue;
		r->used = false;
		answer(s, r, done);
		if (done->installed != 0)
			invframe_look(s);
	}
}

void
harness_work_down(struct session *s)
{
	for (struct harness_request *r = s->harnesses; r < s->harnesses + HARNESS_REQUESTS; r++)
		r->ipc_id = 0;
}

void
harness_work_back(struct session *s)
{
	for (struct harness_request *r = s->harnesses; r < s->harnesses + HARNESS_REQUESTS; r++)
		if (r->used && r->ipc_id == 0 && workchan_harness(s->p.work, &r->ask, &r->ipc_id) < 0)
			r->ipc_id = 0;
}
