#include "connectd/results.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "connectd/bundlesend.h"
#include "connectd/session.h"
#include "proto/hub/base64.h"
#include "proto/ipc/job.h"

#define CHUNK		(48u << 10)	/* bytes of a bundle in one frame: a heartbeat never waits for more than that */
#define HEAD_ROOM	256u
#define V_RESULT	4
#define V_PROJECT	13

struct result {
	struct work_result r;
	int fd;
	/* in the present session */
	bool project_sent, sent;
	uint64_t offset;
	EVP_MD_CTX *sha;
	struct bundlesend stream;
};

int
results_take(struct mirror_entry *e, const struct work_result *r, int fd)
{
	struct result *res = calloc(1, sizeof(*res));

	if (res == NULL) {
		cleanup_close(&fd);
		return -ENOMEM;
	}
	res->r = *r;
	res->fd = fd;
	if (e->result != NULL) {
		/* It lies on the same disk: what is on its way goes on, from the descriptor it has. */
		if (e->result->stream.s != NULL && e->result->r.bundle_bytes == r->bundle_bytes) {
			cleanup_close(&fd);
			free(res);
			return 0;
		}
		/* What was told in this session is told, also where it was told that the bundle did not arrive. */
		res->project_sent = e->result->project_sent;
		res->sent = e->result->sent;
	}
	results_free(e->result);
	e->result = res;
	return 0;
}

void
results_begin(struct result *r)
{
	if (r == NULL)
		return;
	r->project_sent = r->sent = false;
	r->offset = 0;
	EVP_MD_CTX_free(r->sha);
	r->sha = NULL;
	bundlesend_stop(&r->stream);
}

void
results_done(struct session *s)
{
	for (struct mirror_entry *e = s->p.mirror->head; e != NULL; e = e->next)
		if (e->result != NULL)
			bundlesend_stop(&e->result->stream);
}

struct bundlesend *
results_stream(struct result *r)
{
	return r != NULL ? &r->stream : NULL;
}

void
results_free(struct result *r)
{
	if (r == NULL)
		return;
	results_begin(r);
	cleanup_close(&r->fd);
	free(r);
}

static void
send_project(struct session *s, const struct mirror_entry *e)
{
	const struct work_result *r = &e->result->r;
	struct json_w w;

	e->result->project_sent = true;
	if ((r->flags & WORK_RESULT_PROJECT) == 0 || (s->version < V_PROJECT && !s->p.edgeward1))
		return;
	session_begin_frame(s, &w, "project_result", NULL, e->w.handle);
	if (r->project[0] != '\0')
		json_w_str(&w, "data", r->project);
	else
		json_w_str(&w, "error", r->project_error[0] != '\0' ? r->project_error : "the project state could not be read");
	session_send(s, &w);
}

/* What cannot be read is not there: the write-back has failed, and that is what is told. */
static void
give_up(struct result *res, const char *what, const char *why)
{
	res->r.bundle_bytes = 0;
	snprintf(res->r.error, sizeof(res->r.error), "%.50s: %.150s", what, why);
}

/* 1 = sent, 0 = no room. */
static int
send_chunk(struct session *s, const struct mirror_entry *e, const uint8_t *data, size_t len)
{
	char *dst = (char *)hubconn_text_begin(s->p.conn, HEAD_ROOM + BASE64_LEN(len));
	size_t n;

	if (dst == NULL)
		return 0;
	n = (size_t)snprintf(dst, HEAD_ROOM, "{\"v\":%" PRId64 ",\"type\":\"result_chunk\",\"handle\":\"%s\",\"payload\":{\"offset\":%" PRIu64
	    ",\"data\":\"", s->version, e->w.handle, e->result->offset);
	n += base64_encode(dst + n, data, len);
	memcpy(dst + n, "\"}}", 3);
	hubconn_text_commit(s->p.conn, n + 3);
	return 1;
}

/* True when the hub has all of it, or never will. */
static bool
stream_bundle(struct session *s, struct mirror_entry *e)
{
	struct result *res = e->result;
	enum bundle_stage stage = bundlesend_go(&res->stream, s, e, res->fd, res->r.bundle_bytes);

	if (stage == BUNDLE_FAILED) {
		log_warn("bundle of %s: %s", e->w.handle, res->stream.why);
		give_up(res, "the bundle did not reach the hub", res->stream.why);
	}
	return stage == BUNDLE_SENT || stage == BUNDLE_FAILED;
}

/* True when all of the bundle is on its way. */
static bool
send_bundle(struct session *s, const struct mirror_entry *e)
{
	static uint8_t data[CHUNK];
	struct result *res = e->result;

	if (res->sha == NULL && ((res->sha = EVP_MD_CTX_new()) == NULL || EVP_DigestInit_ex(res->sha, EVP_sha256(), NULL) != 1))
		give_up(res, "the bundle cannot be read", "no memory for its digest");
	while (res->offset < res->r.bundle_bytes) {
		uint64_t left = res->r.bundle_bytes - res->offset;
		size_t len = left < CHUNK ? (size_t)left : CHUNK;
		ssize_t n = pread(res->fd, data, len, (off_t)res->offset);

		if (n != (ssize_t)len) {
			give_up(res, "the bundle cannot be read", n < 0 ? strerror(errno) : "it is shorter than it was");
			break;
		}
		if (send_chunk(s, e, data, len) == 0)
			return false;
		EVP_DigestUpdate(res->sha, data, len);
		res->offset += len;
	}
	return true;
}

static void
put_digest(struct json_w *w, struct result *res)
{
	unsigned char digest[EVP_MAX_MD_SIZE];
	char text[2 * EVP_MAX_MD_SIZE + 1];
	unsigned len = 0;

	if (res->sha == NULL) {
		json_w_str(w, "bundle_sha256", res->stream.sha256);
		return;
	}
	if (EVP_DigestFinal_ex(res->sha, digest, &len) != 1)
		len = 0;
	for (unsigned i = 0; i < len; i++)
		snprintf(text + (size_t)2 * i, 3, "%02x", digest[i]);
	text[(size_t)2 * len] = '\0';
	json_w_str(w, "bundle_sha256", text);
}

static void
put_some(struct json_w *w, const char *key, const char *value)
{
	if (value[0] != '\0')
		json_w_str(w, key, value);
}

static void
send_result(struct session *s, const struct mirror_entry *e)
{
	struct result *res = e->result;
	const struct work_result *r = &res->r;
	bool skipped = (r->flags & WORK_RESULT_SKIPPED) != 0;
	struct json_w w;

	session_begin_frame(s, &w, "result", NULL, e->w.handle);
	json_w_obj(&w, "result");
	json_w_str(&w, "mode", r->mode == JOB_BACK_PUSH ? "push" : "bundle");
	put_some(&w, "branch", r->branch);
	put_some(&w, "commit_sha", r->commit);
	put_some(&w, "base_sha", r->base);
	if (r->bundle_bytes > 0) {
		put_digest(&w, res);
		json_w_int(&w, "bundle_bytes", (int64_t)r->bundle_bytes);
	}
	if ((r->flags & WORK_RESULT_PUSHED) != 0)
		json_w_bool(&w, "pushed", true);
	json_w_int(&w, "commits", r->commits);
	json_w_int(&w, "files_changed", r->files);
	if (skipped)
		json_w_bool(&w, "skipped", true);
	put_some(&w, skipped ? "skip_reason" : "error", r->error);
	json_w_end_obj(&w);
	session_send(s, &w);
}

bool
results_send(struct session *s, struct mirror_entry *e)
{
	struct result *res = e->result;

	if ((e->w.flags & WORK_F_RESULT) == 0 || e->disowned)
		return true;
	if (res == NULL)
		return false;		/* workerd is about to tell it */
	if (res->sent)
		return true;
	if (!res->project_sent)
		send_project(s, e);
	if ((res->r.flags & WORK_RESULT_BACK) != 0 && (s->version >= V_RESULT || s->p.edgeward1)) {
		if (res->r.bundle_bytes > 0 && !(s->p.edgeward1 && !s->bundle_chunks ? stream_bundle(s, e) : send_bundle(s, e)))
			return false;
		send_result(s, e);
	}
	res->sent = true;
	return true;
}
