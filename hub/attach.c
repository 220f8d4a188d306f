/*
 * An attach session between a CLI and a device (edgeward.md section 3). The CLI hands over a stream socket; bytes go between it and a
 * stream of the device's session, counted both ways. When the link is lost the CLI is told and waits; when the device is back the session
 * is taken up again where it was: output from the byte after the last one the CLI has, input from the byte the device asks for, which
 * is still here since no more than a window is ever under way.
 *
 * It ends with the program (the device's attach_close and END), with the CLI, or when the device does not come back in time. Whoever it is
 * that ends it here, the device holds it until it has heard: from the first asking to the device's word the store knows of it, and what nobody
 * here has open any more is taken up once more to be closed (attach_session()).
 */
#include "hub/attach_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/log.h"
#include "hub/adminattach.h"
#include "hub/frames.h"
#include "hub/shell.h"
#include "hub/streams.h"

#define RETRY_MS	200		/* the next look for the device */
#define AWAY_MS		(15LL * 60 * 1000)
#define WORD_MS		5000		/* from the end of the bytes to the word about it */
#define LEFT_MS		30000		/* from the close to that word */
#define HEAD		((1LL << 53) - 1)	/* an offset that is beyond all output */
#define OWED_MAX	64u		/* sessions of one device that are closed at a time */

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

/* Its operator reads that it is over. */
static void
say_end(struct hub_attach *a, const char *why)
{
	struct client *c = client_find(a->hub, a->client);

	if (a->end.reason[0] == '\0')
		snprintf(a->end.reason, sizeof(a->end.reason), "%s", why);
	drop_socket(a);
	if (c != NULL && a->asked.id != 0)
		(void)client_say(c, &a->asked, -EREMOTEIO, "%s", a->end.reason);
	else
		tell(a, ADMIN_EV_ATTACH_END, &a->end, sizeof(a->end));
	/* One that was refused may be asked for again: the run may not run yet. */
	if ((a->flags & ADMIN_ATTACH_OWN) != 0 && (a->opened || c == NULL))
		shell_over(a->hub, a->handle, a->end.exit_code);
	a->flags &= ~ADMIN_ATTACH_OWN;
	a->client = 0;
}

/* The device has it no more, or never had. A device that is only busy may have it. */
static bool
is_settled(const struct hub_attach *a)
{
	const char *no = a->st.refused;

	return a->told || strncmp(no, "unknown_handle", 14) == 0 || strncmp(no, "policy", 6) == 0 || (!a->opened && no[0] != '\0');
}

/* The last of it. The channel is closed already. */
static void
drop(struct hub_attach *a, const char *why)
{
	struct hub_attach **p = &a->hub->attaches;

	say_end(a, why);
	if (a->opened)
		log_info("device %s: attach to %s: %s, exit code %d", a->device, a->handle, a->end.reason, (int)a->end.exit_code);
	if ((a->flags & ATTACH_WATCH) == 0 && is_settled(a))
		(void)store_attach_delete(a->hub->store, a->session);	/* else it is asked for once more, in vain */
	loop_timer_del(a->hub->loop, &a->timer);
	while (*p != a)
		p = &(*p)->next;
	*p = a->next;
	a->hub->nattaches--;
	if (a->in != NULL)
		explicit_bzero(a->in, STREAM_WINDOW);
	free(a->in);
	free(a->bytes);
	free(a);
}

void
attach_send(struct hub_attach *a, const char *type, bool size)
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

int
attach_ask(struct hub_attach *a, struct session *s)
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
	if (a->left)
		snprintf(text, sizeof(text), "the hub, to end it");
	else
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

/* For good: the device says when it has. */
static void
close_it(struct hub_attach *a)
{
	attach_send(a, "attach_close", false);
	loop_timer_set_ms(a->hub->loop, &a->timer, LEFT_MS);
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
	if (a->left) {
		a->ready = true;
		mux_rx_start(&a->st.chan, (uint64_t)from);
		mux_tx_start(&a->st.chan, (uint64_t)in, 0);
		close_it(a);
		return;
	}
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
		attach_send(a, "attach_resize", true);
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
	r = s != NULL ? attach_ask(a, s) : -EAGAIN;
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
	if (!lost || !a->opened || a->told || a->left) {
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

	if (!a->ready || a->left)
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

/* ---- the beginning ---- */

struct hub_attach *
attach_new(struct hub *hub, const char *device, const char *handle, const char *session)
{
	struct hub_attach *a = hub->nattaches < SESSIONS_MAX ? calloc(1, sizeof(*a)) : NULL;

	if (a == NULL)
		return NULL;
	a->hub = hub;
	a->st.opened = opened;
	a->io.fd = -1;
	a->end.exit_code = -1;
	loop_timer_init(&a->timer, timer_due, a);
	snprintf(a->device, sizeof(a->device), "%s", device);
	snprintf(a->handle, sizeof(a->handle), "%s", handle);
	snprintf(a->session, sizeof(a->session), "%s", session);
	return a;
}

int
attach_begin(struct hub_attach *a, struct session *s, int fd)
{
	int r = attach_ask(a, s);

	if (r == 0 && fd >= 0)
		r = loop_io_add(a->hub->loop, &a->io, fd, EPOLLONESHOT, on_socket, a);
	if (r < 0) {
		mux_drop(&a->st.chan);
		return r;
	}
	a->next = a->hub->attaches;
	a->hub->attaches = a;
	a->hub->nattaches++;
	return 0;
}

/* What the device does not hear now it hears in its next session. */
void
attach_leave(struct hub_attach *a, const char *why)
{
	if ((a->flags & ATTACH_WATCH) != 0 || !a->ready) {
		if (a->s != NULL)
			mux_reset(&a->st.chan, STREAM_RESET_GONE, "the operator has left");
		drop(a, why);
		return;
	}
	a->left = true;
	close_it(a);
	say_end(a, why);
	mux_resume(&a->st.chan);	/* nobody takes the output any more: the word stands behind it */
}

/* ---- what is owed ---- */

static bool
is_open(const struct hub *hub, const char *session)
{
	const struct hub_attach *a = hub->attaches;

	while (a != NULL && ((a->flags & ATTACH_WATCH) != 0 || strcmp(a->session, session) != 0))
		a = a->next;
	return a != NULL;
}

/* Takes it up with nobody here, to close it. What cannot be done now is done at the next heartbeat. */
static void
take_up(struct session *s, const struct store_attach *owed)
{
	struct hub_attach *a = attach_new(s->hub, s->device, owed->handle, owed->session);

	if (a == NULL)
		return;
	a->flags = owed->flags;
	a->opened = a->left = true;
	a->out = HEAD;
	if (attach_begin(a, s, -1) < 0)
		free(a);
}

void
attach_session(struct session *s)
{
	struct store_attach owed[OWED_MAX];
	unsigned n = 0;

	if (!s->edgeward || store_attaches(s->hub->store, s->device, owed, OWED_MAX, &n) < 0)
		return;
	for (unsigned i = 0; i < n && !s->gone; i++)
		if (!is_open(s->hub, owed[i].session))
			take_up(s, &owed[i]);
}
