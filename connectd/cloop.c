#include "connectd/cloop.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/hub/rfc3339.h"

/* ---- envelope ---- */

/* An optional string: absent and null are empty. */
static bool
optional_str(const struct json *root, const char *key, const char **ret_s)
{
	const struct json *j = json_get(root, key);

	*ret_s = "";
	if (j == NULL || j->type == JSON_NULL)
		return true;
	if (j->type != JSON_STRING)
		return false;
	*ret_s = j->str;
	return true;
}

static const char *
take_envelope(const struct json *root, int64_t max_version, struct cloop_frame *f)
{
	const struct json *payload = json_get(root, "payload");

	if (root->type != JSON_OBJECT)
		return "a frame that is no JSON object";
	if (!json_get_int(root, "v", 1, max_version, &f->v))
		return "a frame of a version that was not agreed on";
	f->type = json_get_str(root, "type");
	if (f->type == NULL || f->type[strspn(f->type, " \t\r\n")] == '\0')
		return "a frame without a type";
	if (!optional_str(root, "id", &f->id) || !optional_str(root, "handle", &f->handle))
		return "a frame whose id or handle is no string";
	if (strlen(f->id) >= CLOOP_ID_SIZE)
		return "a frame with an id longer than 128 bytes";
	if (payload != NULL && payload->type != JSON_OBJECT && payload->type != JSON_NULL)
		return "a frame whose payload is no object";
	f->payload = payload != NULL && payload->type == JSON_OBJECT ? payload : NULL;
	return NULL;
}

int
cloop_decode(const uint8_t *data, size_t len, int64_t max_version, struct json_doc **ret_doc,
    struct cloop_frame *ret_frame, const char **ret_why)
{
	struct cloop_frame f = { 0 };
	struct json_doc *doc;
	int r = json_parse(data, len, &doc);

	if (r < 0) {
		*ret_why = r == -ENOMEM ? "a frame that memory does not suffice for" : "a frame that is no JSON";
		return r;
	}
	*ret_why = take_envelope(json_root(doc), max_version, &f);
	if (*ret_why != NULL) {
		json_doc_free(doc);
		return -EBADMSG;
	}
	*ret_doc = doc;
	*ret_frame = f;
	return 0;
}

void
cloop_begin(struct json_w *w, void *buf, size_t size, int64_t v, const char *type, const char *id, const char *handle)
{
	json_w_init(w, buf, size);
	json_w_obj(w, NULL);
	json_w_int(w, "v", v);
	json_w_str(w, "type", type);
	if (id != NULL && id[0] != '\0')
		json_w_str(w, "id", id);
	if (handle != NULL && handle[0] != '\0')
		json_w_str(w, "handle", handle);
	json_w_obj(w, "payload");
}

int
cloop_end(struct json_w *w, size_t *ret_len)
{
	json_w_end_obj(w);
	json_w_end_obj(w);
	return json_w_done(w, ret_len);
}

/* ---- status ---- */

struct shown {
	const char *state;
	int32_t exit_code;
	bool by_signal;
};

/* How an outcome reads on a cloop session (5.3: killed and failed carry -1). */
static struct shown
shown_end(const struct work_workload *wl)
{
	switch ((enum work_outcome)wl->outcome) {
	case WORK_OUTCOME_EXITED:
		return (struct shown){ "exited", wl->exit_code, false };
	case WORK_OUTCOME_CANCELLED:
		if (wl->term_signal == 0)
			return (struct shown){ "exited", wl->exit_code, false };
		return (struct shown){ "killed", -1, true };
	case WORK_OUTCOME_SIGNALLED:
	case WORK_OUTCOME_TIMEOUT:
	case WORK_OUTCOME_LIMIT:
		return (struct shown){ "killed", -1, true };
	case WORK_OUTCOME_LOST:
	case WORK_OUTCOME_NONE:
		break;
	}
	return (struct shown){ "failed", -1, false };
}

static struct shown
shown_now(const struct work_workload *wl, bool final)
{
	if (wl->state == WORK_ENDED && final)
		return shown_end(wl);
	return (struct shown){ wl->state == WORK_PENDING ? "pending" : "running", 0, false };
}

static const char *
outcome_name(const struct work_workload *wl)
{
	static const char *const names[] = { [WORK_OUTCOME_NONE] = "lost", [WORK_OUTCOME_EXITED] = "exited",
		[WORK_OUTCOME_SIGNALLED] = "signalled", [WORK_OUTCOME_CANCELLED] = "cancelled",
		[WORK_OUTCOME_TIMEOUT] = "timeout", [WORK_OUTCOME_LIMIT] = "limit", [WORK_OUTCOME_LOST] = "lost" };

	return names[wl->outcome];
}

static const char *
limit_name(const struct work_workload *wl)
{
	static const char *const names[] = { [WORK_LIMIT_MEMORY] = "memory", [WORK_LIMIT_PIDS] = "pids",
		[WORK_LIMIT_CPU] = "cpu", [WORK_LIMIT_OUTPUT] = "output", [WORK_LIMIT_DISK] = "disk" };

	return names[wl->limit];
}

static void
put_usage(struct json_w *w, const struct work_workload *wl)
{
	json_w_obj(w, "usage");
	json_w_int(w, "cpu_ms", (int64_t)(wl->cpu_ms & INT64_MAX));
	json_w_int(w, "mem_peak_kb", (int64_t)(wl->mem_peak_kb & INT64_MAX));
	json_w_int(w, "io_read", (int64_t)(wl->io_read & INT64_MAX));
	json_w_int(w, "io_write", (int64_t)(wl->io_write & INT64_MAX));
	json_w_end_obj(w);
}

void
cloop_put_disk(struct json_w *w, const struct work_workload *wl, int64_t when)
{
	uint64_t mb = wl->disk_limit >> 20;
	char stamp[RFC3339_SIZE];

	json_w_obj(w, "disk_limit");
	json_w_int(w, "used_bytes", (int64_t)(wl->disk_used & INT64_MAX));
	json_w_int(w, "limit_mb", (int64_t)(mb > 0 ? mb : 1));
	json_w_str(w, "measured_at", rfc3339_format(when, stamp));
	json_w_end_obj(w);
}

/* The wording a Go agent uses, because operators look for it. */
static void
put_error(struct json_w *w, const struct work_workload *wl, bool by_signal)
{
	const char *name;
	char text[64];

	if (wl->error[0] != '\0') {
		json_w_str(w, "error", wl->error);
		return;
	}
	if (wl->outcome == WORK_OUTCOME_TIMEOUT) {
		json_w_str(w, "error", "ended at its time limit");
		return;
	}
	if (!by_signal || wl->term_signal <= 0)
		return;
	name = wl->term_signal == SIGKILL ? "killed" : wl->term_signal == SIGTERM ? "terminated" :
	    wl->term_signal == SIGINT ? "interrupt" : wl->term_signal == SIGSEGV ? "segmentation fault" :
	    wl->term_signal == SIGABRT ? "aborted" : NULL;
	if (name != NULL)
		snprintf(text, sizeof(text), "signal: %s", name);
	else
		snprintf(text, sizeof(text), "signal: %d", wl->term_signal);
	json_w_str(w, "error", text);
}

void
cloop_put_status(struct json_w *w, const struct work_workload *wl, bool final, int64_t version, bool extended)
{
	bool over_disk = work_over_disk(wl) && (extended || version >= CLOOP_V_DISK);
	struct shown s = shown_now(wl, final);
	bool end = wl->state == WORK_ENDED && final;
	char stamp[RFC3339_SIZE];

	json_w_obj(w, "status");
	json_w_str(w, "handle_id", wl->handle);
	json_w_str(w, "executor_id", "");
	json_w_str(w, "state", s.state);
	if (wl->pid > 0)
		json_w_int(w, "pid", wl->pid);
	json_w_int(w, "exit_code", s.exit_code);
	json_w_str(w, "started_at", rfc3339_format(wl->started_at, stamp));
	json_w_str(w, "finished_at", rfc3339_format(end ? wl->finished_at : 0, stamp));
	if (end) {
		put_error(w, wl, s.by_signal);
		if (over_disk) {
			json_w_str(w, "outcome", "disk_limit");
			cloop_put_disk(w, wl, wl->finished_at);
		} else if (extended) {
			json_w_str(w, "outcome", outcome_name(wl));
		}
		if (extended) {
			if (wl->limit != WORK_LIMIT_NONE)
				json_w_str(w, "limit", limit_name(wl));
			if (wl->term_signal > 0)
				json_w_int(w, "signal", wl->term_signal);
			if (!work_over_disk(wl))
				put_usage(w, wl);
		}
	}
	json_w_end_obj(w);
}

int
cloop_signal_number(const char *name)
{
	if (name == NULL)
		return 0;
	return strcmp(name, "interrupt") == 0 ? SIGINT : strcmp(name, "terminate") == 0 ? SIGTERM :
	    strcmp(name, "kill") == 0 ? SIGKILL : 0;
}

/* ---- log_chunk ---- */

size_t
cloop_chunk_head(char *dst, int64_t v, const char *handle, uint64_t offset)
{
	int n = snprintf(dst, CLOOP_HEAD_MAX, "{\"v\":%" PRId64 ",\"type\":\"log_chunk\",\"handle\":\"%s\","
	    "\"payload\":{\"stream\":\"combined\",\"offset\":%" PRIu64 ",\"text\":\"", v, handle, offset);

	return n > 0 ? (size_t)n : 0;
}

size_t
cloop_chunk_tail(char *dst, int64_t wall_ns)
{
	char stamp[RFC3339_SIZE];
	int n = snprintf(dst, CLOOP_TAIL_MAX, "\",\"time\":\"%s\"}}", rfc3339_format(wall_ns, stamp));

	return n > 0 ? (size_t)n : 0;
}
