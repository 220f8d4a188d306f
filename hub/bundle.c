/*
 * Who calls: session_frames.c for a device's stream_open, the mux for its bytes. A device may say anything: what comes is bounded by the
 * size it named, written as it comes, and kept only if its digest is the one it named.
 */
#include "hub/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "hub/result.h"
#include "hub/run.h"
#include "proto/ipc/file.h"
#include "proto/ipc/job.h"

#define IDENTITY_SIZE	96
#define READ_TURN	(1u << 20)	/* bytes digested again before others have their turn */

struct bundle {
	struct mux_chan chan;
	struct bundle *next;
	struct hub *hub;
	struct session *s;	/* of the channel: it ends before that does */
	char handle[HANDLE_SIZE];
	char sha256[FILE_SHA_HEX];
	uint64_t size, have;
	uint64_t begun, read;	/* what an earlier session left of it, and how much of that is in the digest */
	bool all;		/* the device's END has come, and waits for that */
	EVP_MD_CTX *md;
	int fd;			/* -1: nothing more of it is wanted */
};

void
bundle_forget(struct hub *hub, const char *handle)
{
	char name[RESULT_NAME];

	result_name(name, "p", handle);
	unlinkat(hub->logfd, name, 0);
	result_name(name, "i", handle);
	unlinkat(hub->logfd, name, 0);
}

static void
drop(struct bundle *b)
{
	struct bundle **p = &b->hub->bundles;

	while (*p != b)
		p = &(*p)->next;
	*p = b->next;
	cleanup_close(&b->fd);
	EVP_MD_CTX_free(b->md);
	free(b);
}

static void
refuse(struct bundle *b, const char *why)
{
	log_warn("run %s: bundle: %s", b->handle, why);
	bundle_forget(b->hub, b->handle);
	mux_reset(&b->chan, STREAM_RESET_REFUSED, why);
	drop(b);
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct bundle *b = c->ctx;
	int r;

	if (len > b->size - b->have) {
		refuse(b, "more bytes than were announced");
		return 0;
	}
	if (b->read < b->begun)
		return 0;	/* read_begun() asks for it */
	r = fd_write_all(b->fd, data, len);
	if (r < 0)
		return r;
	b->have += len;
	return EVP_DigestUpdate(b->md, data, len) == 1 ? (ssize_t)len : -ENOMEM;
}

/* For the frame result, which names it. */
static void
note(struct bundle *b)
{
	struct run *run = run_get(b->hub, b->handle);

	if (run == NULL)
		return;
	backsum_whole(&run->back, b->size, b->sha256);
	run_put(run);
}

static const char *
keep(struct bundle *b)
{
	char hex[FILE_SHA_HEX], from[RESULT_NAME], to[RESULT_NAME];
	uint8_t sha[EVP_MAX_MD_SIZE] = { 0 };
	unsigned n = 0;

	if (b->have != b->size)
		return "fewer bytes came than were announced";
	if (EVP_DigestFinal_ex(b->md, sha, &n) != 1)
		return "out of memory";
	file_sha_put(sha, hex);
	if (strcmp(hex, b->sha256) != 0)
		return "what came has another SHA-256 than was announced";
	result_name(from, "p", b->handle);
	result_name(to, "b", b->handle);
	if (renameat(b->hub->logfd, from, b->hub->logfd, to) < 0)
		return strerror(errno);
	note(b);
	return NULL;
}

static void
finish(struct bundle *b)
{
	const char *why = b->fd >= 0 ? keep(b) : NULL;

	if (why != NULL) {
		refuse(b, why);
		return;
	}
	if (b->fd >= 0)
		bundle_forget(b->hub, b->handle);
	mux_end(&b->chan, NULL);
}

static void
ended(struct mux_chan *c, const uint8_t *xxh3)
{
	struct bundle *b = c->ctx;

	b->all = true;
	if (b->read == b->begun)
		finish(b);
}

/* What has come stays, for the next session of the device. */
static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct bundle *b = c->ctx;

	if (code != 0)
		log_info("run %s: bundle: %llu of %llu bytes have come: %s", b->handle, (unsigned long long)b->have,
		    (unsigned long long)b->size, reason);
	drop(b);
}

static const struct mux_kind kind = { .class = MUX_FILE, .take = take, .ended = ended, .closed = closed };

/* True when what is there was begun as this one. */
static bool
is_begun(const struct bundle *b, const char identity[IDENTITY_SIZE])
{
	_cleanup_free_ uint8_t *text = NULL;
	char name[RESULT_NAME];
	size_t len;

	result_name(name, "i", b->handle);
	return fd_read_file(b->hub->logfd, name, IDENTITY_SIZE, &text, &len) == 0 && len == strlen(identity) && memcmp(text, identity, len) == 0;
}

/* ---- what an earlier session has left, into the digest ---- */

/* The one that has waited longest. */
static struct bundle *
next_to_read(struct hub *hub)
{
	struct bundle *last = NULL;

	for (struct bundle *b = hub->bundles; b != NULL; b = b->next)
		if (b->read < b->begun)
			last = b;
	return last;
}

/* NULL, or what is wrong. */
static const char *
read_some(struct bundle *b)
{
	static uint8_t buf[64 << 10];
	uint64_t stop = b->begun - b->read < READ_TURN ? b->begun : b->read + READ_TURN;

	while (b->read < stop) {
		size_t len = stop - b->read < sizeof(buf) ? (size_t)(stop - b->read) : sizeof(buf);
		ssize_t n = pread(b->fd, buf, len, (off_t)b->read);

		if (n <= 0)
			return n < 0 ? strerror(errno) : "what had come of it is not there any more";
		if (EVP_DigestUpdate(b->md, buf, (size_t)n) != 1)
			return "out of memory";
		b->read += (uint64_t)n;
	}
	return NULL;
}

static void
read_begun(struct loop_timer *timer)
{
	struct hub *hub = timer->ctx;
	struct bundle *b = next_to_read(hub);
	const char *why;

	if (b == NULL)
		return;
	loop_timer_set(hub->loop, timer, monotime_now());
	why = read_some(b);
	if (why != NULL)
		refuse(b, why);
	else if (b->read == b->begun && b->all)
		finish(b);
	else if (b->read == b->begun)
		mux_resume(&b->chan);
}

void
bundles_init(struct hub *hub)
{
	loop_timer_init(&hub->read_begun, read_begun, hub);
}

/* ---- the beginning ---- */

/* How much of it is there: more than all of it is none of it. -errno. */
static int
look_at(struct bundle *b)
{
	struct stat st;

	if (fstat(b->fd, &st) < 0)
		return -errno;
	if ((uint64_t)st.st_size > b->size)
		return ftruncate(b->fd, 0) < 0 ? -errno : 0;
	b->begun = b->have = (uint64_t)st.st_size;
	b->s->read_again += b->begun;
	if (b->begun > 0)
		loop_timer_set(b->hub->loop, &b->hub->read_begun, monotime_now());
	return 0;
}

static int
open_file(struct bundle *b)
{
	char identity[IDENTITY_SIZE], name[RESULT_NAME];
	bool begun;
	int r = 0;

	snprintf(identity, sizeof(identity), "%llu %s\n", (unsigned long long)b->size, b->sha256);
	/* It costs the hub's time: so often and no oftener, however often the device asks. */
	begun = is_begun(b, identity) && b->s->read_again < BUNDLE_READ_AGAIN;
	if (!begun) {
		bundle_forget(b->hub, b->handle);
		result_name(name, "i", b->handle);
		r = fd_replace_file(b->hub->logfd, name, identity, strlen(identity), 0600);
	}
	if (r < 0)
		return r;
	result_name(name, "p", b->handle);
	b->fd = openat(b->hub->logfd, name, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (begun ? 0 : O_TRUNC), 0600);
	return b->fd < 0 ? -errno : look_at(b);
}

/*
 * False: there is no room for it. A second one of a run would write into the first one's file, even when that has been found right; one of
 * an older session gives way.
 */
static bool
has_room(const struct bundle *b)
{
	struct bundle *same = b->next;
	unsigned all = 0, ours = 0;

	while (same != NULL && strcmp(same->handle, b->handle) != 0)
		same = same->next;
	if (same != NULL && same->s == b->s)
		return false;
	if (same != NULL) {
		/* It may be the last that the older session had room for: then all the others of that are gone behind this, too. */
		mux_reset(&same->chan, STREAM_RESET_GONE, "it goes on in another session");
		drop(same);
	}
	for (const struct bundle *o = b->next; o != NULL; o = o->next) {
		all++;
		ours += o->s == b->s;
	}
	return all < BUNDLES_MAX && ours < BUNDLES_DEVICE;
}

/* The fields; NULL, or what is wrong with them. */
static const char *
read_fields(struct bundle *b, const struct json *p, int64_t *ret_channel, const char **ret_code)
{
	const char *kind_name = json_get_str(p, "kind");
	uint8_t sha[32];
	int64_t size;

	*ret_code = "protocol";
	if (kind_name == NULL || strcmp(kind_name, "bundle") != 0)
		return "this hub has no stream of that kind";
	if (!json_get_int(p, "channel", 1, UINT32_MAX, ret_channel) || !json_copy_str(p, "handle", b->handle, sizeof(b->handle)) ||
	    !handle_ok(b->handle) || !json_get_int(p, "size", 1, INT64_MAX, &size) || !file_sha_parse(json_get_str(p, "sha256"), sha))
		return "channel, handle, size or sha256 is missing or not one";
	*ret_code = "write_back_failed";
	if (size > JOB_BUNDLE_MAX)
		return "a bundle of more than 128 MiB is not kept";
	file_sha_put(sha, b->sha256);
	b->size = (uint64_t)size;
	return NULL;
}

static const char *
claim(struct session *s, struct bundle *b, int64_t channel, bool taken, const char **ret_code)
{
	struct run *run = run_get(s->hub, b->handle);
	bool ours = run != NULL && strcmp(run->info.device, s->device) == 0, over = ours && run_state_is_final(run->info.state);
	int r;

	if (run != NULL)
		run_put(run);
	*ret_code = "unknown_handle";
	if (!ours)
		return "no such run";
	*ret_code = "busy";
	if (!has_room(b))
		return "too many bundles are under way, or this one is";
	r = taken ? -EEXIST : mux_claim(&s->mux, channel);
	*ret_code = r == -EEXIST || r == -EINVAL ? "protocol" : "busy";
	if (r < 0)
		return r == -EEXIST ? "this channel was used before in this session" : r == -EINVAL ? "channel must be an even number" :
		    "too many streams are open";
	if (over) {
		/* It has ended here already and the device did not hear of it: the bundle is the one it had. */
		b->have = b->size;
		return NULL;
	}
	b->md = EVP_MD_CTX_new();
	r = b->md == NULL || EVP_DigestInit_ex(b->md, EVP_sha256(), NULL) != 1 ? -ENOMEM : open_file(b);
	if (r < 0)
		bundle_forget(s->hub, b->handle);
	*ret_code = "write_back_failed";
	return r < 0 ? strerror(-r) : NULL;
}

void
bundle_open(struct session *s, const struct frame *f, bool taken)
{
	struct bundle *b = s->edgeward ? calloc(1, sizeof(*b)) : NULL;
	const char *code = s->edgeward ? "busy" : "protocol", *why = s->edgeward ? "out of memory" : "streams need edgeward.1";
	char buf[256];
	struct json_w w;
	int64_t channel = 0;

	if (b != NULL) {
		b->next = s->hub->bundles;
		s->hub->bundles = b;
		b->hub = s->hub;
		b->s = s;
		b->fd = -1;
		why = read_fields(b, f->payload, &channel, &code);
		if (why == NULL)
			why = claim(s, b, channel, taken, &code);
		if (why == NULL && mux_open(&s->mux, &b->chan, (uint32_t)channel, &kind, b, b->have, 0, 0, 0) < 0) {
			code = "busy";
			why = "too many streams are open";
		}
	}
	if (why != NULL) {
		if (b != NULL)
			drop(b);
		session_error(s, f->id, f->handle, code, why);
		return;
	}
	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, s->version, "stream_opened", f->id, NULL);
	json_w_int(&w, "channel", channel);
	json_w_int(&w, "offset", (int64_t)b->have);
	frame_end(&w);
	session_send(s, &w);
}
