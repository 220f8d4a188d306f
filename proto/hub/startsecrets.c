/*
 * The secrets of a start (payload.secret_files with the contents, spec.secrets with what else a lease covers) and of a
 * secret_refresh, as items of proto/ipc/secrets.h. What the limits of cloop.md 3.3 refuse is refused here, before anything
 * is kept; the text never holds a value.
 */
#include "proto/hub/start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/base64.h"
#include "proto/ipc/secrets.h"

#define ITEM_MAX	(28u + 2u * SECRET_ID_SIZE + SECRET_DIR_SIZE + SECRET_NAME_SIZE)	/* encoded, without its value */
#define ITEM_TYPICAL	256u

struct sink {
	uint8_t *buf;
	struct wire_w w;
	unsigned n;
	size_t total;
	const char *why;	/* NULL = good so far */
};

static bool
fail(struct sink *sink, const char *why)
{
	if (sink->why == NULL)
		sink->why = why;
	return false;
}

static bool
put(struct sink *sink, const struct secret *s)
{
	size_t room = (size_t)(sink->w.end - sink->w.p), need = ITEM_MAX + s->len;

	if (!secret_ok(s))
		return fail(sink, "a secret has a name, directory, mode or variable that cannot be used");
	if (++sink->n > SECRETS_MAX)
		return fail(sink, "more than 256 secrets");
	if (room < need) {
		size_t used = (size_t)(sink->w.p - sink->w.start), size = 2 * (used + need + ITEM_TYPICAL);
		uint8_t *more = malloc(size);

		if (more == NULL)
			return fail(sink, "the agent is out of memory");
		if (used > 0) {
			memcpy(more, sink->buf, used);
			explicit_bzero(sink->buf, used);
		}
		free(sink->buf);
		sink->buf = more;
		wire_w_init(&sink->w, more, size);
		sink->w.p += used;
	}
	secret_put(&sink->w, s);
	return true;
}

static bool
take_file(struct sink *sink, const struct json *file, const char *lease)
{
	struct secret s = { .kind = SECRET_FILE };
	const struct json *content = json_get(file, "content"), *mode = json_get(file, "mode");
	int64_t bits = 0;
	uint8_t *value;
	bool ok;

	if (file->type != JSON_OBJECT || !json_opt_str(file, "lease_id", s.lease, sizeof(s.lease)) ||
	    !json_opt_str(file, "grant_id", s.grant, sizeof(s.grant)) || !json_opt_str(file, "dir", s.dir, sizeof(s.dir)) ||
	    !json_opt_str(file, "name", s.name, sizeof(s.name)))
		return fail(sink, "a secret file has a lease, grant, directory or name that is no string or too long");
	if (lease != NULL && s.lease[0] == '\0')
		snprintf(s.lease, sizeof(s.lease), "%s", lease);
	if (lease != NULL && strcmp(s.lease, lease) != 0)
		return fail(sink, "a file of a refresh belongs to another lease");
	if (!secret_name_ok(s.name))
		return fail(sink, "the name of a secret file is no bare file name");
	if (!secret_dir_ok(s.dir))
		return fail(sink, "the directory of a secret file is not absolute or not clean");
	if (mode != NULL && mode->type != JSON_NULL && !json_get_int(file, "mode", 0, 0700, &bits))
		return fail(sink, "the mode of a secret file has bits for group or others");
	s.mode = bits != 0 ? (uint32_t)bits : 0600;
	if ((s.mode & ~0700u) != 0)
		return fail(sink, "the mode of a secret file has bits for group or others");
	if (content != NULL && content->type != JSON_NULL && content->type != JSON_STRING)
		return fail(sink, "the content of a secret file is no string");
	if (content == NULL || content->type == JSON_NULL || content->len == 0)
		return put(sink, &s);
	if (content->len > BASE64_LEN(SECRET_FILE_MAX))
		return fail(sink, "a secret file is larger than 256 KiB");
	value = malloc(content->len / 4 * 3 + 3);
	if (value == NULL)
		return fail(sink, "the agent is out of memory");
	s.value = value;
	if (base64_decode(value, content->len / 4 * 3 + 3, content->str, content->len, &s.len) < 0)
		ok = fail(sink, "the content of a secret file is not base64");
	else if (s.len > SECRET_FILE_MAX || (sink->total += s.len) > SECRET_TOTAL_MAX)
		ok = fail(sink, "the secret files are larger than 256 KiB each or 512 KiB together");
	else
		ok = put(sink, &s);
	explicit_bzero(value, content->len / 4 * 3 + 3);
	free(value);
	return ok;
}

static bool
take_files(struct sink *sink, const struct json *list, const char *lease)
{
	if (list == NULL || list->type == JSON_NULL)
		return true;
	if (list->type != JSON_ARRAY)
		return fail(sink, "the secret files are no list");
	for (const struct json *j = list->child; j != NULL; j = j->next)
		if (!take_file(sink, j, lease))
			return false;
	return true;
}

/* True if the list of secret files brings this path. */
static bool
is_sent(const struct json *files, const char *path)
{
	for (const struct json *j = files != NULL ? files->child : NULL; j != NULL; j = j->next) {
		const char *dir = json_get_str(j, "dir"), *name = json_get_str(j, "name");
		size_t n = dir != NULL ? strlen(dir) : 0;

		if (dir != NULL && name != NULL && strncmp(path, dir, n) == 0 && path[n] == '/' && strcmp(path + n + 1, name) == 0)
			return true;
	}
	return false;
}

static bool
take_names(struct sink *sink, const struct json *list, struct secret *s, char *into, size_t size, const struct json *sent)
{
	if (list == NULL || list->type == JSON_NULL)
		return true;
	if (list->type != JSON_ARRAY)
		return fail(sink, "env_keys or files of a secret is no list");
	for (const struct json *j = list->child; j != NULL; j = j->next) {
		if (j->type != JSON_STRING || j->len == 0 || j->len >= size)
			return fail(sink, "env_keys or files of a secret holds what is no name");
		if (sent != NULL && is_sent(sent, j->str))
			continue;
		memset(into, 0, size);
		memcpy(into, j->str, j->len);
		if (!put(sink, s))
			return false;
	}
	return true;
}

static bool
take_lease(struct sink *sink, const struct json *entry, const struct json *sent)
{
	static const struct json nothing = { .type = JSON_ARRAY };
	struct secret env = { .kind = SECRET_ENV }, path = { .kind = SECRET_PATH };

	if (entry->type != JSON_OBJECT || !json_opt_str(entry, "lease_id", env.lease, sizeof(env.lease)) ||
	    !json_opt_str(entry, "grant_id", env.grant, sizeof(env.grant)))
		return fail(sink, "an entry of secrets has a lease or grant that is no string or too long");
	memcpy(path.lease, env.lease, sizeof(path.lease));
	memcpy(path.grant, env.grant, sizeof(path.grant));
	return take_names(sink, json_get(entry, "env_keys"), &env, env.name, sizeof(env.name), NULL) &&
	    take_names(sink, json_get(entry, "files"), &path, path.dir, sizeof(path.dir), sent != NULL ? sent : &nothing);
}

static enum work_refusal
done(struct sink *sink, uint8_t **ret_items, size_t *ret_len, char err[START_ERROR])
{
	if (sink->why == NULL && sink->n > 0 && wire_w_done(&sink->w, ret_len) == 0) {
		*ret_items = sink->buf;
		return WORK_OK;
	}
	if (sink->buf != NULL)
		explicit_bzero(sink->buf, (size_t)(sink->w.p - sink->w.start));
	free(sink->buf);
	*ret_items = NULL;
	*ret_len = 0;
	if (sink->why == NULL)
		return WORK_OK;
	snprintf(err, START_ERROR, "%s", sink->why);
	return WORK_REFUSED_BAD_SPEC;
}

enum work_refusal
start_secrets(const struct json *payload, uint8_t **ret_items, size_t *ret_len, char err[START_ERROR])
{
	const struct json *files = json_get(payload, "secret_files"), *leases = json_get(json_get(payload, "spec"), "secrets");
	struct sink sink = { 0 };
	bool ok = take_files(&sink, files, NULL);

	if (ok && leases != NULL && leases->type != JSON_NULL && leases->type != JSON_ARRAY)
		ok = fail(&sink, "secrets is no list");
	for (const struct json *j = ok && leases != NULL ? leases->child : NULL; j != NULL && ok; j = j->next)
		ok = take_lease(&sink, j, files);
	return done(&sink, ret_items, ret_len, err);
}

enum work_refusal
refresh_secrets(const struct json *payload, char lease[SECRET_ID_SIZE], uint8_t **ret_items, size_t *ret_len,
    char err[START_ERROR])
{
	struct sink sink = { 0 };

	if (!json_copy_str(payload, "lease_id", lease, SECRET_ID_SIZE) || lease[0] == '\0')
		fail(&sink, "lease_id is missing or longer than 128 bytes");
	else if (take_files(&sink, json_get(payload, "files"), lease) && sink.n == 0)
		fail(&sink, "a refresh without a file");
	return done(&sink, ret_items, ret_len, err);
}
