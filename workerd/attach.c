/*
 * Who calls: the loop; workchan.c and control.c with what connectd and operators say of a session they look at (they name their end of it, and
 * nobody else's is found); life.c when a workload ends. On error a session is closed; nothing here ends workerd.
 */
#include "workerd/attach.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/log.h"
#include "workerd/workerd.h"

#define CLOSE_MS	5000	/* from the order to hang up to giving it up; the holder needs one second */
#define LINGER_MS	30000	/* a viewer that does not take the end is left */
#define SOCKET_BUFFER	65536	/* what was typed must not wait behind more output than this, each way */

/* ---- viewers ---- */

int
attach_join(struct attach *a, struct control_client *client, bool drives, uint64_t from, struct attach_viewer **ret_viewer)
{
	struct attach_viewer *v = a->nviewers < ATTACH_VIEWERS_MAX ? calloc(1, sizeof(*v)) : NULL;
	int pair[2], size = SOCKET_BUFFER, r;

	if (v == NULL)
		return a->nviewers < ATTACH_VIEWERS_MAX ? -ENOMEM : -EMFILE;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
		free(v);
		return -errno;
	}
	for (unsigned i = 0; i < 2; i++)
		(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	v->a = a;
	v->client = client;
	v->drives = drives;
	v->cursor = from < a->tail ? a->tail : from > a->head ? a->head : from;
	if (++a->w->attaches.last_viewer == 0)
		a->w->attaches.last_viewer = 1;
	v->id = a->w->attaches.last_viewer;
	v->io.fd = -1;
	r = loop_io_add(a->w->loop, &v->io, pair[0], EPOLLIN, attach_on_viewer, v);
	if (r < 0) {
		close(pair[0]);
		close(pair[1]);
		free(v);
		return r;
	}
	v->next = a->viewers;
	a->viewers = v;
	a->nviewers++;
	if (drives)
		a->gone_since = 0;
	*ret_viewer = v;
	return pair[1];
}

static void
tell_end(const struct attach_viewer *v, const char *reason)
{
	const struct attach *a = v->a;
	struct ipc_chan *chan = v->client != NULL ? &v->client->chan : &a->w->work;
	struct attach_end end = { .viewer = v->id, .exit_code = a->exit_code, .total = a->head, .dropped = a->dropped };

	snprintf(end.reason, sizeof(end.reason), "%s", reason);
	if (ipc_chan_is_open(chan))
		(void)ipc_send(chan, v->client != NULL ? CTL_EV_ATTACH_END : WORK_EV_ATTACH_END, &end, sizeof(end));
}

void
attach_leave(struct attach_viewer *v, bool told, const char *reason)
{
	struct attach *a = v->a;
	struct attach_viewer **p = &a->viewers;
	int fd = v->io.fd;

	loop_io_del(a->w->loop, &v->io);
	close(fd);
	if (told)
		tell_end(v, reason);
	while (*p != v)
		p = &(*p)->next;
	*p = v->next;
	a->nviewers--;
	if (v->drives)
		a->gone_since = monotime_now().ns;
	free(v);
}

/* ---- the end ---- */

void
attach_free(struct attach *a)
{
	struct attach **p = &a->w->attaches.list;

	while (a->viewers != NULL)
		attach_leave(a->viewers, true, a->reason);
	for (unsigned i = 0; i < 2; i++)
		attach_drop_source(&a->src[i]);
	attach_drop_input(a);
	loop_timer_del(a->w->loop, &a->timer);
	loop_timer_del(a->w->loop, &a->quiet);
	ipc_chan_done(&a->chan);
	while (*p != a)
		p = &(*p)->next;
	*p = a->next;
	a->w->attaches.n--;
	explicit_bzero(a->in, sizeof(a->in));
	free(a->ring);
	free(a);
}

void
attach_close(struct attach *a, const char *reason)
{
	struct ipc_hdr hdr = { .type = INIT_EV_ATTACH_CLOSE };

	if (a->closing || a->state == ATTACH_ENDED)
		return;
	a->closing = true;
	snprintf(a->reason, sizeof(a->reason), "%s", reason);
	attach_drop_input(a);
	if (!ipc_chan_is_open(&a->chan) || ipc_send_fds(&a->chan, &hdr, NULL, 0, NULL, 0) < 0)
		ipc_chan_done(&a->chan);	/* that, too, is an order */
	attach_mind(a);
}

static void
settle(struct attach *a, int32_t exit_code, const char *reason)
{
	a->state = ATTACH_ENDED;
	a->exit_code = exit_code;
	if (a->reason[0] == '\0')
		snprintf(a->reason, sizeof(a->reason), "%s", reason);
	eventlog_add(&a->w->events, "attach-end", a->handle, "%s: %s, exit code %d, %llu bytes shown%s", a->who, a->reason, (int)exit_code,
	    (unsigned long long)a->head, a->dropped > 0 ? ", input was dropped" : "");
	attach_drop_input(a);
	attach_mind(a);
}

void
attach_over(struct attach *a, int32_t exit_code, const char *reason)
{
	if (a->state == ATTACH_ENDED)
		return;
	attach_drain(a);	/* what it still wrote is counted in what settle() tells */
	settle(a, exit_code, reason);
	attach_pump(a);
}

static struct attach *
session_of(const struct workload *wl)
{
	struct attach *a = wl->w->attaches.list;

	while (a != NULL && a->wl != wl)
		a = a->next;
	return a;
}

void
attach_workload_ended(struct workload *wl)
{
	struct attach *a;

	while ((a = session_of(wl)) != NULL) {
		if (a->state == ATTACH_OPENING) {
			attach_fail(a, WORK_REFUSED_UNKNOWN_HANDLE, "the workload has ended");
			continue;
		}
		if (a->state == ATTACH_OPEN)
			settle(a, -1, "the workload has ended");
		/* While its values are still known: what cannot be judged later is judged now, as far as there is room. */
		attach_drain(a);
		for (unsigned i = 0; i < 2; i++)
			if (a->src[i].raw != NULL)
				attach_drop_source(&a->src[i]);
		a->wl = NULL;
		attach_pump(a);
	}
}

void
attach_work_down(struct workerd *w)
{
	for (struct attach *a = w->attaches.list, *next; a != NULL; a = next) {
		next = a->next;
		if (a->local)
			continue;
		a->asker_id = 0;
		/* Their sockets are closed with connectd; a record about one would go to the next connectd. */
		while (a->viewers != NULL) {
			attach_last_words(a->viewers);
			attach_leave(a->viewers, false, "");
		}
		if (a->state == ATTACH_ENDED)
			attach_free(a);
		else if (a->state == ATTACH_OPEN && (a->flags & ATTACH_KEEP) == 0)
			attach_close(a, "the link to the hub has ended");
		else if (a->state == ATTACH_OPEN)
			attach_mind(a);
	}
}

void
attach_client_gone(struct workerd *w, const struct control_client *client)
{
	for (struct attach *a = w->attaches.list, *next; a != NULL; a = next) {
		next = a->next;
		if (a->asker == client) {
			a->asker = NULL;
			a->asker_id = 0;
		}
		for (struct attach_viewer *v = a->viewers, *after; v != NULL; v = after) {
			bool drove = v->drives;

			after = v->next;
			if (v->client != client)
				continue;
			attach_leave(v, false, "");
			if (drove && a->state == ATTACH_OPEN)
				attach_close(a, "the operator has left");
		}
		if (a->state == ATTACH_ENDED && a->viewers == NULL)
			attach_free(a);
	}
}

void
attach_done(struct workerd *w)
{
	const char *why = w->reloading ? "policy or program was reloaded; attach again" : "the workload daemon of this device was stopped";

	while (w->attaches.list != NULL) {
		if (w->attaches.list->state == ATTACH_OPEN)
			settle(w->attaches.list, -1, why);
		attach_free(w->attaches.list);
	}
}

/* ---- time ---- */

/* What the operator reads; the command was hung up, and its exit code alone would not say why. */
static void
close_idle(struct attach *a)
{
	char idle[32], text[sizeof(a->reason)];

	policy_value(&a->w->policy, POLICY_ATTACH_IDLE, idle, sizeof(idle));
	snprintf(text, sizeof(text), "the session was idle for %.10s and was ended by the device; [attach] idle", idle);
	attach_close(a, text);
}

static void
timer_over(struct loop_timer *timer)
{
	struct attach *a = timer->ctx;
	const struct policy *p = &a->w->policy;
	monotime_t now = monotime_now();

	if (a->state == ATTACH_OPENING) {
		attach_fail(a, WORK_REFUSED_START_FAILED, "the workload's own process does not answer");
	} else if (a->state == ATTACH_ENDED) {
		attach_free(a);
	} else if (a->closing) {
		attach_over(a, -1, "its end was not seen");
	} else if (a->gone_since != 0 && monotime_diff_ms(now, (monotime_t){ a->gone_since }) >= p->attach_keep) {
		attach_close(a, "nobody came back to it");
	} else if (p->attach_idle != 0 && monotime_diff_ms(now, a->active) >= p->attach_idle) {
		close_idle(a);
	} else {
		attach_mind(a);
	}
}

void
attach_mind(struct attach *a)
{
	const struct policy *p = &a->w->policy;
	monotime_t when = MONOTIME_NEVER, gone;

	a->timer.cb = timer_over;
	a->timer.ctx = a;
	if (a->state == ATTACH_ENDED)
		when = monotime_add_ms(monotime_now(), LINGER_MS);
	else if (a->closing)
		when = monotime_add_ms(monotime_now(), CLOSE_MS);
	else if (p->attach_idle != 0)
		when = monotime_add_ms(a->active, p->attach_idle);
	gone = a->gone_since != 0 && a->state == ATTACH_OPEN && !a->closing ? monotime_add_ms((monotime_t){ a->gone_since }, p->attach_keep) : when;
	loop_timer_set(a->w->loop, &a->timer, monotime_before(gone, when) ? gone : when);
}

/* ---- what operators say ---- */

static struct attach_viewer *
viewer_of(struct workerd *w, const struct ipc_chan *chan, uint32_t id)
{
	for (struct attach *a = w->attaches.list; a != NULL; a = a->next)
		for (struct attach_viewer *v = a->viewers; v != NULL; v = v->next)
			if (v->id == id && (v->client != NULL ? &v->client->chan : &w->work) == chan)
				return v;
	return NULL;
}

int
attach_on_size(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct attach_viewer *v;
	struct attach_size req;
	struct winsize size;

	memcpy(&req, msg->data, sizeof(req));
	v = viewer_of(ctx, chan, req.viewer);
	size = (struct winsize){ .ws_row = req.rows, .ws_col = req.cols };
	if (v != NULL && v->drives && (v->a->flags & ATTACH_TTY) != 0 && v->a->src[0].io.fd >= 0 && req.rows > 0 && req.cols > 0 &&
	    ioctl(v->a->src[0].io.fd, TIOCSWINSZ, &size) < 0)
		log_debug("size of a terminal: %s", strerror(errno));
	return 0;
}

/* One that only looks on leaves; the one who drives ends it. */
int
attach_on_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct attach_viewer *v;
	struct attach_ref ref;

	memcpy(&ref, msg->data, sizeof(ref));
	v = viewer_of(ctx, chan, ref.viewer);
	if (v == NULL)
		return 0;
	if (v->drives)
		attach_close(v->a, "closed by the operator");
	else
		attach_leave(v, true, "left");
	return 0;
}
