/*
 * An attach session between a CLI and a device (edgeward.md section 3). The CLI hands over a stream socket; bytes go between it and a
 * stream of the device's session, counted both ways. When the link is lost the CLI is told and waits; when the device is back the session
 * is taken up again where it was: output from the byte after the last one the CLI has, input from the byte the device asks for, which
 * is still here since no more than a window is ever under way.
 *
 * It ends with the program (the device's attach_close and END), with the CLI, or when the device does not come back in time.
 */
#include "hub/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "hub/adminattach.h"
#include "hub/frames.h"
#include "hub/streams.h"
#include "hub/token.h"

#define SESSIONS_MAX	128u
#define RETRY_MS	200		/* the next look for the device */
#define AWAY_MS		(15LL * 60 * 1000)
#define WORD_MS		5000		/* from the end of the bytes to the word about it */

struct hub_attach {
	struct hub_stream st;		/* first */
	struct hub_attach *next;
	struct hub *hub;
	struct session *s;		/* NULL: the device is away */
	uint64_t client;
	struct ipc_hdr asked;		/* the client's request; id 0 = answered */
	char device[DEVICE_ID_SIZE], handle[72], session[ATTACH_ID_SIZE];
	uint32_t flags;
	bool opened, resuming, ready;	/* ready: the stream is */
	uint16_t rows, cols;
	struct attach_command command;
	uint8_t *bytes;			/* of the command, until it is open */
	struct loop_io io;		/* the CLI's socket; fd -1 = gone */
	uint32_t want;			/* as in connectd: it is watched once at a time */
	uint64_t out;			/* bytes of output the CLI has */
	uint64_t in_end;		/* bytes of input taken from it */
	uint8_t *in;			/* the last STREAM_WINDOW of them, byte x at x % STREAM_WINDOW */
	bool in_over;
	bool drained;			/* it has nothing that was not read, and is watched for more */
	bool told;			/* the device has said how it ended */
	struct admin_attach_end end;
	monotime_t since;		/* away */
	struct loop_timer timer;
};

static const struct mux_kind kind;

static void
tell(const struct hub_attach *a, uint16_t type, const void *data, size_t len)
{
	struct client *c = client_find(a->hub, a->client);

	if (c != NULL)
		(void)ipc_send(&c->chan, type, data, len);	/* a broken one says so */
}

static void
tell_state(const struct hub_attach *a, bool away, uint64_t lost)
{
	const struct admin_attach_state st = { .away = away, .lost = lost };

	tell(a, ADMIN_EV_ATTACH_STATE, &st, sizeof(st));
}

static void
drop_socket(struct hub_attach *a)
{
	int fd = a->io.fd;

	if (fd < 0)
		return;
	loop_io_del(a->hub->loop, &a->io);
	close(fd);
}

/* The last of it. The channel is closed already. */
static void
drop(struct hub_attach *a, const char *why)
{
	struct hub_attach **p = &a->hub->attaches;
	struct client *c = client_find(a->hub, a->client);

	if (a->end.reason[0] == '\0')
		snprintf(a->end.reason, sizeof(a->end.reason), "%s", why);
	drop_socket(a);
	if (c != NULL && a->asked.id != 0)
		(void)client_say(c, &a->asked, -EREMOTEIO, "%s", a->end.reason);
	else
		tell(a, ADMIN_EV_ATTACH_END, &a->end, sizeof(a->end));
	if (a->opened)
		log_info("device %s: attach to %s: %s, exit code %d", a->device, a->handle, a->end.reason, (int)a->end.exit_code);
	/* One that was refused may be asked for again: the run may not run yet. */
	if ((a->flags & ADMIN_ATTACH_OWN) != 0 && (a->opened || c == NULL)) {
		struct session *s = session_find(a->hub, a->device);
		struct run *run = run_get(a->hub, a->handle);

		if (run != NULL && a->end.exit_code >= 0) {
			run->shell_over = true;
			run->shell_code = a->end.exit_code;
		}
		if (run != NULL)
			run_put(run);
		if (s == NULL || session_signal_run(s, a->handle, "kill", 0, 0) < 0)
			log_warn("device %s: run %s was for a shell that has ended and goes on: the device is away", a->device, a->handle);
	}
	loop_timer_del(a->hub->loop, &a->timer);
	while (*p != a)
		p = &(*p)->next;
	*p = a->next;
	a->hub->nattaches--;
	explicit_bzero(a->in, STREAM_WINDOW);
	free(a->in);
	free(a->bytes);
	free(a);
}

static void
send_frame(struct hub_attach *a, const char *type, bool size)
{
	struct json_w w;
	char buf[1024];

	if (a->s == NULL)
		return;
	json_w_init(&w, buf, sizeof(buf));
	frame_begin(&w, a->s->version, type, NULL, a->handle);
	json_w_str(&w, "session_id", a->session);
	if (size) {
		json_w_int(&w, "rows", a->rows);
		json_w_int(&w, "cols", a->cols);
	}
	frame_end(&w);
	session_send(a->s, &w);
}

/* ---- asking the device ---- */

static int
ask(struct hub_attach *a, struct session *s)
{
	struct client *c = client_find(a->hub, a->client);
	struct json_w w;
	char text[ATTACH_TERM_SIZE + 8];
	int r = streams_begin(s, &a->st, &kind, a, &w, "stream_open", "attach");

	if (r < 0)
		return r;
	a->s = s;
	a->ready = false;
	json_w_str(&w, "handle", a->handle);
	json_w_str(&w, "session_id", a->session);
	json_w_bool(&w, "tty", (a->flags & ATTACH_TTY) != 0);
	json_w_bool(&w, "stdin", (a->flags & ATTACH_INPUT) != 0);
	snprintf(text, sizeof(text), "uid %u at the hub", c != NULL ? (unsigned)c->chan.peer.uid : 0);
	json_w_str(&w, "operator", text);
	if ((a->flags & ATTACH_WATCH) != 0)
		json_w_bool(&w, "watch", true);
	else if (a->opened)
		json_w_bool(&w, "resume", true);
	if ((a->flags & ATTACH_WATCH) != 0 || a->opened)
		json_w_int(&w, "from_offset", (int64_t)a->out);
	if (!a->opened && (a->flags & ATTACH_WATCH) == 0) {
		json_w_int(&w, "rows", a->rows);
		json_w_int(&w, "cols", a->cols);
		json_w_arr(&w, "command");
		for (uint32_t i = 0; i < a->command.argc; i++)
			json_w_strn(&w, NULL, a->command.argv[i].s, a->command.argv[i].len);
		json_w_end_arr(&w);
		json_w_arr(&w, "env");
		snprintf(text, sizeof(text), "TERM=%s", a->command.term);
		json_w_str(&w, NULL, text);
		json_w_end_arr(&w);
	}
	frame_end(&w);
	session_send(s, &w);
	return 0;
}

static void
watch(struct hub_attach *a, uint32_t more)
{
	a->want |= more;
	if (a->io.fd >= 0 && a->want != 0)
		(void)loop_io_set(a->hub->loop, &a->io, a->want | EPOLLONESHOT);
}

static void
opened(struct hub_stream *st, const struct json *payload)
{
	struct hub_attach *a = (struct hub_attach *)st;
	struct admin_attached ans = { 0 };
	struct client *c = client_find(a->hub, a->client);
	int64_t from = 0, in = 0;
	bool tty = false, input = false, first = !a->opened;

	json_get_int(payload, "from_offset", 0, INT64_MAX, &from);
	json_get_int(payload, "input_offset", 0, INT64_MAX, &in);
	json_get_bool(payload, "tty", &tty);
	json_get_bool(payload, "stdin", &input);
	a->flags = (a->flags & (ATTACH_WATCH | ADMIN_ATTACH_OWN)) | (tty ? ATTACH_TTY : 0) | (input ? ATTACH_INPUT : 0);
	if ((uint64_t)in > a->in_end || (uint64_t)in + STREAM_WINDOW < a->in_end) {
		mux_reset(&a->st.chan, STREAM_RESET_PROTOCOL, "that input is not here any more");
		drop(a, "what was typed while the link was lost cannot be sent again");
		return;
	}
	a->opened = a->ready = true;
	mux_rx_start(&a->st.chan, (uint64_t)from);
	mux_tx_start(&a->st.chan, (uint64_t)in, 0);
	if (!first)
		tell_state(a, false, (uint64_t)from > a->out ? (uint64_t)from - a->out : 0);
	a->out = (uint64_t)from;
	memcpy(ans.session, a->session, sizeof(ans.session));
	ans.flags = a->flags;
	if (first && c != NULL && a->asked.id != 0)
		(void)ipc_answer(&c->chan, &a->asked, 0, &ans, sizeof(ans));
	a->asked.id = 0;
	if (!first && (a->flags & ATTACH_TTY) != 0)
		send_frame(a, "attach_resize", true);
	if ((a->flags & ATTACH_WATCH) == 0 && a->in_end > (uint64_t)in)
		mux_want(&a->st.chan);
	watch(a, EPOLLIN);
	if (first)
		log_info("device %s: attach to %s%s", a->device, a->handle, (a->flags & ATTACH_WATCH) != 0 ? ", looking on" : "");
}

/* ---- the end, and the time between two links ---- */

static void
timer_due(struct loop_timer *timer)
{
	struct hub_attach *a = timer->ctx;
	struct session *s;
	int r;

	if (a->s != NULL) {		/* no word came */
		mux_reset(&a->st.chan, STREAM_RESET_GONE, "the session has ended");
		drop(a, "the device does not say how it ended");
		return;
	}
	s = session_find(a->hub, a->device);
	if (s == NULL && monotime_diff_ms(monotime_now(), a->since) >= AWAY_MS) {
		drop(a, "the device did not come back");
		return;
	}
	r = s != NULL ? ask(a, s) : -EAGAIN;
	if (r == -ENOTSUP)
		drop(a, "the device came back without streams");
	else if (r < 0)
		loop_timer_set_ms(a->hub->loop, timer, RETRY_MS);
}

/* Everything the program wrote is with the CLI. */
static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	struct hub_attach *a = c->ctx;

	loop_timer_set_ms(a->hub->loop, &a->timer, WORD_MS);
	if (a->told)
		mux_end(c, NULL);
}

void
attach_closed_by_device(struct session *s, const struct frame *f)
{
	const char *reason = json_get_str(f->payload, "reason");
	struct hub_attach *a = s->hub->attaches;
	int64_t code = -1, channel = 0;

	json_get_int(f->payload, "exit_code", -1, 255, &code);
	json_get_int(f->payload, "channel", 1, UINT32_MAX, &channel);
	while (a != NULL && (a->s != s || !a->ready || a->st.chan.id != channel))
		a = a->next;
	if (a == NULL || a->told)
		return;
	a->told = true;
	a->end.exit_code = (int32_t)code;
	text_clean(a->end.reason, sizeof(a->end.reason), reason != NULL ? reason : "ended");
	if (a->st.chan.rx_told)
		mux_end(&a->st.chan, NULL);
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct hub_attach *a = c->ctx;
	bool lost = code == STREAM_RESET_GONE && a->s != NULL && a->s->gone;

	a->s = NULL;
	a->ready = false;
	if (!lost || !a->opened || a->told) {
		drop(a, a->st.refused[0] != '\0' ? a->st.refused : lost ? "the device went away" : reason);
		return;
	}
	a->since = monotime_now();
	tell_state(a, true, 0);
	loop_timer_set_ms(a->hub->loop, &a->timer, RETRY_MS);
}

/* ---- bytes ---- */

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct hub_attach *a = c->ctx;
	ssize_t n = a->io.fd >= 0 ? write(a->io.fd, data, len) : (ssize_t)len;

	if (n < 0 && errno != EAGAIN) {
		drop_socket(a);		/* the CLI is gone: its channel says the same */
		n = (ssize_t)len;
	}
	if (n < (ssize_t)len)
		watch(a, EPOLLOUT);
	a->out += n > 0 ? (uint64_t)n : 0;
	return n < 0 ? 0 : n;
}

/* Again what the device has not taken, then what the CLI sends. */
static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct hub_attach *a = c->ctx;
	size_t at = (size_t)(c->tx_next % STREAM_WINDOW), n;
	ssize_t got;

	if (!a->ready)
		return 0;
	n = STREAM_WINDOW - at < max ? STREAM_WINDOW - at : max;
	if (c->tx_next < a->in_end) {
		n = a->in_end - c->tx_next < n ? (size_t)(a->in_end - c->tx_next) : n;
		memcpy(buf, a->in + at, n);
		return (ssize_t)n;
	}
	if (a->drained)
		return 0;
	got = a->io.fd >= 0 && !a->in_over ? read(a->io.fd, a->in + at, n) : -1;
	/* Less than was asked for is all there was: another read would be a system call for nothing. */
	if (!a->in_over && got < (ssize_t)n && (got > 0 || (got < 0 && errno == EAGAIN))) {
		a->drained = true;
		watch(a, EPOLLIN);
	}
	if (got > 0) {
		memcpy(buf, a->in + at, (size_t)got);
		a->in_end += (uint64_t)got;
		return got;
	}
	if (got == 0 || a->in_over) {
		a->in_over = true;
		if ((a->flags & (ATTACH_TTY | ATTACH_WATCH)) == 0)
			mux_end(c, NULL);
	}
	return 0;
}

static const struct mux_kind kind = { .class = MUX_ATTACH, .take = take, .ended = ended, .fill = fill, .closed = closed };

static void
on_socket(struct loop_io *io, uint32_t events)
{
	struct hub_attach *a = io->ctx;
	bool readable = (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0, room = (events & EPOLLOUT) != 0;

	io->events = 0;		/* it fired, so the kernel has disarmed it */
	a->want &= ~((readable ? EPOLLIN : 0u) | (room ? EPOLLOUT : 0u));
	a->drained = a->drained && !readable;
	watch(a, 0);
	if (readable && a->ready)
		mux_want(&a->st.chan);
	if (room && a->ready)
		mux_resume(&a->st.chan);
}

/* ---- what the operator says ---- */

/* The session to look on at: the one there is. */
static const struct hub_attach *
to_watch(struct hub *hub, const char *handle, const char *session)
{
	const struct hub_attach *a = hub->attaches;

	while (a != NULL && (strcmp(a->handle, handle) != 0 || (a->flags & ATTACH_WATCH) != 0 || !a->opened ||
	    (session[0] != '\0' && strcmp(session, a->session) != 0)))
		a = a->next;
	return a;
}

static int
take_command(struct hub_attach *a, int fd)
{
	size_t len = 0;

	a->bytes = malloc(ATTACH_COMMAND_MAX);
	if (a->bytes == NULL)
		return -ENOMEM;
	if (fd_is_sealed_memfd(fd, ATTACH_COMMAND_MAX, &len) != 1 || pread(fd, a->bytes, len, 0) != (ssize_t)len)
		return -EINVAL;
	return attach_command_decode(&a->command, a->bytes, len);
}

/* In the list of runs: what its process does is nobody's interest. */
static void
name_shell(struct hub *hub, const char *handle)
{
	struct run *run = run_get(hub, handle);

	if (run == NULL)
		return;
	snprintf(run->info.command, sizeof(run->info.command), "shell");
	run_save(run);
	run_put(run);
}

static int
begin(struct client *client, struct session *s, const struct ipc_msg *msg, const struct admin_attach *req, const char *handle, int *fd,
    int command)
{
	struct hub *hub = client->hub;
	struct hub_attach *a = hub->nattaches < SESSIONS_MAX && fd_set_nonblock(*fd) == 0 ? calloc(1, sizeof(*a)) : NULL;
	char id[TOKEN_ID_SIZE];
	int r = 0;

	if (a != NULL)
		a->in = malloc(STREAM_WINDOW);
	if (a == NULL || a->in == NULL || token_random_id(id) < 0) {
		if (a != NULL)
			free(a->in);
		free(a);
		return client_say(client, &msg->hdr, -ENOSPC, "%u sessions are open, as many as this hub can", hub->nattaches);
	}
	a->hub = hub;
	a->client = client->serial;
	a->asked = msg->hdr;
	a->st.opened = opened;
	a->io.fd = -1;
	a->flags = req->flags;
	a->rows = req->rows;
	a->cols = req->cols;
	a->end.exit_code = -1;
	loop_timer_init(&a->timer, timer_due, a);
	snprintf(a->device, sizeof(a->device), "%s", s->device);
	snprintf(a->handle, sizeof(a->handle), "%s", handle);
	snprintf(a->session, sizeof(a->session), "%s", (req->flags & ATTACH_WATCH) != 0 ? req->session : id);
	if ((req->flags & ATTACH_WATCH) == 0)
		r = take_command(a, command);
	if (r == 0)
		r = ask(a, s);
	if (r == 0)
		r = loop_io_add(hub->loop, &a->io, *fd, EPOLLONESHOT, on_socket, a);
	if (r < 0) {
		mux_drop(&a->st.chan);
		free(a->in);
		free(a->bytes);
		free(a);
		return client_say(client, &msg->hdr, r, r == -ENOTSUP ? "this device speaks no edgeward.1: sessions need it" :
		    r == -EBADMSG ? "malformed command" : "the device has too much to answer already");
	}
	*fd = -1;
	if ((req->flags & ADMIN_ATTACH_OWN) != 0)
		name_shell(hub, handle);
	a->next = hub->attaches;
	hub->attaches = a;
	hub->nattaches++;
	return 0;
}

/* Why there is no session in this run, where only the hub can tell: the device knows nothing of a run that it refused. False: ask the device. */
static bool
no_run(const struct run_info *info, bool own, char *buf, size_t size)
{
	char text[2 * sizeof(info->error)];

	if (info->state != RUN_REFUSED && !(own && run_state_is_final(info->state)))
		return false;
	if (info->error[0] != '\0')
		snprintf(text, sizeof(text), "%s%s%s: %s", run_state_name(info->state), info->code[0] != '\0' ? " " : "", info->code, info->error);
	else
		snprintf(text, sizeof(text), "the run of the shell has ended (%s)", run_state_name(info->state));
	text_clean(buf, size, text);
	return true;
}

int
client_attach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub *hub = client->hub;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0), command = ipc_take_fd(msg, 1);
	const struct hub_attach *other;
	char why[sizeof(((struct admin_text *)0)->text)];
	struct run_info info;
	struct admin_attach req;
	struct session *s;
	bool own;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !admin_attach_ok(&req) || ((req.flags & ATTACH_WATCH) == 0) != (command >= 0))
		return -EPROTO;
	r = store_run_find(hub->store, req.handle, &info);
	if (r < 0)
		return client_say(client, &msg->hdr, r, r == -ENOTUNIQ ? "more than one run fits %s" : "no run %s", req.handle);
	own = (req.flags & ADMIN_ATTACH_OWN) != 0;
	if (no_run(&info, own, why, sizeof(why)))
		return client_say(client, &msg->hdr, -ECHILD, "%s", why);
	s = session_find(hub, info.device);
	if (s == NULL)
		return client_say(client, &msg->hdr, -ENOTCONN, "the device of this run is not connected");
	if (own && info.state == RUN_PENDING)
		return client_say(client, &msg->hdr, -EAGAIN, "the device does not say whether it starts the run of the shell");
	other = to_watch(hub, info.handle, req.session);
	if ((req.flags & ATTACH_WATCH) != 0 && other == NULL)
		return client_say(client, &msg->hdr, -ENOENT, "nobody has a session open in %s", info.handle);
	if ((req.flags & ATTACH_WATCH) != 0)
		memcpy(req.session, other->session, sizeof(req.session));
	return begin(client, s, msg, &req, info.handle, &fd, command);
}

static struct hub_attach *
of_client(struct hub *hub, uint64_t serial)
{
	struct hub_attach *a = hub->attaches;

	while (a != NULL && a->client != serial)
		a = a->next;
	return a;
}

int
client_attach_size(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub_attach *a = of_client(client->hub, client->serial);
	struct admin_attach_size size;

	memcpy(&size, msg->data, sizeof(size));
	if (a == NULL || size.rows == 0 || size.cols == 0)
		return 0;
	a->rows = size.rows;
	a->cols = size.cols;
	if (a->ready)
		send_frame(a, "attach_resize", true);
	return 0;
}

static void
leave(struct hub_attach *a)
{
	if ((a->flags & ATTACH_WATCH) == 0)
		send_frame(a, "attach_close", false);
	if (a->s != NULL)
		mux_reset(&a->st.chan, STREAM_RESET_GONE, "the operator has left");
	drop(a, "left");
}

int
client_attach_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct client *client = ctx;
	struct hub_attach *a = of_client(client->hub, client->serial);

	if (a != NULL)
		leave(a);
	return 0;
}

void
attach_client_gone(struct hub *hub, uint64_t serial)
{
	struct hub_attach *a;

	while ((a = of_client(hub, serial)) != NULL)
		leave(a);
}
