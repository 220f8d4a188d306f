/*
 * Who calls: session_frames.c with what a device says, which may be anything: chunks follow each other exactly, offset 0 begins anew,
 * nothing is taken of a run that has ended or belongs to another device. A result that names a bundle counts only when its length and
 * SHA-256 are those of what came (backsum.h).
 */
#include "hub/result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "hub/bundle.h"
#include "proto/hub/base64.h"
#include "proto/ipc/job.h"

#define CHUNK_MAX	(256u << 10)

void
result_name(char name[RESULT_NAME], const char *prefix, const char *handle)
{
	snprintf(name, RESULT_NAME, "%s.%s", prefix, handle);
}

void
result_drop(struct hub *hub, const char *handle)
{
	char name[RESULT_NAME];

	bundle_forget(hub, handle);
	result_name(name, "b", handle);
	unlinkat(hub->logfd, name, 0);
	result_name(name, "r", handle);
	unlinkat(hub->logfd, name, 0);
}

/* The run a frame is about, when it may still get a result; else the error is sent. */
static struct run *
open_run(struct session *s, const struct frame *f)
{
	struct run *run = run_get(s->hub, f->handle);

	if (run != NULL && strcmp(run->info.device, s->device) == 0 && !run_state_is_final(run->info.state))
		return run;
	if (run == NULL || strcmp(run->info.device, s->device) != 0)
		session_error(s, f->id, f->handle, "unknown_handle", "no such run");
	else
		log_debug("run %s: a result after its end is the one it had", f->handle);
	if (run != NULL)
		run_put(run);
	return NULL;
}

static const char *
append(struct run *run, int64_t offset, const uint8_t *data, size_t len)
{
	_cleanup_close_ int fd = -1;
	char name[RESULT_NAME];
	struct stat st;
	int r;

	if (offset == 0 && backsum_begin(&run->back) < 0)
		return "out of memory";
	if (run->back.md == NULL || run->back.size != (uint64_t)offset)
		return "a gap or an overlap";
	result_name(name, "b", run->info.handle);
	fd = openat(run->hub->logfd, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | (offset == 0 ? O_TRUNC : 0), 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return "it cannot be stored";
	if (st.st_size != offset)
		return "a gap or an overlap";
	r = fd_write_all(fd, data, len);
	if (r == 0)
		r = backsum_add(&run->back, data, len);
	return r < 0 ? strerror(-r) : NULL;
}

/* What came is no good. */
static void
drop_bundle(struct run *run)
{
	backsum_drop(&run->back);
	result_drop(run->hub, run->info.handle);
}

void
result_chunk(struct session *s, const struct frame *f)
{
	static uint8_t data[CHUNK_MAX + 4];
	const struct json *text = json_get(f->payload, "data");
	struct run *run = open_run(s, f);
	const char *why;
	int64_t offset;
	size_t len = 0;

	if (run == NULL)
		return;
	if (!json_get_int(f->payload, "offset", 0, JOB_BUNDLE_MAX, &offset) || text == NULL || text->type != JSON_STRING ||
	    base64_decode(data, sizeof(data), text->str, text->len, &len) < 0 || len == 0 || len > CHUNK_MAX ||
	    (uint64_t)offset + len > JOB_BUNDLE_MAX)
		why = "malformed chunk";
	else
		why = append(run, offset, data, len);
	if (why != NULL) {
		log_warn("run %s: bundle: %s", f->handle, why);
		drop_bundle(run);
		session_error(s, f->id, f->handle, "write_back_failed", why);
	}
	run_put(run);
}

/* NULL, or what is wrong with the bundle a result speaks of. */
static const char *
check_bundle(struct run *run, int64_t bytes, const char *sha256)
{
	if (run->back.size != (uint64_t)bytes)
		return "the bundle is not as long as the result says";
	return backsum_is(&run->back, (uint64_t)bytes, sha256) ? NULL : "the bundle is not the one the result speaks of";
}

static void
put_text(struct json_w *w, const struct json *res, const char *key)
{
	const char *s = json_get_str(res, key);

	if (s != NULL && strlen(s) <= 1024)
		json_w_str(w, key, s);
}

static void
put_number(struct json_w *w, const struct json *res, const char *key)
{
	int64_t v;

	if (json_get_int(res, key, 0, INT64_MAX, &v))
		json_w_int(w, key, v);
}

/* Of what the device says the members we know; error is ours when there is one. */
static int
store_result(struct hub *hub, const char *handle, const struct json *res, const char *error)
{
	static const char *const texts[] = { "mode", "branch", "commit_sha", "base_sha", "bundle_sha256", "skip_reason" };
	static const char *const numbers[] = { "bundle_bytes", "commits", "files_changed" };
	bool pushed = false, skipped = false;
	char buf[RESULT_MAX], name[RESULT_NAME];
	struct json_w w;
	size_t len;

	json_get_bool(res, "pushed", &pushed);
	json_get_bool(res, "skipped", &skipped);
	json_w_init(&w, buf, sizeof(buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "handle", handle);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		put_text(&w, res, texts[i]);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
		put_number(&w, res, numbers[i]);
	json_w_bool(&w, "pushed", pushed);
	json_w_bool(&w, "skipped", skipped);
	if (error != NULL)
		json_w_str(&w, "error", error);
	else
		put_text(&w, res, "error");
	json_w_end_obj(&w);
	if (json_w_done(&w, &len) < 0)
		return -EMSGSIZE;
	result_name(name, "r", handle);
	return fd_replace_file(hub->logfd, name, buf, len, 0600);
}

void
result_take(struct session *s, const struct frame *f)
{
	const struct json *res = json_get(f->payload, "result");
	const char *mode = json_get_str(res, "mode"), *why = NULL;
	struct run *run = open_run(s, f);
	bool skipped = false;
	int64_t bytes = 0;
	int r;

	if (run == NULL)
		return;
	json_get_bool(res, "skipped", &skipped);
	json_get_int(res, "bundle_bytes", 0, JOB_BUNDLE_MAX, &bytes);
	if (res == NULL || res->type != JSON_OBJECT)
		why = "malformed result";
	else if (mode != NULL && strcmp(mode, "bundle") == 0 && !skipped && json_get_str(res, "error") == NULL)
		why = check_bundle(run, bytes, json_get_str(res, "bundle_sha256"));
	if (why != NULL) {
		log_warn("run %s: write-back: %s", f->handle, why);
		drop_bundle(run);
		session_error(s, f->id, f->handle, "write_back_failed", why);
	}
	bundle_forget(s->hub, f->handle);
	r = store_result(s->hub, f->handle, res, why);
	if (r < 0)
		log_error("run %s: the result cannot be stored: %s", f->handle, strerror(-r));
	run_put(run);
}

int
client_result(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct ipc_hdr hdr = { .type = ADMIN_ANS_RESULT, .id = msg->hdr.id };
	_cleanup_free_ uint8_t *json = NULL;
	_cleanup_close_ int fd = -1;
	struct admin_text what;
	struct run_info info;
	char name[RESULT_NAME];
	size_t len;
	int r;

	memcpy(&what, msg->data, sizeof(what));
	if (!admin_text_ok(&what))
		return -EBADMSG;
	r = store_run_find(client->hub->store, what.text, &info);
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOTUNIQ ? "more than one run fits %s" : "no run %s", what.text);
	result_name(name, "r", info.handle);
	r = fd_read_file(client->hub->logfd, name, RESULT_MAX, &json, &len);
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOENT ? "run %s brought nothing back" : "the result of %s cannot be read",
		    info.handle);
	result_name(name, "b", info.handle);
	fd = openat(client->hub->logfd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	return ipc_send_fds(chan, &hdr, json, len, &fd, fd >= 0);
}
