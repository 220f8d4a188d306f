#include "proto/hub/attach.h"

#include <errno.h>
#include <string.h>

#include "proto/hub/base64.h"
#include "proto/ipc/ipc.h"

static int
bad(const char **ret_why, const char *why)
{
	*ret_why = why;
	return -EBADMSG;
}

/* Of what a hub sends in env only TERM counts. */
static void
take_term(const struct json *env, char term[ATTACH_TERM_SIZE])
{
	memcpy(term, ATTACH_DEFAULT_TERM, sizeof(ATTACH_DEFAULT_TERM));
	for (const struct json *j = env != NULL && env->type == JSON_ARRAY ? env->child : NULL; j != NULL; j = j->next)
		if (j->type == JSON_STRING && strncmp(j->str, "TERM=", 5) == 0 && attach_term_ok(j->str + 5))
			memcpy(term, j->str + 5, strlen(j->str + 5) + 1);
}

static int
take_command(const struct json *payload, uint8_t *cmd, size_t *ret_len, const char **ret_why)
{
	const struct json *argv = json_get(payload, "command");
	struct attach_command c = { .argc = 0 };

	take_term(json_get(payload, "env"), c.term);
	if (argv != NULL && argv->type != JSON_NULL && argv->type != JSON_ARRAY)
		return bad(ret_why, "command must be a list of strings");
	for (const struct json *j = argv != NULL && argv->type == JSON_ARRAY ? argv->child : NULL; j != NULL; j = j->next) {
		if (j->type != JSON_STRING || c.argc == ATTACH_ARGS_MAX)
			return bad(ret_why, "command must be a list of at most 256 strings");
		c.argv[c.argc].s = j->str;
		c.argv[c.argc++].len = j->len;
	}
	return attach_command_encode(&c, cmd, ATTACH_COMMAND_MAX, ret_len) < 0 ? bad(ret_why, "command is too long, or its program is empty") : 0;
}

static uint16_t
take_size(const struct json *payload, const char *key)
{
	int64_t v = 0;

	json_get_int(payload, key, 0, UINT16_MAX, &v);
	return (uint16_t)v;
}

static int
take_stream(const struct json *payload, struct attach_open *o, const char **ret_why)
{
	const char *handle = json_get_str(payload, "handle");
	bool resume = false, watch = false;
	int64_t from = 0;

	json_get_bool(payload, "resume", &resume);
	json_get_bool(payload, "watch", &watch);
	o->flags |= ATTACH_KEEP | (resume ? ATTACH_RESUME : 0) | (watch ? ATTACH_WATCH : 0);
	if (json_get(payload, "from_offset") != NULL && (!json_get_int(payload, "from_offset", 0, INT64_MAX, &from) || !(resume || watch)))
		return bad(ret_why, "from_offset is a number, and for a session that is there");
	o->from = (uint64_t)from;
	if (!json_copy_str(payload, "operator", o->who, sizeof(o->who)) || !ipc_text_ok(o->who, sizeof(o->who)))
		memset(o->who, 0, sizeof(o->who));
	if (handle != NULL && !json_copy_str(payload, "handle", o->handle, sizeof(o->handle)))
		return bad(ret_why, "handle is none");
	return 0;
}

int
attach_decode(const struct json *payload, const char *handle, bool stream, struct attach_open *ret_open, uint8_t *cmd, size_t *ret_len,
    const char **ret_why)
{
	struct attach_open o = { .rows = take_size(payload, "rows"), .cols = take_size(payload, "cols") };
	bool tty = false, in = false;
	int r;

	if (!json_copy_str(payload, "session_id", o.session, sizeof(o.session)) || o.session[0] == '\0' || !ipc_text_ok(o.session, sizeof(o.session)))
		return bad(ret_why, "session_id must be 1 to 127 printable characters");
	if (strlen(handle) < sizeof(o.handle))
		memcpy(o.handle, handle, strlen(handle));
	json_get_bool(payload, "tty", &tty);
	json_get_bool(payload, "stdin", &in);
	o.flags = (tty ? ATTACH_TTY : 0) | (in ? ATTACH_INPUT : 0);
	r = stream ? take_stream(payload, &o, ret_why) : 0;
	if (r == 0)
		r = take_command(payload, cmd, ret_len, ret_why);
	if (r == 0 && !attach_open_ok(&o))
		r = bad(ret_why, "handle is none, or resume and watch are both there");
	if (r == 0)
		*ret_open = o;
	return r;
}

int
attach_decode_data(const struct json *payload, uint8_t *dst, size_t *ret_len)
{
	const struct json *data = json_get(payload, "data");

	if (data == NULL || data->type != JSON_STRING || data->len > BASE64_LEN(ATTACH_DATA_MAX) ||
	    base64_decode(dst, ATTACH_DATA_MAX + 3, data->str, data->len, ret_len) < 0 || *ret_len > ATTACH_DATA_MAX)
		return -EBADMSG;
	return 0;
}
