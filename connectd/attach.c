/*
 * Who calls: streams.c and frames.c for the hub, session.c for workerd's word, the mux for bytes. What is trusted: nothing of the frames; the
 * policy, the limits and whose session it is are workerd's to judge. Frames about a session that is not there are dropped without a word, as
 * the reference says. Every frame goes out by the session's one way of sending, with the session's version.
 *
 * Order, as the hub sees it: the answer, bytes, END (on a stream), attach_close with the exit code.
 */
#include "connectd/attach.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "connectd/counts.h"
#include "connectd/streams.h"
#include "proto/hub/attach.h"

#define FIRST_VERSION	7	/* of cloop with attach frames */
#define END_MS		5000	/* from the end of the bytes to the word about it */
#define FAREWELL_MS	30000	/* for the hub to end its direction, too */

static struct attach *
find(struct session *s, const struct cloop_frame *f)
{
	const char *id = json_get_str(f->payload, "session_id");
	struct attach *a = id != NULL ? s->attaches : NULL;

	while (a != NULL && (strcmp(a->session, id) != 0 || (f->handle[0] != '\0' && strcmp(a->handle, f->handle) != 0)))
		a = a->next;
	return a;
}

struct mux_count *
attach_count(const struct attach *a)
{
	return a->stream || a->s->p.counts == NULL ? NULL : &a->s->p.counts->streams[MUX_ATTACH];
}

/* Out of the list; the channel is the caller's. workerd sees its socket end. */
static void
drop(struct attach *a)
{
	struct attach **p = &a->s->attaches;
	struct mux_count *count = attach_count(a);
	int fd = a->io.fd;

	if (count != NULL) {
		count->open--;
		count->cut += !a->said;
	}
	loop_timer_del(a->s->p.loop, &a->timer);
	loop_io_del(a->s->p.loop, &a->io);
	if (fd >= 0)
		close(fd);
	while (*p != a)
		p = &(*p)->next;
	*p = a->next;
	a->s->nattaches--;
	if (a->in != NULL)
		explicit_bzero(a->in, a->in_len);
	free(a->in);
	free(a);
}

static void
send_close(struct attach *a)
{
	struct json_w w;

	session_begin_frame(a->s, &w, "attach_close", NULL, a->handle);
	json_w_str(&w, "session_id", a->session);
	json_w_str(&w, "reason", a->end.reason);
	json_w_int(&w, "exit_code", a->end.exit_code);
	if (a->stream)		/* two may look at one session */
		json_w_int(&w, "channel", a->chan.id);
	session_send(a->s, &w);
}

static void
order_close(struct attach *a)
{
	struct attach_ref ref = { .viewer = a->viewer };

	if (a->viewer != 0)
		(void)workchan_attach_close(a->s->p.work, &ref);
}

/* ---- the end ---- */

void
attach_finish(struct attach *a)
{
	if (a->io.fd >= 0) {
		int fd = a->io.fd;

		loop_io_del(a->s->p.loop, &a->io);
		close(fd);
	}
	loop_timer_set_ms(a->s->p.loop, &a->timer, a->told ? 0 : END_MS);
}

static void
timer_due(struct loop_timer *timer)
{
	struct attach *a = timer->ctx;

	if (!a->told) {
		a->told = true;
		a->end.exit_code = -1;
		snprintf(a->end.reason, sizeof(a->end.reason), "%s", "the workload daemon of this device was restarted; attach again");
	}
	if (!a->said && a->s->state == SESSION_UP)
		send_close(a);
	if (a->stream && !a->said) {
		a->said = true;
		loop_timer_set_ms(a->s->p.loop, &a->timer, FAREWELL_MS);
		mux_end(&a->chan, NULL);	/* may be the last of both: closed() */
		return;
	}
	if (a->stream)
		mux_reset(&a->chan, STREAM_RESET_GONE, "the hub did not end its direction");
	drop(a);
}

void
attach_watch(struct attach *a, uint32_t more)
{
	a->want |= more;
	if (a->io.fd >= 0 && a->want != 0)
		(void)loop_io_set(a->s->p.loop, &a->io, a->want | EPOLLONESHOT);
}

/* ---- streams ---- */

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct attach *a = c->ctx;
	ssize_t n;

	if (!a->opened)
		return 0;
	n = a->io.fd >= 0 ? write(a->io.fd, data, len) : (ssize_t)len;
	if (n < 0 && errno != EAGAIN)
		return (ssize_t)len;	/* its end is on the way */
	if (n < (ssize_t)len)
		attach_watch(a, EPOLLOUT);
	return n < 0 ? 0 : n;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct attach *a = c->ctx;
	ssize_t n;

	if (a->io.fd < 0 || a->drained)
		return 0;
	n = read(a->io.fd, buf, max);
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		a->eof = true;
		attach_finish(a);
	} else if (n < (ssize_t)max) {
		/* That is all there was: another read would be a system call for nothing. */
		a->drained = true;
		attach_watch(a, EPOLLIN);
	}
	return n > 0 ? n : 0;
}

/* The end of what is typed. */
static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	struct attach *a = c->ctx;

	a->input_over = true;
	if (a->io.fd >= 0)
		(void)shutdown(a->io.fd, SHUT_WR);
}

/* By the hub's RESET, or both ends. A session whose stream was cut goes on without: it may be taken up again. */
static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct attach *a = c->ctx;

	drop(a);
}

static const struct mux_kind kind = { .class = MUX_ATTACH, .take = take, .ended = ended, .fill = fill, .closed = closed };

/* ---- the socket ---- */

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct attach *a = io->ctx;
	bool readable = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0, room = (events & EPOLLOUT) != 0;

	io->events = 0;		/* it fired, so the kernel has disarmed it */
	a->want &= ~((readable ? EPOLLIN : 0u) | (room ? EPOLLOUT : 0u));
	a->drained = a->drained && !readable;
	attach_watch(a, 0);
	if (a->stream && readable)
		mux_want(&a->chan);
	if (a->stream && room)
		mux_resume(&a->chan);
	if (!a->stream && room)
		attachcloop_flush(a);
	if (!a->stream && readable)
		attachcloop_pump(a);
}

void
attach_writable(struct session *s)
{
	for (struct attach *a = s->attaches, *next; a != NULL; a = next) {
		next = a->next;
		if (!a->stream && (a->want & EPOLLIN) == 0)
			attachcloop_pump(a);
	}
}

/* ---- opening ---- */

/* A description workerd and workinit read: sealed. */
static int
ask(struct attach *a, const struct attach_open *o, const uint8_t *cmd, size_t len)
{
	_cleanup_close_ int fd = (o->flags & (ATTACH_RESUME | ATTACH_WATCH)) != 0 ? -1 : fd_sealed_memfd("attach", cmd, len);

	if (fd < 0 && (o->flags & (ATTACH_RESUME | ATTACH_WATCH)) == 0)
		return fd;
	return workchan_attach(a->s->p.work, o, fd, &a->ipc_id);
}

static void
open_it(struct session *s, const struct cloop_frame *f, bool stream, uint32_t channel)
{
	uint8_t cmd[ATTACH_COMMAND_MAX];
	struct attach *a = s->nattaches < ATTACHES_MAX ? calloc(1, sizeof(*a)) : NULL;
	const char *why = a == NULL ? "too many sessions are open" : NULL;
	struct attach_open open;
	size_t len;

	if (why == NULL)
		(void)attach_decode(f->payload, f->handle, stream, &open, cmd, &len, &why);
	for (const struct attach *b = s->attaches; b != NULL && why == NULL; b = b->next)
		if (!stream && strcmp(b->session, open.session) == 0)
			why = "a session of that id is open";
	if (why == NULL && stream && mux_open(&s->mux, &a->chan, channel, &kind, a, 0, 0, 0, 0) < 0)
		why = "too many streams are open";
	if (why == NULL) {
		a->s = s;
		a->stream = stream;
		a->io.fd = -1;
		if (ask(a, &open, cmd, len) < 0) {
			mux_drop(&a->chan);
			why = "the workload daemon of this device is restarting; try again";
		}
	}
	explicit_bzero(cmd, sizeof(cmd));
	if (why != NULL) {
		free(a);
		session_send_error(s, f->id, "protocol", why);
		return;
	}
	if (attach_count(a) != NULL) {
		attach_count(a)->open++;
		attach_count(a)->opened++;
	}
	snprintf(a->id, sizeof(a->id), "%s", f->id);
	memcpy(a->session, open.session, sizeof(a->session));
	memcpy(a->handle, open.handle, sizeof(a->handle));
	loop_timer_init(&a->timer, timer_due, a);
	a->next = s->attaches;
	s->attaches = a;
	s->nattaches++;
}

void
attach_stream(struct session *s, const struct cloop_frame *f, uint32_t channel)
{
	open_it(s, f, true, channel);
}

void
attach_open_frame(struct session *s, const struct cloop_frame *f)
{
	if (s->p.edgeward1)
		session_send_error(s, f->id, "protocol", "in this dialect attach is a stream: stream_open with kind attach");
	else if (s->version < FIRST_VERSION)
		session_send_error(s, f->id, "protocol", "attach frames are not of this session's version");
	else
		open_it(s, f, false, 0);
}

static void
refuse(struct attach *a, const struct attach_answer *ans)
{
	const char *code = ans->refusal == WORK_REFUSED_UNKNOWN_HANDLE ? "unknown_handle" : !a->stream ? "protocol" :
	    ans->refusal == WORK_REFUSED_POLICY ? "policy" : ans->refusal == WORK_REFUSED_BUSY ? "busy" : "protocol";

	session_send_error(a->s, a->id, code, ans->error);
	mux_reset(&a->chan, STREAM_RESET_REFUSED, "refused");
	drop(a);
}

static void
send_opened(struct attach *a, const struct attach_answer *ans)
{
	struct json_w w;

	if (a->stream)
		session_begin_frame(a->s, &w, "stream_opened", a->id, NULL);
	else
		session_begin_frame(a->s, &w, "attach_opened", a->id, a->handle);
	if (a->stream)
		json_w_int(&w, "channel", a->chan.id);
	json_w_str(&w, "session_id", ans->session);
	json_w_bool(&w, "tty", (ans->flags & ATTACH_TTY) != 0);
	if (a->stream) {
		json_w_bool(&w, "stdin", (ans->flags & ATTACH_INPUT) != 0);
		json_w_int(&w, "from_offset", (int64_t)ans->from);
		json_w_int(&w, "input_offset", (int64_t)ans->taken);
	}
	session_send(a->s, &w);
}

void
attach_answer_in(struct session *s, uint32_t ipc_id, const struct attach_answer *ans, int *fd)
{
	struct attach *a = s->attaches;

	while (a != NULL && (a->viewer != 0 || a->ipc_id != ipc_id))
		a = a->next;
	if (a == NULL || s->state != SESSION_UP)
		return;
	if (ans->refusal != WORK_OK) {
		refuse(a, ans);
		return;
	}
	a->viewer = ans->viewer;
	if (fd_set_nonblock(*fd) < 0 || loop_io_add(s->p.loop, &a->io, *fd, EPOLLONESHOT, on_socket, a) < 0) {
		order_close(a);
		mux_reset(&a->chan, STREAM_RESET_INTERNAL, "no room for its descriptor");
		session_send_error(s, a->id, "protocol", "no room for its descriptor");
		drop(a);
		return;
	}
	*fd = -1;
	send_opened(a, ans);
	a->opened = true;
	if (a->stream) {
		mux_tx_start(&a->chan, ans->from, 0);
		if (ans->taken > 0)	/* one that is taken up again; else early bytes are kept */
			mux_rx_start(&a->chan, ans->taken);
		if (a->input_over)
			(void)shutdown(a->io.fd, SHUT_WR);
		mux_resume(&a->chan);
	}
	attach_watch(a, EPOLLIN);
}

void
attach_end_in(struct session *s, const struct attach_end *e)
{
	struct attach *a = s->attaches;

	while (a != NULL && (a->viewer != e->viewer || a->viewer == 0))
		a = a->next;
	if (a == NULL)
		return;
	a->end = *e;
	a->told = true;
	if (a->eof)
		loop_timer_set_ms(s->p.loop, &a->timer, 0);
}

/* ---- frames of one that is open ---- */

void
attach_data_frame(struct session *s, const struct cloop_frame *f)
{
	uint8_t data[ATTACH_DATA_MAX + 3];
	struct attach *a = s->p.edgeward1 ? NULL : find(s, f);
	size_t len;

	if (a == NULL || !a->opened || a->io.fd < 0)
		return;
	if (attach_decode_data(f->payload, data, &len) < 0) {
		session_send_error(s, f->id, "protocol", "data must be at most 32768 bytes in base64");
		return;
	}
	if (len > 0 && !attachcloop_input(a, data, len)) {
		log_warn("attach to %s: more was sent to it than its program takes; the session is ended", a->handle);
		order_close(a);
	}
	explicit_bzero(data, sizeof(data));
}

void
attach_resize_frame(struct session *s, const struct cloop_frame *f)
{
	const struct attach *a = find(s, f);
	int64_t rows = 0, cols = 0;
	struct attach_size size;

	if (a == NULL || !json_get_int(f->payload, "rows", 1, UINT16_MAX, &rows) || !json_get_int(f->payload, "cols", 1, UINT16_MAX, &cols))
		return;
	size = (struct attach_size){ .viewer = a->viewer, .rows = (uint16_t)rows, .cols = (uint16_t)cols };
	if (a->viewer != 0)
		(void)workchan_attach_size(s->p.work, &size);
}

void
attach_close_frame(struct session *s, const struct cloop_frame *f)
{
	struct attach *a = find(s, f);

	if (a != NULL)
		order_close(a);
}

/* ---- ends of what is around ---- */

void
attach_work_down(struct session *s)
{
	static const struct attach_answer gone = { .refusal = WORK_REFUSED_START_FAILED,
		.error = "the workload daemon of this device has ended; try again" };

	for (struct attach *a = s->attaches, *next; a != NULL; a = next) {
		next = a->next;
		if (a->viewer == 0 && s->state == SESSION_UP)
			refuse(a, &gone);	/* the others see their socket end */
	}
}

void
attach_done(struct session *s)
{
	while (s->attaches != NULL) {
		struct attach *a = s->attaches;

		if (!a->stream)
			order_close(a);
		mux_drop(&a->chan);
		drop(a);
	}
}
