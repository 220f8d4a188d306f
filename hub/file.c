/*
 * One file between a device and the command line that asked (edgehub cp), which handed over one end of a socket and speaks the records of
 * proto/ipc/file.h there. The stream's bytes become records and the other way round; nothing is kept beyond one record, and nothing is
 * opened or written here. It lives as long as both ends do: whatever ends, ends the other.
 */
#include "hub/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/filepump.h"
#include "common/log.h"
#include "hub/streams.h"
#include "proto/hub/filefill.h"

#define FILES_MAX	64u

struct hub_file {
	struct hub_stream st;		/* first */
	struct hub_file *next;
	struct hub *hub;
	uint64_t client;
	struct ipc_hdr asked;		/* the client's request; id 0 = answered */
	bool put, opened, all;		/* all: get, END of the stream has come; put, END of the command line */
	bool done, told;		/* file_done has come; the command line has its last record */
	uint8_t sha256[32];		/* of it */
	uint64_t at;			/* bytes that have passed */
	struct loop_io io;
	char device[DEVICE_ID_SIZE];
	struct filefill rec;		/* put: what the device has not got yet */
};

/* 1 sent, 0 not now, -1 nobody is there. */
static int
say(struct hub_file *f, enum file_rec_type type, uint32_t mode, uint64_t at, const void *data, size_t len)
{
	const struct file_rec rec = { .type = type, .mode = mode, .at = at };
	int r = filepump_try(f->io.fd, &rec, data, len);

	if (r == -EAGAIN)
		loop_io_set(f->hub->loop, &f->io, f->io.events | EPOLLOUT);
	return r == 0 ? 1 : r == -EAGAIN ? 0 : -1;
}

/* The last of it. The channel is closed already. again: it may work when the device is back. */
static void
drop(struct hub_file *f, bool again, const char *why)
{
	struct hub_file **p = &f->hub->files;
	struct client *c = client_find(f->hub, f->client);
	int fd = f->io.fd;

	if (!f->told)
		log_info("device %s: file: %s", f->device, why);
	if (c != NULL && f->asked.id != 0)
		(void)client_say(c, &f->asked, again ? -ENOTCONN : -EREMOTEIO, "%s", why);
	else if (!f->told)
		(void)say(f, FILE_FAIL, again, 0, why, strnlen(why, FILE_TEXT_MAX));
	while (*p != f)
		p = &(*p)->next;
	*p = f->next;
	f->hub->nfiles--;
	stream_end_off(&f->st);
	loop_io_del(f->hub->loop, &f->io);
	close(fd);
	free(f);
}

static void
over(struct hub_stream *st, const char *why)
{
	drop((struct hub_file *)st, false, why);
}

/* ---- from the device ---- */

static ssize_t
took(struct hub_file *f, int r, size_t len)
{
	if (r < 0)
		stream_end_soon(&f->st, "edgehub cp has ended", 0);
	if (r == 0)
		return 0;
	f->at += len;
	return (ssize_t)len;
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct hub_file *f = c->ctx;

	if (f->put || f->st.why[0] != '\0')
		return (ssize_t)len;
	len = len < FILE_DATA_MAX ? len : FILE_DATA_MAX;
	return took(f, say(f, FILE_DATA, 0, f->at, data, len), len);
}

static int
take_hole(struct mux_chan *c, uint64_t to)
{
	struct hub_file *f = c->ctx;

	if (f->put || f->st.why[0] != '\0')
		return 1;
	return took(f, say(f, FILE_HOLE, 0, to, NULL, 0), to - f->at) > 0;
}

/* What a reader of the file still waits for: that all has come, and that it is what the device read. */
static void
finish(struct hub_file *f)
{
	int r;

	if (!f->done || !f->all || f->told)
		return;
	r = say(f, f->put ? FILE_DONE : FILE_END, 0, f->at, f->sha256, f->put ? 0 : sizeof(f->sha256));
	f->told = r != 0;
}

static void
ended(struct mux_chan *c, const uint8_t *xxh3)
{
	struct hub_file *f = c->ctx;

	f->all = true;
	finish(f);
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct hub_file *f = c->ctx;

	if (code == 0 && f->done && !f->told)
		return;		/* the last record waits for room: on_socket() */
	drop(f, code == STREAM_RESET_GONE, f->st.refused[0] != '\0' ? f->st.refused : reason[0] != '\0' ? reason : "it ended too soon");
}

void
file_done(struct session *s, const struct json *payload)
{
	const char *sha = json_get_str(payload, "sha256");
	struct hub_file *f = s->hub->files;
	int64_t channel = 0;

	json_get_int(payload, "channel", 1, UINT32_MAX, &channel);
	while (f != NULL && (f->st.chan.mux != &s->mux || f->st.chan.id != (uint32_t)channel))
		f = f->next;
	if (f == NULL || f->done || !file_sha_parse(sha, f->sha256))
		return;
	f->done = true;
	finish(f);
}

/* ---- from the command line ---- */

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct hub_file *f = c->ctx;
	ssize_t n;

	if (!f->opened || f->st.why[0] != '\0')
		return 0;
	if (filefill(&f->rec, c, buf, max, &n) && !f->all)
		loop_io_set(f->hub->loop, &f->io, EPOLLIN);
	return n;
}

static void
take_record(struct hub_file *f, const struct file_rec *rec, size_t len)
{
	loop_io_set(f->hub->loop, &f->io, 0);	/* until the device has it */
	f->rec.off = f->rec.len = 0;
	if (rec->type == FILE_END) {
		f->all = true;
		loop_io_set(f->hub->loop, &f->io, EPOLLIN);	/* its end is one of ours */
		mux_end(&f->st.chan, NULL);	/* f may be gone */
		return;
	}
	if (rec->type == FILE_HOLE) {
		f->at = f->rec.hole = rec->at;
	} else {
		f->rec.off = sizeof(*rec);
		f->rec.len = sizeof(*rec) + len;
		f->at += len;
	}
	mux_want(&f->st.chan);
}

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct hub_file *f = io->ctx;
	struct file_rec rec;
	ssize_t n;

	if ((events & (EPOLLHUP | EPOLLERR)) != 0) {
		stream_end_soon(&f->st, "edgehub cp has ended", 0);
		return;
	}
	if ((events & EPOLLOUT) != 0) {
		loop_io_set(f->hub->loop, io, io->events & ~(uint32_t)EPOLLOUT);
		finish(f);
		if (f->told && f->st.chan.mux == NULL)
			drop(f, false, "");
		else
			mux_resume(&f->st.chan);
		return;
	}
	n = recv(io->fd, f->rec.buf, sizeof(f->rec.buf), MSG_DONTWAIT);
	if (n < 0 && errno == EAGAIN)
		return;
	/* A reader has nothing to say. */
	if (n <= 0 || !f->put || f->all || file_rec_check(f->rec.buf, (size_t)n, f->at, &rec) < 0 ||
	    (rec.type != FILE_DATA && rec.type != FILE_HOLE && rec.type != FILE_END)) {
		loop_io_set(f->hub->loop, io, 0);
		stream_end_soon(&f->st, "edgehub cp has ended", 0);
		return;
	}
	take_record(f, &rec, (size_t)n - sizeof(rec));
}

static const struct mux_kind kind = { .class = MUX_FILE, .take = take, .hole = take_hole, .ended = ended, .fill = fill, .closed = closed };

static void
opened(struct hub_stream *st, const struct json *payload)
{
	struct hub_file *f = (struct hub_file *)st;
	struct client *c = client_find(f->hub, f->client);
	struct admin_file_item item = { 0 };
	int64_t size = 0, mode = 0644;

	if (json_get_int(payload, f->put ? "offset" : "size", 0, INT64_MAX, &size) && f->put) {
		f->at = (uint64_t)size;
		mux_tx_start(&st->chan, f->at, 0);
	}
	json_get_int(payload, "file_mode", 0, 0777, &mode);
	item.size = (uint64_t)size;
	item.mode = (uint32_t)mode;
	f->opened = true;
	if (c != NULL && f->asked.id != 0)
		(void)ipc_answer(&c->chan, &f->asked, 0, &item, sizeof(item));
	f->asked.id = 0;
	loop_io_set(f->hub->loop, &f->io, EPOLLIN);
	if (!f->put)
		mux_end(&st->chan, NULL);
}

/* ---- the request ---- */

static void
send_open(struct session *s, struct json_w *w, const struct admin_file *req, const struct run_info *run, uid_t uid)
{
	char hex[FILE_SHA_HEX], who[32];

	json_w_str(w, "handle", run->handle);
	if (strlen(run->work_dir) < sizeof(run->work_dir) - 1)	/* longer: it is cut */
		json_w_str(w, "work_dir", run->work_dir[0] != '\0' ? run->work_dir : ".");
	json_w_str(w, "path", req->path);
	snprintf(who, sizeof(who), "uid %u at the hub", (unsigned)uid);
	json_w_str(w, "operator", who);
	json_w_str(w, "mode", req->put != 0 ? "put" : "get");
	if (req->put != 0) {
		file_sha_put(req->sha256, hex);
		json_w_int(w, "size", (int64_t)req->size);
		json_w_str(w, "sha256", hex);
		json_w_int(w, "file_mode", req->mode);
	} else {
		json_w_int(w, "offset", (int64_t)req->offset);
	}
	frame_end(w);
	session_send(s, w);
}

static int
begin(struct client *client, struct session *s, const struct ipc_msg *msg, const struct admin_file *req, const struct run_info *run, int *fd)
{
	struct hub *hub = client->hub;
	struct hub_file *f = hub->nfiles < FILES_MAX && fd_set_nonblock(*fd) == 0 ? calloc(1, sizeof(*f)) : NULL;
	struct json_w w;
	int r;

	if (f == NULL)
		return client_say(client, &msg->hdr, -ENOSPC, "%u files are under way, as many as this hub carries", hub->nfiles);
	f->hub = hub;
	f->client = client->serial;
	f->asked = msg->hdr;
	f->put = req->put != 0;
	f->st.opened = opened;
	f->io.fd = -1;
	stream_end_init(&f->st, hub, over);
	snprintf(f->device, sizeof(f->device), "%s", s->device);
	r = loop_io_add(hub->loop, &f->io, *fd, 0, on_socket, f);
	if (r == 0)
		r = streams_begin(s, &f->st, &kind, f, &w, "stream_open", "file");
	if (r < 0) {
		loop_io_del(hub->loop, &f->io);
		free(f);
		return client_say(client, &msg->hdr, r, r == -ENOTSUP ? "this device speaks no edgeward.1: it carries no files" :
		    "the device has too much to answer already");
	}
	*fd = -1;
	/* A part of a file is read from there on. */
	f->at = req->put != 0 ? 0 : req->offset;
	mux_rx_start(&f->st.chan, f->at);
	f->next = hub->files;
	hub->files = f;
	hub->nfiles++;
	send_open(s, &w, req, run, client->chan.peer.uid);
	return 0;
}

int
client_file(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct store_device d;
	struct admin_file req;
	struct run_info run;
	struct session *s;
	int fd, r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_file_ok(&req))
		return -EPROTO;
	if (!client_device(client, &msg->hdr, req.device, &d, &r))
		return r;
	r = store_run_find(client->hub->store, req.handle, &run);
	if (r == 0 && strcmp(run.device, d.id) != 0)
		r = -ENOENT;
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOTUNIQ ? "more than one run begins with %s" :
		    "no run %s on that device (edgehub runs)", req.handle);
	s = client_session(client, &msg->hdr, &d, &r);
	if (s == NULL)
		return r;
	fd = ipc_take_fd(msg, 0);
	r = begin(client, s, msg, &req, &run, &fd);
	if (fd >= 0)
		close(fd);
	return r;
}
