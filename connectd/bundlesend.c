/*
 * Who calls: results.c, from the end of a log to the terminal status; frames.c for the hub's answers; the mux for bytes and ends. What
 * the mux says is acted on from the loop, never inside its calls.
 */
#include "connectd/bundlesend.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"

#define HASH_TURN	(1u << 20)	/* bytes digested before others have their turn */

static void timer_due(struct loop_timer *timer);

static void
soon(struct bundlesend *b, int64_t ms)
{
	loop_timer_set_ms(b->s->p.loop, &b->timer, ms);
}

/* Out of the mux, as it is; the rest follows from the loop. */
static void
fail(struct bundlesend *b, const char *why)
{
	if (b->stage == BUNDLE_FAILED)
		return;
	snprintf(b->why, sizeof(b->why), "%s", why);
	b->stage = BUNDLE_FAILED;
	soon(b, 0);
}

void
bundlesend_stop(struct bundlesend *b)
{
	if (b->s == NULL)
		return;
	if (b->s->state == SESSION_UP)
		mux_reset(&b->chan, STREAM_RESET_GONE, "the workload is not told any more");
	else
		mux_drop(&b->chan);
	loop_timer_del(b->s->p.loop, &b->timer);
	EVP_MD_CTX_free(b->md);
	b->md = NULL;
	b->s = NULL;
	b->stage = BUNDLE_IDLE;
}

/* ---- the digest ---- */

static void
hash_some(struct bundlesend *b)
{
	static uint8_t data[64 << 10];
	uint64_t stop = b->size - b->at < HASH_TURN ? b->size : b->at + HASH_TURN;
	uint8_t sha[EVP_MAX_MD_SIZE];
	unsigned n = 0;

	while (b->at < stop) {
		size_t len = stop - b->at < sizeof(data) ? (size_t)(stop - b->at) : sizeof(data);
		ssize_t got = pread(b->fd, data, len, (off_t)b->at);

		if (got != (ssize_t)len) {
			fail(b, got < 0 ? strerror(errno) : "it is shorter than it was");
			return;
		}
		if (EVP_DigestUpdate(b->md, data, len) != 1) {
			fail(b, "no memory for its digest");
			return;
		}
		b->at += len;
	}
	if (b->at < b->size)
		return;
	if (EVP_DigestFinal_ex(b->md, sha, &n) != 1 || n != 32) {
		fail(b, "no memory for its digest");
		return;
	}
	file_sha_put(sha, b->sha256);
	b->hashed = true;
}

static void
begin_hash(struct bundlesend *b)
{
	b->stage = BUNDLE_HASHING;
	b->at = 0;
	EVP_MD_CTX_free(b->md);
	b->md = EVP_MD_CTX_new();
	if (b->md == NULL || EVP_DigestInit_ex(b->md, EVP_sha256(), NULL) != 1)
		fail(b, "no memory for its digest");
	else
		soon(b, 0);
}

/* ---- the stream ---- */

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct bundlesend *b = c->ctx;
	uint64_t left = b->size - b->at;
	size_t len = left < max ? (size_t)left : max;
	ssize_t n = pread(b->fd, buf, len, (off_t)b->at);

	if (n != (ssize_t)len) {
		fail(b, n < 0 ? strerror(errno) : "it is shorter than it was");
		return -EIO;
	}
	b->at += len;
	if (b->at == b->size)
		mux_end(c, NULL);
	return n;
}

/* Before our own END it makes no sense: closed() is not called then, and the bytes are not there. */
static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	struct bundlesend *b = c->ctx;

	if (c->tx_end)
		return;
	mux_reset(c, STREAM_RESET_PROTOCOL, "an end before all has come");
	fail(b, "the hub ended the stream before it had all");
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct bundlesend *b = c->ctx;

	if (b->s->state != SESSION_UP)
		return;		/* bundlesend_stop() is on its way */
	if (code == 0) {
		b->stage = BUNDLE_SENT;
		soon(b, 0);
	} else if (code == STREAM_RESET_REFUSED && b->resumed && !b->again) {
		/* Its beginning is from an earlier session, and perhaps from before a fall of the hub: once more, from the first byte. */
		log_warn("bundle of %s: the hub takes no rest of it (%s); all of it is sent again", b->e->w.handle, reason);
		b->again = true;
		b->stage = BUNDLE_LATER;
		soon(b, 0);
	} else {
		fail(b, reason[0] != '\0' ? reason : "the hub ended the stream");
	}
}

static const struct mux_kind kind = { .class = MUX_FILE, .ended = ended, .fill = fill, .closed = closed };

static void
ask(struct bundlesend *b)
{
	struct session *s = b->s;
	uint32_t channel = logsend_new_channel(&s->logs);
	struct json_w w;

	if (channel == 0 || mux_open(&s->mux, &b->chan, channel, &kind, b, 0, 0, 0, 0) < 0) {
		b->stage = BUNDLE_LATER;
		soon(b, BUNDLE_LATER_MS);
		return;
	}
	b->stage = BUNDLE_ASKED;
	snprintf(b->id, sizeof(b->id), "b-%u", channel);
	session_begin_frame(s, &w, "stream_open", b->id, b->e->w.handle);
	json_w_int(&w, "channel", channel);
	json_w_str(&w, "kind", "bundle");
	json_w_str(&w, "handle", b->e->w.handle);
	json_w_int(&w, "size", (int64_t)b->size);
	json_w_str(&w, "sha256", b->sha256);
	session_send(s, &w);
	soon(b, BUNDLE_ANSWER_MS);
}

/* This hub has no such streams. */
static void
use_chunks(struct bundlesend *b, const char *why)
{
	struct session *s = b->s;
	struct mirror_entry *e = b->e;

	log_info("the hub takes no bundle as a stream (%s); chunks are sent in this session", why);
	s->bundle_chunks = true;
	bundlesend_stop(b);
	report_try(s, e);
}

static void
timer_due(struct loop_timer *timer)
{
	struct bundlesend *b = timer->ctx;

	if (b->stage == BUNDLE_HASHING && !b->hashed) {
		hash_some(b);
		if (b->stage == BUNDLE_HASHING)
			soon(b, 0);
	} else if (b->s->bundle_chunks) {
		use_chunks(b, "it was asked before");
	} else if (b->stage == BUNDLE_HASHING || b->stage == BUNDLE_LATER) {
		ask(b);
	} else if (b->stage == BUNDLE_ASKED) {
		use_chunks(b, "no answer");
	} else if (b->stage == BUNDLE_SENT || b->stage == BUNDLE_FAILED) {
		report_try(b->s, b->e);
	}
}

enum bundle_stage
bundlesend_go(struct bundlesend *b, struct session *s, struct mirror_entry *e, int fd, uint64_t size)
{
	if (b->s != NULL)
		return b->stage;
	b->s = s;
	b->e = e;
	b->fd = fd;
	b->size = size;
	b->why[0] = '\0';
	b->id[0] = '\0';
	b->resumed = b->again = false;
	loop_timer_init(&b->timer, timer_due, b);
	if (!b->hashed)
		begin_hash(b);
	else
		ask(b);
	return b->stage;
}

/* ---- the hub's answers ---- */

static struct bundlesend *
by_id(struct session *s, const char *id)
{
	for (struct mirror_entry *e = s->p.mirror->head; e != NULL && id[0] == 'b'; e = e->next) {
		struct bundlesend *b = results_stream(e->result);

		if (b != NULL && b->stage == BUNDLE_ASKED && strcmp(b->id, id) == 0)
			return b;
	}
	return NULL;
}

bool
bundlesend_opened(struct session *s, const struct cloop_frame *f)
{
	struct bundlesend *b = by_id(s, f->id);
	int64_t offset = 0, window = 0;

	if (b == NULL)
		return false;
	loop_timer_del(s->p.loop, &b->timer);
	if (json_get(f->payload, "offset") != NULL && !json_get_int(f->payload, "offset", 0, (int64_t)b->size, &offset)) {
		mux_reset(&b->chan, STREAM_RESET_PROTOCOL, "an offset beyond the end");
		fail(b, "the hub wants what is beyond its end");
		return true;
	}
	json_get_int(f->payload, "window", 1, UINT32_MAX, &window);
	b->stage = BUNDLE_FLOW;
	b->resumed = offset > 0;
	b->at = (uint64_t)offset;
	mux_tx_start(&b->chan, b->at, (uint64_t)window);
	if (b->at == b->size)
		mux_end(&b->chan, NULL);
	else
		mux_want(&b->chan);
	return true;
}

bool
bundlesend_refused(struct session *s, const struct cloop_frame *f)
{
	struct bundlesend *b = by_id(s, f->id);
	const char *code = json_get_str(f->payload, "code"), *message = json_get_str(f->payload, "message");
	char text[LOG_QUOTE_SIZE];

	if (b == NULL)
		return false;
	code = code != NULL ? code : "";
	message = message != NULL ? message : code;
	log_quote(text, sizeof(text), message, strlen(message));
	mux_drop(&b->chan);
	if (strcmp(code, "protocol") == 0) {
		use_chunks(b, text);
	} else if (strcmp(code, "busy") == 0) {
		b->stage = BUNDLE_LATER;
		soon(b, BUNDLE_LATER_MS);
	} else {
		fail(b, text);
	}
	return true;
}
