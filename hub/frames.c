#include "hub/frames.h"

#include <errno.h>
#include <string.h>

#include "common/parse.h"
#include "proto/hub/limits.h"
#include "proto/hub/rfc3339.h"

static const struct frame_row {
	const char *name;
	enum frame_type type;
	bool handle;		/* must be there */
} rows[] = {
	{ "hello", FRAME_HELLO, false },
	{ "heartbeat", FRAME_HEARTBEAT, false },
	{ "started", FRAME_STARTED, true },
	{ "status", FRAME_STATUS, true },
	{ "log_chunk", FRAME_LOG_CHUNK, true },
	{ "log_open", FRAME_LOG_OPEN, false },	/* in the payload or the envelope */
	{ "stream_open", FRAME_STREAM_OPEN, false },
	{ "stream_opened", FRAME_STREAM_OPENED, false },
	{ "device_opened", FRAME_DEVICE_OPENED, false },
	{ "device_close", FRAME_REPORT, false },	/* the RESET of its channel says the same */
	{ "attach_close", FRAME_ATTACH_CLOSE, false },
	{ "bye", FRAME_BYE, false },
	{ "error", FRAME_ERROR, false },
	{ "revoked", FRAME_REPORT, false },
	{ "inventory", FRAME_INVENTORY, false },
	{ "upgrading", FRAME_UPGRADING, false },
	{ "upgrade_result", FRAME_UPGRADE_RESULT, false },
	{ "file_done", FRAME_FILE_DONE, true },
	{ "harness_installed", FRAME_HARNESS, false },
	{ "secret_refreshed", FRAME_REPORT, false },
	{ "project_result", FRAME_REPORT, true },
	{ "result_chunk", FRAME_RESULT_CHUNK, true },
	{ "result", FRAME_RESULT, true },
};

/* A member that is absent, null or a string of at most max bytes; "" when absent. */
static int
opt_str(const struct json *obj, const char *key, size_t max, const char **ret_s)
{
	const struct json *v = json_get(obj, key);

	*ret_s = "";
	if (v == NULL || v->type == JSON_NULL)
		return 0;
	if (v->type != JSON_STRING || v->len > max || memchr(v->str, '\0', v->len) != NULL)
		return -EBADMSG;
	*ret_s = v->str;
	return 0;
}

/* Absent or null leaves *ret_v alone. */
static int
opt_int(const struct json *obj, const char *key, int64_t min, int64_t max, int64_t *ret_v)
{
	const struct json *v = json_get(obj, key);

	if (v == NULL || v->type == JSON_NULL)
		return 0;
	return json_get_int(obj, key, min, max, ret_v) ? 0 : -EBADMSG;
}

static int
opt_time(const struct json *obj, const char *key, int64_t *ret_ns)
{
	const char *s;

	*ret_ns = 0;
	if (opt_str(obj, key, 64, &s) < 0)
		return -EBADMSG;
	return s[0] == '\0' || rfc3339_parse(s, ret_ns) == 0 ? 0 : -EBADMSG;
}

static const struct frame_row *
find_row(const char *name)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (strcmp(rows[i].name, name) == 0)
			return &rows[i];
	return NULL;
}

int
frame_decode(const struct json *root, unsigned max_version, struct frame *ret_frame)
{
	const struct frame_row *row;
	struct frame f = { 0 };
	const char *s;
	int64_t v;

	if (root == NULL || root->type != JSON_OBJECT || !json_get_int(root, "v", 1, max_version, &v))
		return -EBADMSG;
	if (opt_str(root, "type", 64, &f.name) < 0 || f.name[0] == '\0')
		return -EBADMSG;
	f.v = (unsigned)v;
	if (opt_str(root, "id", FRAME_ID_MAX, &s) < 0)
		return -EBADMSG;
	f.id = s[0] != '\0' ? s : NULL;
	if (opt_str(root, "handle", HANDLE_MAX_LEN, &s) < 0 || (s[0] != '\0' && !handle_ok(s)))
		return -EBADMSG;
	f.handle = s[0] != '\0' ? s : NULL;
	f.payload = json_get(root, "payload");
	if (f.payload != NULL && f.payload->type == JSON_NULL)
		f.payload = NULL;
	if (f.payload != NULL && f.payload->type != JSON_OBJECT)
		return -EBADMSG;
	row = find_row(f.name);
	if (row != NULL && row->handle && f.handle == NULL)
		return -EBADMSG;
	f.type = row != NULL ? row->type : FRAME_UNKNOWN;
	*ret_frame = f;
	return 0;
}

int
frame_hello(const struct json *payload, struct frame_hello *ret_hello)
{
	struct frame_hello h = { 0 };
	const struct json *resume = json_get(payload, "resume");

	if (!json_get_int(payload, "protocol_version", INT64_MIN, INT64_MAX, &h.protocol_version))
		return -EBADMSG;
	if (opt_str(payload, "agent_id", 128, &h.agent_id) < 0 || opt_str(payload, "name", 1024, &h.name) < 0 ||
	    opt_str(payload, "agent_version", 1024, &h.agent_version) < 0)
		return -EBADMSG;
	h.capabilities = json_get(payload, "capabilities");
	if (h.capabilities != NULL && h.capabilities->type != JSON_OBJECT)
		h.capabilities = NULL;
	if (resume != NULL && resume->type != JSON_NULL && resume->type != JSON_ARRAY)
		return -EBADMSG;
	h.resume = resume != NULL ? resume->child : NULL;
	*ret_hello = h;
	return 0;
}

int
frame_offer(const struct json *json, struct frame_offer *ret_offer)
{
	struct frame_offer o = { 0 };
	int64_t offset = 0, channel = 0;

	if (opt_str(json, "handle_id", HANDLE_MAX_LEN, &o.handle) < 0 || !handle_ok(o.handle))
		return -EBADMSG;
	if (opt_int(json, "log_offset", 0, INT64_MAX, &offset) < 0 ||
	    opt_int(json, "log_channel", 0, UINT32_MAX, &channel) < 0)
		return -EBADMSG;
	o.log_offset = (uint64_t)offset;
	o.log_channel = (uint32_t)channel;
	*ret_offer = o;
	return 0;
}

int
frame_heartbeat(const struct json *payload, struct frame_heartbeat *ret_heartbeat)
{
	const struct json *active = json_get(payload, "active_handles");
	int64_t seq = 0;

	if (opt_int(payload, "seq", 0, INT64_MAX, &seq) < 0)
		return -EBADMSG;
	if (active != NULL && active->type != JSON_ARRAY && active->type != JSON_NULL)
		return -EBADMSG;
	*ret_heartbeat = (struct frame_heartbeat){ .seq = (uint64_t)seq, .active = active != NULL ? active->child : NULL };
	return 0;
}

int
frame_started(const struct json *payload, struct frame_started *ret_started)
{
	struct frame_started s = { 0 };
	int64_t pid = 0, channel = 0;

	if (opt_int(payload, "pid", 0, INT32_MAX, &pid) < 0 || opt_time(payload, "started_at", &s.started_at) < 0 ||
	    opt_int(payload, "log_channel", 0, UINT32_MAX, &channel) < 0 ||
	    opt_str(payload, "error", HUB_MESSAGE_MAX, &s.error) < 0 || opt_str(payload, "code", 64, &s.code) < 0)
		return -EBADMSG;
	if (s.error[0] == '\0')
		s.error = NULL;
	s.pid = (int32_t)pid;
	s.log_channel = (uint32_t)channel;
	*ret_started = s;
	return 0;
}

int
frame_chunk(const struct json *payload, struct frame_chunk *ret_chunk)
{
	const struct json *text = json_get(payload, "text");
	int64_t offset = 0;

	if (opt_int(payload, "offset", 0, INT64_MAX - HUB_LOG_TEXT_MAX, &offset) < 0 || text == NULL ||
	    text->type != JSON_STRING || text->len > HUB_LOG_TEXT_MAX)
		return -EBADMSG;
	*ret_chunk = (struct frame_chunk){ .offset = (uint64_t)offset, .text = text->str, .len = text->len };
	return 0;
}

static int
parse_state(const char *s, enum run_state *ret_state)
{
	static const struct {
		const char *name;
		enum run_state state;
	} states[] = {
		{ "pending", RUN_PENDING }, { "running", RUN_RUNNING }, { "unknown", RUN_RUNNING },
		{ "exited", RUN_EXITED }, { "failed", RUN_FAILED }, { "killed", RUN_KILLED },
	};

	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		if (strcmp(states[i].name, s) == 0) {
			*ret_state = states[i].state;
			return 0;
		}
	return -EBADMSG;
}

static int
parse_digest(const char *hex, struct frame_status *s)
{
	static const char digits[] = "0123456789abcdef";

	if (hex[0] == '\0')
		return 0;
	if (strlen(hex) != 32)
		return -EBADMSG;
	for (int i = 0; i < 16; i++) {
		const char *hi = strchr(digits, hex[2 * i]), *lo = strchr(digits, hex[2 * i + 1]);

		if (hi == NULL || lo == NULL)
			return -EBADMSG;
		s->digest[i] = (uint8_t)((hi - digits) << 4 | (lo - digits));
	}
	s->has_digest = true;
	return 0;
}

/* "signal: terminated": how a Go program words it, and so every cloop agent. */
static int32_t
signal_of_error(const char *error)
{
	static const char *const names[] = { [1] = "hangup", [2] = "interrupt", [3] = "quit", [4] = "illegal instruction",
		[5] = "trace/breakpoint trap", [6] = "aborted", [7] = "bus error", [8] = "floating point exception",
		[9] = "killed", [10] = "user defined signal 1", [11] = "segmentation fault", [12] = "user defined signal 2",
		[13] = "broken pipe", [14] = "alarm clock", [15] = "terminated" };
	uint32_t n;

	if (strncmp(error, "signal: ", 8) != 0)
		return 0;
	for (size_t i = 1; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t len = strlen(names[i]);

		if (strncmp(error + 8, names[i], len) == 0 && (error[8 + len] == '\0' || error[8 + len] == ' '))
			return (int32_t)i;
	}
	return parse_u32(error + 8, 1, 64, &n) == 0 ? (int32_t)n : 0;
}

int
frame_status(const struct json *payload, struct frame_status *ret_status)
{
	const struct json *obj = json_get(payload, "status");
	struct frame_status s = { .final_offset = FRAME_NONE };
	int64_t code = 0, pid = 0, sig = 0, final = -1;
	const char *state, *digest;

	if (obj == NULL || obj->type != JSON_OBJECT || opt_str(obj, "state", 16, &state) < 0 ||
	    parse_state(state, &s.state) < 0)
		return -EBADMSG;
	if (opt_int(obj, "exit_code", INT32_MIN, INT32_MAX, &code) < 0 || opt_int(obj, "pid", 0, INT32_MAX, &pid) < 0 ||
	    opt_int(obj, "signal", 0, 64, &sig) < 0 ||
	    opt_time(obj, "started_at", &s.started_at) < 0 || opt_time(obj, "finished_at", &s.finished_at) < 0 ||
	    opt_str(obj, "error", HUB_MESSAGE_MAX, &s.error) < 0 || opt_str(obj, "outcome", 64, &s.outcome) < 0 ||
	    opt_str(obj, "limit", 64, &s.limit) < 0)
		return -EBADMSG;
	if (opt_int(payload, "final_offset", 0, INT64_MAX, &final) < 0 || opt_str(payload, "log_xxh3", 64, &digest) < 0 ||
	    parse_digest(digest, &s) < 0)
		return -EBADMSG;
	s.exit_code = (int32_t)code;
	s.pid = (int32_t)pid;
	s.term_signal = sig != 0 ? (int32_t)sig : s.state == RUN_KILLED ? signal_of_error(s.error) : 0;
	s.final_offset = final >= 0 ? (uint64_t)final : FRAME_NONE;
	*ret_status = s;
	return 0;
}

int
frame_log_open(const struct frame *f, const char **ret_handle, uint32_t *ret_channel)
{
	const char *handle;
	int64_t channel;

	/* Odd channels are the hub's to open. */
	if (!json_get_int(f->payload, "channel", 2, UINT32_MAX, &channel) || (channel & 1) != 0)
		return -EBADMSG;
	if (opt_str(f->payload, "handle", HANDLE_MAX_LEN, &handle) < 0)
		return -EBADMSG;
	if (handle[0] == '\0' && f->handle != NULL)
		handle = f->handle;
	if (!handle_ok(handle) || (f->handle != NULL && strcmp(handle, f->handle) != 0))
		return -EBADMSG;
	*ret_handle = handle;
	*ret_channel = (uint32_t)channel;
	return 0;
}

void
frame_begin(struct json_w *w, unsigned v, const char *type, const char *id, const char *handle)
{
	json_w_obj(w, NULL);
	json_w_int(w, "v", v);
	json_w_str(w, "type", type);
	if (id != NULL)
		json_w_str(w, "id", id);
	if (handle != NULL)
		json_w_str(w, "handle", handle);
	json_w_obj(w, "payload");
}

void
frame_end(struct json_w *w)
{
	json_w_end_obj(w);
	json_w_end_obj(w);
}
