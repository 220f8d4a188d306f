#include "hub/secret.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "proto/hub/base64.h"
#include "proto/hub/limits.h"
#include "proto/ipc/secrets.h"

static void
put_file(struct json_w *w, const struct secret *s, const char *lease)
{
	size_t size = BASE64_LEN(s->len) + 1;
	char *text = malloc(size);

	if (text == NULL) {
		w->err = -ENOSPC;
		return;
	}
	base64_encode(text, s->value, s->len);
	json_w_obj(w, NULL);
	json_w_str(w, "lease_id", lease);
	json_w_str(w, "grant_id", s->grant);
	json_w_str(w, "dir", s->dir);
	json_w_str(w, "name", s->name);
	json_w_int(w, "mode", s->mode);
	json_w_str(w, "content", text);
	json_w_end_obj(w);
	explicit_bzero(text, size);
	free(text);
}

static void
put_list(struct json_w *w, const char *key, const void *items, size_t len, const char *lease)
{
	struct secret s;
	struct wire_r r;

	json_w_arr(w, key);
	wire_r_init(&r, items, len);
	while (secret_next(&r, &s) == 1)
		if (s.kind == SECRET_FILE)
			put_file(w, &s, lease);
	json_w_end_arr(w);
}

void
secret_put_files(struct json_w *w, const void *items, size_t len, const char *lease)
{
	put_list(w, "secret_files", items, len, lease);
}

void
secret_put_leases(struct json_w *w, const void *items, size_t len, const char *lease)
{
	struct secret s;
	struct wire_r r;

	json_w_arr(w, "secrets");
	wire_r_init(&r, items, len);
	while (secret_next(&r, &s) == 1) {
		json_w_obj(w, NULL);
		json_w_str(w, "lease_id", lease);
		json_w_str(w, "grant_id", s.grant);
		if (s.kind == SECRET_FILE)
			json_w_str(w, "dir", s.dir);
		json_w_arr(w, s.kind == SECRET_FILE ? "files" : "env_keys");
		if (s.kind == SECRET_FILE) {
			char path[SECRET_DIR_SIZE + SECRET_NAME_SIZE];

			snprintf(path, sizeof(path), "%s/%s", s.dir, s.name);
			json_w_str(w, NULL, path);
		} else {
			json_w_str(w, NULL, s.name);
		}
		json_w_end_arr(w);
		json_w_end_obj(w);
	}
	json_w_end_arr(w);
}

/* ---- what clients ask ---- */

/* The run and its device's session, or NULL and the answer is given. */
static struct run *
find(struct client *client, const struct ipc_hdr *req, const char *what, struct session **ret_session)
{
	struct run_info info;
	struct run *run = store_run_find(client->hub->store, what, &info) == 0 ? run_get(client->hub, info.handle) : NULL;

	if (run == NULL) {
		client_say(client, req, -ENOENT, "no single run fits %s", what);
		return NULL;
	}
	*ret_session = session_find(client->hub, run->info.device);
	if (!run_state_is_final(run->info.state) && *ret_session != NULL)
		return run;
	if (run_state_is_final(run->info.state))
		client_say(client, req, 0, "it has ended already: it holds no secret any more");
	else
		client_say(client, req, -ENOTCONN, "its device is not connected: nothing was changed; try again when it is back");
	run_put(run);
	return NULL;
}

int
client_secret_revoke(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct admin_secret_revoke req;
	struct session *s;
	struct run *run;
	struct json_w w;
	char buf[1024];
	size_t len;

	memcpy(&req, msg->data, sizeof(req));
	if (!admin_secret_revoke_ok(&req))
		return -EBADMSG;
	run = find(client, &msg->hdr, req.handle, &s);
	if (run == NULL)
		return 0;
	json_w_init(&w, buf, sizeof(buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "lease_id", run->info.handle);
	if (req.name[0] != '\0')
		json_w_str(&w, "grant_id", req.name);
	json_w_str(&w, "reason", "operator");
	json_w_str(&w, "action", req.kill != 0 ? "kill" : "scrub");
	json_w_end_obj(&w);
	if (json_w_done(&w, &len) < 0 || session_ask(s, "revoke", run->info.handle, buf, len, client->serial, msg->hdr.id) < 0)
		client_say(client, &msg->hdr, -EBUSY, "the device answers nothing");
	run_put(run);
	return 0;
}

static int
ask_refresh(struct client *client, const struct ipc_hdr *req, const uint8_t *data, size_t size)
{
	char handle[HANDLE_SIZE], *frame;
	struct session *s;
	struct run *run;
	struct wire_r r;
	struct json_w w;
	size_t n, len;
	const uint8_t *items;

	wire_r_init(&r, data, size);
	wire_str(&r, handle, sizeof(handle));
	items = wire_bytes(&r, &n);
	if (wire_done(&r) < 0 || !secrets_ok(items, n) || n == 0)
		return -EBADMSG;
	run = find(client, req, handle, &s);
	if (run == NULL)
		return 0;
	frame = malloc(HUB_MESSAGE_MAX);
	json_w_init(&w, frame, frame != NULL ? HUB_MESSAGE_MAX - 1024 : 0);
	json_w_obj(&w, NULL);
	json_w_str(&w, "lease_id", run->info.handle);
	json_w_str(&w, "reason", "operator");
	put_list(&w, "files", items, n, run->info.handle);
	json_w_end_obj(&w);
	if (frame == NULL || json_w_done(&w, &len) < 0)
		client_say(client, req, -E2BIG, "the files do not fit into one message");
	else if (session_ask(s, "secret_refresh", run->info.handle, frame, len, client->serial, req->id) < 0)
		client_say(client, req, -EBUSY, "the device answers nothing");
	if (frame != NULL)
		explicit_bzero(frame, HUB_MESSAGE_MAX);
	free(frame);
	run_put(run);
	return 0;
}

int
client_secret_refresh(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	size_t len = 0;
	void *map;
	int r;

	if (msg->hdr.len != 0 || fd_is_sealed_memfd(msg->fds[0], ADMIN_SPEC_MAX, &len) <= 0 || len == 0)
		return client_say(client, &msg->hdr, -E2BIG, "the files are too long");
	map = mmap(NULL, len, PROT_READ, MAP_PRIVATE, msg->fds[0], 0);
	if (map == MAP_FAILED)
		return client_say(client, &msg->hdr, -ENOMEM, "out of memory");
	r = ask_refresh(client, &msg->hdr, map, len);
	munmap(map, len);
	return r;
}

/* ---- what devices answer ---- */

static size_t
add_list(const struct json *payload, const char *key, const char *what, char *buf, size_t size, size_t at)
{
	const struct json *list = json_get(payload, key);

	for (const struct json *j = list != NULL && list->type == JSON_ARRAY ? list->child : NULL; j != NULL && at < size; j = j->next)
		if (j->type == JSON_STRING)
			at += (size_t)snprintf(buf + at, size - at, "%s%s", j == list->child ? what : ", ", j->str);
	return at < size ? at : size;
}

bool
secret_answer(const struct json *payload, char *buf, size_t size)
{
	const char *error = json_get_str(payload, "error");
	int64_t files = 0;
	bool known = false;
	char text[512];
	size_t at;

	json_get_bool(payload, "known", &known);
	if (!json_get_int(payload, "files_removed", 0, INT32_MAX, &files))
		(void)json_get_int(payload, "files_rewritten", 0, INT32_MAX, &files);
	at = (size_t)snprintf(text, sizeof(text), "%s: %lld file%s", known ? "done" : "the device holds nothing of it", (long long)files,
	    files == 1 ? "" : "s");
	at = add_list(payload, "env_scrubbed", "; variables that the run may still remember: ", text, sizeof(text), at);
	at = add_list(payload, "killed", "; being ended: ", text, sizeof(text), at);
	if (error != NULL && error[0] == '\0')
		error = NULL;
	if (error != NULL && at < sizeof(text))
		snprintf(text + at, sizeof(text) - at, "; not done: %s", error);
	text_clean(buf, size, text);
	return error == NULL;
}
