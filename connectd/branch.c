#include "connectd/branch.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "connectd/streams.h"
#include "proto/hub/base64.h"
#include "proto/ipc/file.h"
#include "proto/ipc/job.h"

#define FILE_NAME	"branch.incoming"	/* for as long as it takes to open it twice */
#define CHUNK_MAX	(512u << 10)

struct branch {
	struct branch *next;
	char handle[HANDLE_SIZE];
	int write, read;
	uint64_t have, total;
	monotime_t moved;	/* when it began, or more of it came */
	/* as a stream; md NULL = in chunks */
	struct session *s;
	struct mux_chan chan;
	EVP_MD_CTX *md;
	uint8_t sha256[32];
	bool whole;		/* the digest is that of what came */
};

static struct branch **
find(struct session *s, const char *handle)
{
	struct branch **p = &s->branches;

	while (*p != NULL && strcmp((*p)->handle, handle) != 0)
		p = &(*p)->next;
	return p;
}

static void
drop(struct session *s, struct branch **p)
{
	struct branch *b = *p;

	*p = b->next;
	s->nbranches--;
	mux_reset(&b->chan, STREAM_RESET_GONE, "this branch is not waited for any more");
	EVP_MD_CTX_free(b->md);
	cleanup_close(&b->write);
	cleanup_close(&b->read);
	free(b);
}

void
branches_free(struct session *s)
{
	while (s->branches != NULL)
		drop(s, &s->branches);
}

void
branches_expire(struct session *s)
{
	for (struct branch **p = &s->branches; *p != NULL;) {
		if (monotime_diff_ms(monotime_now(), (*p)->moved) < BRANCH_KEEP_MS) {
			p = &(*p)->next;
		} else {
			log_warn("nothing more of the branch shipped for %s, nor its start, came within 15 minutes; it is dropped", (*p)->handle);
			drop(s, p);
		}
	}
}

/* Opened for both sides, then without a name. */
static int
open_file(int dirfd, struct branch *b)
{
	unlinkat(dirfd, FILE_NAME, 0);
	b->write = openat(dirfd, FILE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (b->write < 0)
		return -errno;
	b->read = openat(dirfd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	unlinkat(dirfd, FILE_NAME, 0);
	return b->read < 0 ? -errno : 0;
}

static struct branch *
begin(struct session *s, const char *handle, uint64_t total)
{
	struct branch **p = find(s, handle), *b;
	int r;

	if (*p != NULL)
		drop(s, p);
	b = s->nbranches < BRANCHES_MAX ? calloc(1, sizeof(*b)) : NULL;
	if (b == NULL) {
		log_warn("the branch for %s is not taken: %u are under way", handle, s->nbranches);
		return NULL;
	}
	b->write = b->read = -1;
	b->s = s;
	snprintf(b->handle, sizeof(b->handle), "%s", handle);
	b->total = total;
	b->moved = monotime_now();
	b->next = s->branches;
	s->branches = b;
	s->nbranches++;
	r = open_file(s->p.statefd, b);
	if (r == 0)
		return b;
	log_error("the branch for %s cannot be kept: %s", handle, strerror(-r));
	drop(s, find(s, handle));
	return NULL;
}

static const char *
take(struct branch *b, uint64_t offset, uint64_t total, const uint8_t *data, size_t len)
{
	int r;

	if (offset != b->have)
		return "a gap";
	if (total != b->total)
		return "a total that changes";
	if (len > total - offset)
		return "more bytes than its total";
	r = fd_write_all(b->write, data, len);
	if (r < 0)
		return strerror(-r);
	b->have += len;
	b->moved = monotime_now();
	return NULL;
}

void
branch_chunk(struct session *s, const struct cloop_frame *f)
{
	static uint8_t data[CHUNK_MAX / 4 * 4 + 4];
	const struct json *text = json_get(f->payload, "data");
	struct branch *b;
	const char *why;
	int64_t offset, total;
	size_t len = 0;

	branches_expire(s);
	if (!handle_ok(f->handle)) {
		log_warn("the hub ships a branch for no handle");
		return;
	}
	if (!json_get_int(f->payload, "offset", 0, JOB_BUNDLE_MAX, &offset) || !json_get_int(f->payload, "total", 1, JOB_BUNDLE_MAX, &total) ||
	    text == NULL || text->type != JSON_STRING || base64_decode(data, sizeof(data), text->str, text->len, &len) < 0 || len == 0 ||
	    len > CHUNK_MAX)
		why = "a malformed chunk";
	else if ((b = offset == 0 ? begin(s, f->handle, (uint64_t)total) : *find(s, f->handle)) == NULL)
		why = offset == 0 ? NULL : "a chunk before the first";
	else if (b->md != NULL)
		why = "a chunk of what comes as a stream";
	else
		why = take(b, (uint64_t)offset, (uint64_t)total, data, len);
	if (why == NULL)
		return;
	log_warn("the branch shipped for %s is dropped: %s", f->handle, why);
	if (*find(s, f->handle) != NULL)
		drop(s, find(s, f->handle));
}

/* ---- as a stream ---- */

/* The channel is not in the mux any more. */
static void
stream_drop(struct branch *b, const char *why)
{
	log_warn("the branch shipped for %s is dropped: %s", b->handle, why);
	drop(b->s, find(b->s, b->handle));
}

static void
refuse(struct branch *b, const char *why)
{
	mux_reset(&b->chan, STREAM_RESET_REFUSED, why);
	stream_drop(b, why);
}

static ssize_t
stream_take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct branch *b = c->ctx;
	int r;

	if (len > b->total - b->have) {
		refuse(b, "more bytes than were announced");
		return 0;
	}
	r = fd_write_all(b->write, data, len);
	if (r < 0)
		return r;
	b->have += len;
	b->moved = monotime_now();
	return EVP_DigestUpdate(b->md, data, len) == 1 ? (ssize_t)len : -ENOMEM;
}

static void
stream_ended(struct mux_chan *c, const uint8_t *xxh3)
{
	struct branch *b = c->ctx;
	uint8_t sha[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	if (b->have != b->total) {
		refuse(b, "fewer bytes came than were announced");
		return;
	}
	b->whole = EVP_DigestFinal_ex(b->md, sha, &n) == 1 && n == sizeof(b->sha256) && memcmp(sha, b->sha256, n) == 0;
	if (b->whole)
		mux_end(c, NULL);
	else
		refuse(b, "what came has another SHA-256 than was announced");
}

static void
stream_closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct branch *b = c->ctx;

	if (!b->whole)
		stream_drop(b, reason);
}

static const struct mux_kind kind = { .class = MUX_FILE, .take = stream_take, .ended = stream_ended, .closed = stream_closed };

/* NULL, or what is wrong; *ret_code says which of the errors that is. */
static const char *
stream_begin(struct session *s, const struct json *p, uint32_t channel, const char **ret_code)
{
	char handle[HANDLE_SIZE];
	uint8_t sha256[32];
	struct branch *b;
	int64_t size;

	*ret_code = "protocol";
	if (!json_copy_str(p, "handle", handle, sizeof(handle)) || !handle_ok(handle))
		return "handle is missing or malformed";
	if (!json_get_int(p, "size", 1, INT64_MAX, &size) || !file_sha_parse(json_get_str(p, "sha256"), sha256))
		return "size or sha256 is missing or not one";
	*ret_code = "too_big";
	if (size > JOB_BUNDLE_MAX)
		return "a branch of more than 128 MiB is not taken";
	*ret_code = "busy";
	b = begin(s, handle, (uint64_t)size);
	if (b == NULL)
		return "no room for another branch here";
	memcpy(b->sha256, sha256, sizeof(b->sha256));
	b->md = EVP_MD_CTX_new();
	if (b->md != NULL && EVP_DigestInit_ex(b->md, EVP_sha256(), NULL) == 1 &&
	    mux_open(&s->mux, &b->chan, channel, &kind, b, 0, 0, 0, 0) == 0)
		return NULL;
	drop(s, find(s, handle));
	return "no room for another stream here";
}

void
branch_stream(struct session *s, const struct cloop_frame *f, uint32_t channel)
{
	const char *code, *why;
	struct json_w w;

	branches_expire(s);
	why = stream_begin(s, f->payload, channel, &code);
	if (why != NULL) {
		session_send_error(s, f->id, code, why);
		return;
	}
	streams_begin_opened(s, &w, f, channel);
	json_w_int(&w, "offset", 0);
	session_send(s, &w);
}

int
branch_claim(struct session *s, const char *handle)
{
	struct branch **p = find(s, handle);
	int fd = -1;

	branches_expire(s);
	p = find(s, handle);
	if (*p == NULL)
		return -1;
	if ((*p)->have == (*p)->total && ((*p)->md == NULL || (*p)->whole))
		fd = take_fd(&(*p)->read);
	drop(s, p);
	return fd;
}
