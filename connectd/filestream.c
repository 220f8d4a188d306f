/*
 * Who calls: streams.c for the hub's stream_open, session.c for workerd's word, the mux and the loop for the bytes. The carrier runs as a
 * workload's runner, in its sandbox, and is trusted as little: each record is checked against what came before.
 */
#include "connectd/filestream.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/eventlog.h"
#include "common/filepump.h"
#include "common/log.h"
#include "connectd/streams.h"
#include "connectd/workchan.h"
#include "proto/hub/filefill.h"

#define ZEROS_TURN	(4u << 20)	/* of a hole, digested before others have their turn */

enum stage {
	ASKED,		/* workerd, then the carrier, is to answer */
	PREFIX,		/* put: the carrier says what it has */
	FLOW,
	COMMIT,		/* put: the carrier puts it in its place */
	OVER,
};

struct filestream {
	struct filestream *next;
	struct session *s;
	struct mux_chan chan;
	uint32_t channel, ipc_id;
	char frame_id[CLOOP_ID_SIZE];
	struct file_request req;
	enum stage stage;
	bool answered, opened;		/* by workerd; stream_opened was sent */
	bool end_waits;			/* END is to be sent to the carrier */
	uint64_t from, size;		/* get: offset of the first byte the hub wants */
	uint64_t at;			/* bytes digested: all below */
	uint64_t zeros;			/* a hole up to here is digested before anything else; 0 = none */
	EVP_MD_CTX *md;
	int fd;				/* the carrier; -1 = not there yet */
	struct loop_io io;		/* in the loop only while something of it is wanted, or was not long ago */
	uint32_t wanted;		/* EPOLLIN, EPOLLOUT */
	struct loop_timer end_timer, zeros_timer;
	enum stream_reset code;
	char why[FILE_TEXT_MAX];	/* why it ends at the next turn of the loop */
	struct filefill rec;		/* get: what the hub has not got yet */
};

/* What became of it, for the record. What workerd refuses it records itself; why is NULL when all went well. */
static void
record(const struct filestream *f, bool refused, const char *why)
{
	const struct file_open *o = &f->req.open;
	const char *who = f->req.who[0] != '\0' ? f->req.who : "the hub";
	char quoted[LOG_QUOTE_SIZE];

	log_quote(quoted, sizeof(quoted), o->path, strlen(o->path));
	if (why == NULL)
		eventlog_add(f->s->p.events, o->put != 0 ? "file-written" : "file-read", o->handle, "%s: %s: %llu bytes", who, quoted,
		    (unsigned long long)f->at);
	else if (refused)
		eventlog_add(f->s->p.events, "file-refused", o->handle, "%s: %s: %s", who, quoted, why);
	else
		eventlog_add(f->s->p.events, "file-broken", o->handle, "%s: %s: at %llu bytes: %s", who, quoted, (unsigned long long)f->at, why);
}

/* Out of the list, all closed. The channel is the caller's. */
static void
drop(struct filestream *f)
{
	struct session *s = f->s;
	struct filestream **p = &s->files;

	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	loop_timer_del(s->p.loop, &f->end_timer);
	loop_timer_del(s->p.loop, &f->zeros_timer);
	loop_io_del(s->p.loop, &f->io);
	if (f->fd >= 0)
		close(f->fd);
	EVP_MD_CTX_free(f->md);
	free(f);
}

static const char *
error_code(const char *why)
{
	static const char *const codes[] = { "unknown_handle", "busy" };

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (strncmp(why, codes[i], strlen(codes[i])) == 0 && why[strlen(codes[i])] == ':')
			return codes[i];
	return "protocol";
}

static void
end(struct filestream *f, enum stream_reset code, const char *why)
{
	log_info("file of %s: %s", f->req.open.handle, why);
	if (f->fd >= 0)
		record(f, code == STREAM_RESET_REFUSED, why);
	if (f->s->state != SESSION_UP)
		mux_drop(&f->chan);
	else if (f->opened)
		mux_reset(&f->chan, code, why);
	else
		session_send_error(f->s, f->frame_id, error_code(why), why);
	drop(f);
}

/* Where the mux is at work on the channel it cannot be taken away: it goes at the next turn of the loop. */
static void
end_soon(struct filestream *f, enum stream_reset code, const char *why)
{
	if (f->why[0] != '\0')
		return;
	f->code = code;
	snprintf(f->why, sizeof(f->why), "%s", why);
	loop_timer_set(f->s->p.loop, &f->end_timer, monotime_now());
}

static void
end_due(struct loop_timer *timer)
{
	struct filestream *f = timer->ctx;

	end(f, f->code, f->why);
}

static void
digest(struct filestream *f, const void *data, size_t len)
{
	if (EVP_DigestUpdate(f->md, data, len) != 1)
		end_soon(f, STREAM_RESET_INTERNAL, "out of memory");
	f->at += len;
}

static void
digest_end(struct filestream *f, uint8_t ret_sha[32])
{
	unsigned n = 0;

	if (EVP_DigestFinal_ex(f->md, ret_sha, &n) != 1)
		memset(ret_sha, 0, 32);
}

static void
send_done(struct filestream *f, const uint8_t sha[32])
{
	char hex[FILE_SHA_HEX];
	struct json_w w;

	file_sha_put(sha, hex);
	session_begin_frame(f->s, &w, "file_done", NULL, f->req.open.handle);
	json_w_int(&w, "channel", f->channel);
	json_w_int(&w, "size", (int64_t)f->at);
	json_w_str(&w, "sha256", hex);
	session_send(f->s, &w);
}

static void
send_opened(struct filestream *f, uint32_t mode)
{
	struct json_w w;

	session_begin_frame(f->s, &w, "stream_opened", f->frame_id, NULL);
	json_w_int(&w, "channel", f->channel);
	if (f->req.open.put != 0) {
		json_w_int(&w, "offset", (int64_t)f->at);
	} else {
		json_w_int(&w, "size", (int64_t)f->size);
		json_w_int(&w, "file_mode", mode);
	}
	f->opened = true;
	session_send(f->s, &w);
}

/* ---- to the carrier ---- */

static void on_carrier(struct loop_io *io, uint32_t events);

/* A carrier that is done has gone while there is much to read of it: the loop would not stop telling. So it is out of the loop then. */
static void
want(struct filestream *f, uint32_t events)
{
	f->wanted = events;
	if (f->io.fd >= 0)
		loop_io_set(f->s->p.loop, &f->io, events);
	else if (events != 0 && loop_io_add(f->s->p.loop, &f->io, f->fd, events, on_carrier, f) < 0)
		end_soon(f, STREAM_RESET_LIMIT, "busy: no room for its descriptor");
}

/* 1 sent, 0 not now. */
static int
say(struct filestream *f, enum file_rec_type type, uint64_t at, const void *data, size_t len)
{
	const struct file_rec rec = { .type = type, .at = at };

	/* Any other error: it is gone, and its last word, or the end, is read. */
	if (filepump_try(f->fd, &rec, data, len) != -EAGAIN)
		return 1;
	want(f, EPOLLIN | EPOLLOUT);
	return 0;
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct filestream *f = c->ctx;

	if (f->stage != FLOW || f->why[0] != '\0')
		return (ssize_t)len;
	if (len > f->size - f->at) {
		end_soon(f, STREAM_RESET_REFUSED, "more bytes than were announced");
		return (ssize_t)len;
	}
	len = len < FILE_DATA_MAX ? len : FILE_DATA_MAX;
	if (say(f, FILE_DATA, f->at, data, len) == 0)
		return 0;
	digest(f, data, len);
	return (ssize_t)len;
}

static void
digest_zeros(struct loop_timer *timer)
{
	struct filestream *f = timer->ctx;
	uint64_t stop = f->zeros - f->at > ZEROS_TURN ? f->at + ZEROS_TURN : f->zeros;

	while (f->at < stop)
		digest(f, filepump_zeros(), stop - f->at < FILEPUMP_ZEROS ? (size_t)(stop - f->at) : FILEPUMP_ZEROS);
	if (f->at < f->zeros) {
		loop_timer_set(f->s->p.loop, timer, monotime_now());
		return;
	}
	if (f->req.open.put != 0 && f->stage == FLOW) {
		mux_resume(&f->chan);	/* and take_hole() again */
		return;
	}
	f->rec.hole = f->req.open.put == 0 && f->at > f->from ? f->at : 0;
	f->zeros = 0;
	if (f->rec.hole != 0)
		mux_want(&f->chan);
	else
		want(f, EPOLLIN);
}

static int
take_hole(struct mux_chan *c, uint64_t to)
{
	struct filestream *f = c->ctx;

	if (f->stage != FLOW || f->why[0] != '\0')
		return 1;
	if (to > f->size) {
		end_soon(f, STREAM_RESET_REFUSED, "more bytes than were announced");
		return 1;
	}
	if (f->at < to) {
		f->zeros = to;
		loop_timer_set(f->s->p.loop, &f->zeros_timer, monotime_now());
		return 0;
	}
	if (say(f, FILE_HOLE, to, NULL, 0) == 0)
		return 0;
	f->zeros = 0;
	return 1;
}

static void
commit(struct filestream *f)
{
	f->end_waits = say(f, FILE_END, f->at, NULL, 0) == 0;
}

static void
ended(struct mux_chan *c, const uint8_t *xxh3)
{
	struct filestream *f = c->ctx;
	uint8_t sha[32];

	if (f->req.open.put == 0 || f->stage != FLOW || f->why[0] != '\0')
		return;
	digest_end(f, sha);
	if (f->at != f->size || memcmp(sha, f->req.open.sha256, sizeof(sha)) != 0) {
		(void)say(f, FILE_FAIL, 0, NULL, 0);
		end_soon(f, STREAM_RESET_REFUSED, f->at != f->size ? "fewer bytes came than were announced" :
		    "what came has another SHA-256 than was announced; the file was not touched");
		return;
	}
	f->stage = COMMIT;
	commit(f);
}

/* ---- from the carrier ---- */

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct filestream *f = c->ctx;
	ssize_t n;

	if (f->why[0] != '\0')
		return 0;
	if (filefill(&f->rec, c, buf, max, &n) && f->stage == FLOW && f->zeros == 0)
		want(f, EPOLLIN);
	return n;
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct filestream *f = c->ctx;

	if (code != 0)
		log_info("file of %s: the hub ended it: %s", f->req.open.handle, reason);
	record(f, false, code == 0 && f->stage == OVER ? NULL : code != 0 ? "the hub ended it" : "the hub ended it too soon");
	drop(f);
}

static const struct mux_kind kind = { .class = MUX_FILE, .take = take, .hole = take_hole, .ended = ended, .fill = fill, .closed = closed };

static bool
open_channel(struct filestream *f, uint32_t mode)
{
	bool put = f->req.open.put != 0;

	if (mux_open(&f->s->mux, &f->chan, f->channel, &kind, f, put ? f->at : 0, 0, put ? 0 : f->from, 0) < 0)
		return false;
	f->stage = FLOW;
	send_opened(f, mode);
	return true;
}

static void
take_meta(struct filestream *f, const struct file_rec *rec)
{
	if (f->stage != ASKED) {
		end(f, STREAM_RESET_INTERNAL, "the carrier breaks the protocol");
		return;
	}
	if (f->req.open.put != 0) {
		f->stage = PREFIX;
		return;
	}
	f->size = rec->at;
	if (f->from > f->size)
		end(f, STREAM_RESET_REFUSED, "offset: the file is shorter than that now");
	else if (!open_channel(f, rec->mode))
		end(f, STREAM_RESET_LIMIT, "busy: too many streams are open");
}

static void
take_bytes(struct filestream *f, const struct file_rec *rec, size_t len)
{
	uint64_t before = f->at;

	if (rec->type == FILE_HOLE) {
		want(f, 0);
		f->zeros = rec->at;
		loop_timer_set(f->s->p.loop, &f->zeros_timer, monotime_now());
		return;
	}
	digest(f, f->rec.buf + sizeof(*rec), len);
	if (f->req.open.put != 0 || f->at <= f->from)
		return;
	f->rec.off = sizeof(*rec) + (f->from > before ? (size_t)(f->from - before) : 0);
	f->rec.len = sizeof(*rec) + len;
	want(f, 0);	/* until the hub has it */
	mux_want(&f->chan);
}

static void
take_end(struct filestream *f)
{
	uint8_t sha[32];

	if (f->req.open.put != 0 && f->stage == PREFIX) {
		if (!open_channel(f, 0))
			end(f, STREAM_RESET_LIMIT, "busy: too many streams are open");
		return;
	}
	if (f->req.open.put != 0 || f->stage != FLOW) {
		end(f, STREAM_RESET_INTERNAL, "the carrier breaks the protocol");
		return;
	}
	f->stage = OVER;
	want(f, 0);
	digest_end(f, sha);
	send_done(f, sha);
	mux_end(&f->chan, NULL);	/* f may be gone */
}

static void
take_done(struct filestream *f)
{
	if (f->stage != COMMIT) {
		end(f, STREAM_RESET_INTERNAL, "the carrier breaks the protocol");
		return;
	}
	f->stage = OVER;
	want(f, 0);
	send_done(f, f->req.open.sha256);
	mux_end(&f->chan, NULL);
}

static void
take_fail(struct filestream *f, bool again, size_t len)
{
	char text[FILE_TEXT_MAX + 1], quoted[FILE_TEXT_MAX];

	memcpy(text, f->rec.buf + sizeof(struct file_rec), len);
	text[len] = '\0';
	log_quote(quoted, sizeof(quoted), text, strlen(text));
	end(f, again ? STREAM_RESET_GONE : STREAM_RESET_REFUSED, quoted);
}

static void
on_carrier(struct loop_io *io, uint32_t events)
{
	struct filestream *f = io->ctx;
	struct file_rec rec;
	ssize_t n;

	if (f->why[0] != '\0' || f->wanted == 0) {
		loop_io_del(f->s->p.loop, io);
		return;
	}
	if ((events & EPOLLOUT) != 0) {
		want(f, EPOLLIN);
		if (f->end_waits)
			commit(f);
		else
			mux_resume(&f->chan);
		return;
	}
	n = recv(f->fd, f->rec.buf, sizeof(f->rec.buf), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		end(f, STREAM_RESET_GONE, "the carrier of this file has ended; try again");
		return;
	}
	f->rec.off = f->rec.len = 0;
	/* Behind its own bytes of a put the carrier says END of what it has, and later only how it went. */
	if (file_rec_check(f->rec.buf, (size_t)n, f->at, &rec) < 0 || ((rec.type == FILE_DATA || rec.type == FILE_HOLE) &&
	    f->stage != (f->req.open.put != 0 ? PREFIX : FLOW))) {
		end(f, STREAM_RESET_INTERNAL, "the carrier breaks the protocol");
		return;
	}
	if (rec.type == FILE_META)
		take_meta(f, &rec);
	else if (rec.type == FILE_DATA || rec.type == FILE_HOLE)
		take_bytes(f, &rec, (size_t)n - sizeof(rec));
	else if (rec.type == FILE_END)
		take_end(f);
	else if (rec.type == FILE_DONE)
		take_done(f);
	else
		take_fail(f, rec.type == FILE_FAIL && rec.mode == 1, rec.type == FILE_FAIL ? (size_t)n - sizeof(rec) : 0);
}

/* ---- stream_open ---- */

static const char *
read_fields(struct filestream *f, const struct json *p)
{
	const char *mode = json_get_str(p, "mode"), *dir = json_get_str(p, "work_dir");
	int64_t size = 0, from = 0, file_mode = 0644;
	struct file_open *o = &f->req.open;

	if (!json_copy_str(p, "operator", f->req.who, sizeof(f->req.who)) || !ipc_text_ok(f->req.who, sizeof(f->req.who)))
		memset(f->req.who, 0, sizeof(f->req.who));
	if (!json_copy_str(p, "handle", o->handle, sizeof(o->handle)) || !handle_ok(o->handle))
		return "handle is missing or malformed";
	if (dir != NULL && !json_copy_str(p, "work_dir", o->work_dir, sizeof(o->work_dir)))
		return "work_dir is too long";
	if (!json_copy_str(p, "path", o->path, sizeof(o->path)) || !file_path_ok(o->path))
		return "path must lead to a file beneath the work directory: relative, without empty steps, . and ..";
	if (mode == NULL || (strcmp(mode, "get") != 0 && strcmp(mode, "put") != 0))
		return "mode must be get or put";
	o->put = mode[0] == 'p';
	if (json_get(p, "offset") != NULL && !json_get_int(p, "offset", 0, INT64_MAX, &from))
		return "offset must be a number of bytes";
	if (o->put != 0 && !json_get_int(p, "size", 0, INT64_MAX, &size))
		return "size is missing";
	if (o->put != 0 && !file_sha_parse(json_get_str(p, "sha256"), o->sha256))
		return "sha256 must be 64 lower-case hexadecimal digits";
	if (json_get(p, "file_mode") != NULL && !json_get_int(p, "file_mode", 0, 0777, &file_mode))
		return "file_mode must be permissions, at most 511";
	o->mode = (uint32_t)file_mode;
	o->size = f->size = (uint64_t)size;
	f->from = (uint64_t)from;
	return NULL;
}

void
filestream_open(struct session *s, const struct cloop_frame *frame, uint32_t channel)
{
	struct filestream *f = calloc(1, sizeof(*f));
	const char *why = f == NULL ? "out of memory" : read_fields(f, frame->payload);

	if (f != NULL && (f->md = EVP_MD_CTX_new()) == NULL)
		why = "out of memory";
	if (why == NULL && EVP_DigestInit_ex(f->md, EVP_sha256(), NULL) != 1)
		why = "no SHA-256 here";
	if (why != NULL) {
		if (f != NULL)
			EVP_MD_CTX_free(f->md);
		free(f);
		session_send_error(s, frame->id, "protocol", why);
		return;
	}
	f->s = s;
	f->fd = f->io.fd = -1;
	f->channel = channel;
	snprintf(f->frame_id, sizeof(f->frame_id), "%s", frame->id);
	loop_timer_init(&f->end_timer, end_due, f);
	loop_timer_init(&f->zeros_timer, digest_zeros, f);
	f->next = s->files;
	s->files = f;
	if (workchan_file(s->p.work, &f->req, &f->ipc_id) < 0)
		end_soon(f, STREAM_RESET_GONE, "busy: the workload daemon of this device is restarting; try again");
}

void
filestream_answer(struct session *s, uint32_t ipc_id, const struct file_answer *a, int *fd)
{
	struct filestream *f = s->files;

	while (f != NULL && (f->answered || f->ipc_id != ipc_id))
		f = f->next;
	if (f == NULL || f->why[0] != '\0')
		return;
	f->answered = true;
	if (a->ok == 0) {
		end(f, STREAM_RESET_REFUSED, a->error);
		return;
	}
	f->fd = *fd;
	*fd = -1;
	want(f, EPOLLIN);
}

void
filestream_work_down(struct session *s)
{
	for (struct filestream *f = s->files; f != NULL; f = f->next)
		if (!f->answered)
			end_soon(f, STREAM_RESET_GONE, "busy: the workload daemon of this device has ended; try again");
}

void
filestream_done(struct session *s)
{
	while (s->files != NULL) {
		struct filestream *f = s->files;

		mux_drop(&f->chan);
		if (f->fd >= 0)
			record(f, false, "the link was lost");
		drop(f);
	}
}
