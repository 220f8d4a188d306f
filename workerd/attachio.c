/*
 * The bytes of an attach session. From the terminal, or both pipes in turn, through the workload's redaction into a ring of the last bytes,
 * and from there to each viewer at his own pace. The one who drives is waited for: then the program waits, as before a terminal that
 * is slow. While he is away nothing waits, and the oldest bytes go. One who looks on and falls behind the ring is sent away. What he types goes to
 * the program as it takes it; what a viewer sends who may not is dropped and counted.
 *
 * Who calls: the loop. Out of memory is fatal where secrets are looked for: what cannot be judged must not be shown.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "workerd/attach.h"
#include "workerd/vault.h"
#include "workerd/workerd.h"

#define READ_A_TURN	(64u << 10)	/* bytes of one source before others get their turn */
#define READ_LAST	(1u << 20)
#define RAW_STEP	(64u << 10)
#define QUIET_MS	80		/* a beginning of a value is shown, if it is short and nothing follows for so long */

static void on_source(struct loop_io *io, uint32_t events);
static void on_input(struct loop_io *io, uint32_t events);

/* ---- the ring ---- */

static struct attach_viewer *
driver_of(struct attach *a)
{
	struct attach_viewer *v = a->viewers;

	while (v != NULL && !v->drives)
		v = v->next;
	return v;
}

static size_t
room(struct attach *a)
{
	const struct attach_viewer *v = driver_of(a);

	return v != NULL ? (size_t)(a->cap - (a->head - v->cursor)) : (size_t)a->cap;
}

static void
forget_oldest(struct attach *a)
{
	if (a->head - a->tail > a->cap)
		a->tail = a->head - a->cap;
	for (struct attach_viewer *v = a->viewers, *next; v != NULL; v = next) {
		next = v->next;
		if (v->cursor < a->tail)
			attach_leave(v, true, "too slow to look on");
	}
}

static void
put(struct attach *a, const uint8_t *data, size_t len)
{
	while (len > 0) {
		size_t at = (size_t)(a->head % a->cap), n = len < a->cap - at ? len : (size_t)a->cap - at;

		memcpy(a->ring + at, data, n);
		a->head += n;
		data += n;
		len -= n;
	}
	forget_oldest(a);
}

/* ---- from the program ---- */

void
attach_drop_source(struct attach_source *src)
{
	int fd = src->io.fd;

	if (src->raw != NULL) {
		explicit_bzero(src->raw, src->size);
		free(src->raw);
		redact_scan_done(&src->scan);
	}
	src->raw = NULL;
	src->len = src->size = 0;
	src->held = false;
	if (fd < 0)
		return;
	loop_io_del(src->a->w->loop, &src->io);
	close(fd);
	src->io.fd = -1;
}

/* What is certain goes into the ring, as far as there is room. */
static void
judge(struct attach_source *src, bool flush, bool final)
{
	struct attach *a = src->a;
	const struct redact *redact = a->wl != NULL && a->wl->vault != NULL ? a->wl->vault->redact : NULL;
	uint8_t out[8192];
	uint64_t before;
	ssize_t n;

	if (redact == NULL)
		return;
	while (src->len > 0) {
		size_t space = room(a) < sizeof(out) ? room(a) : sizeof(out);

		if (space < REDACT_MARK_LEN)
			break;
		before = src->scan.from;
		n = redact_run(redact, &src->scan, src->raw, src->len, out, space);
		if (n == 0 && src->scan.from == before && flush)
			n = redact_flush(redact, &src->scan, src->raw, final, out, space);
		if (n < 0)
			fatal("out of memory");
		put(a, out, (size_t)n);
		src->len -= (size_t)(src->scan.from - before);
		memmove(src->raw, src->raw + (src->scan.from - before), src->len);
		if (n == 0 && src->scan.from == before)
			break;
	}
	src->held = src->len > 0;
}

static ssize_t
read_raw(struct attach_source *src, size_t max)
{
	ssize_t n;

	if (src->size - src->len < max) {
		uint8_t *more = src->len + max <= REDACT_LONGEST + 2 * RAW_STEP ? malloc(src->len + max) : NULL;

		if (more == NULL)
			return -ENOBUFS;	/* held back already: as much as a value may be long */
		if (src->len > 0)
			memcpy(more, src->raw, src->len);
		if (src->raw != NULL)
			explicit_bzero(src->raw, src->size);
		free(src->raw);
		src->raw = more;
		src->size = src->len + max;
	}
	n = read(src->io.fd, src->raw + src->len, max);
	if (n > 0)
		src->len += (size_t)n;
	return n < 0 ? -errno : n;
}

/* Straight to its place. */
static ssize_t
read_ring(struct attach *a, int fd, size_t max)
{
	size_t at = (size_t)(a->head % a->cap), n = max < a->cap - at ? max : (size_t)a->cap - at;
	ssize_t got = read(fd, a->ring + at, n);

	if (got <= 0)
		return got < 0 ? -errno : 0;
	a->head += (uint64_t)got;
	forget_oldest(a);
	return got;
}

static bool
masked(const struct attach *a)
{
	return a->wl != NULL && a->wl->vault != NULL;
}

static void
pull(struct attach *a, struct attach_source *src)
{
	/* When all of the session is gone what is there is all there will be; somebody it gave its terminal to may go on, and is not heard. */
	size_t budget = a->state == ATTACH_ENDED ? READ_LAST : READ_A_TURN;
	ssize_t n = 0;

	while (src->io.fd >= 0 && budget > 0) {
		size_t max = room(a);

		max = max < budget ? max : budget;
		if (max < REDACT_MARK_LEN)
			return;
		n = masked(a) ? read_raw(src, max) : read_ring(a, src->io.fd, max);
		if (n <= 0)
			break;
		a->active = monotime_now();
		budget -= (size_t)n;
		judge(src, false, false);
	}
	/* A terminal gives at most 4 KiB at a time, and more while it is read: so not already where it gave less than was asked for. */
	src->drained = n == -EAGAIN;
	if (a->state != ATTACH_ENDED && (n > 0 || n == -EAGAIN))
		return;
	judge(src, true, true);			/* EIO: the last of the terminal's users is gone */
	if (src->len == 0)			/* else there was no room for all of it */
		attach_drop_source(src);
}

/* ---- to the viewers ---- */

static void
push(struct attach *a)
{
	for (struct attach_viewer *v = a->viewers, *next; v != NULL; v = next) {
		uint32_t want = v->input_over || a->in_len == sizeof(a->in) ? 0 : EPOLLIN;
		ssize_t n = 0;

		next = v->next;
		while (v->cursor < a->head) {
			size_t at = (size_t)(v->cursor % a->cap);
			size_t len = a->head - v->cursor < a->cap - at ? (size_t)(a->head - v->cursor) : (size_t)a->cap - at;

			n = send(v->io.fd, a->ring + at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
			if (n <= 0)
				break;
			v->cursor += (uint64_t)n;
		}
		/* That its other end is gone shows when it is looked at. */
		(void)loop_io_set(a->w->loop, &v->io, want | (v->cursor < a->head ? EPOLLOUT : 0));
	}
}

/* ---- from the one who drives ---- */

void
attach_drop_input(struct attach *a)
{
	int fd = a->input.fd;

	explicit_bzero(a->in, a->in_len);
	a->dropped += a->in_len;
	a->in_len = 0;
	if (fd < 0)
		return;
	loop_io_del(a->w->loop, &a->input);
	close(fd);
	a->input.fd = -1;
}

static void
write_input(struct attach *a)
{
	ssize_t n = 0;

	while (a->input.fd >= 0 && a->in_len > 0) {
		n = write(a->input.fd, a->in, a->in_len);
		if (n <= 0)
			break;
		a->in_len -= (size_t)n;
		memmove(a->in, a->in + n, a->in_len);
	}
	if (a->input.fd < 0)
		return;
	if (n < 0 && errno != EAGAIN) {
		attach_drop_input(a);
		return;
	}
	if (a->in_len == 0 && a->in_end && (a->flags & ATTACH_TTY) == 0)
		attach_drop_input(a);	/* end of file */
	else
		(void)loop_io_set(a->w->loop, &a->input, a->in_len > 0 ? EPOLLOUT : 0);
}

static void
gone(struct attach_viewer *v)
{
	struct attach *a = v->a;
	bool drove = v->drives;

	attach_leave(v, false, "");
	if (a->state == ATTACH_ENDED)
		attach_pump(a);
	else if (drove && ((a->flags & ATTACH_KEEP) == 0 || a->w->policy.attach_keep == 0))
		attach_close(a, "the operator has left");
	else
		attach_mind(a);
	/* a viewer who is slow no longer holds it up */
	if (drove && a->state == ATTACH_OPEN)
		attach_pump(a);
}

/* False: he is gone. */
static bool
read_viewer(struct attach_viewer *v, bool hup)
{
	struct attach *a = v->a;
	uint8_t rest[4096];
	bool wanted = v->drives && a->input.fd >= 0;
	size_t max = wanted ? sizeof(a->in) - a->in_len : sizeof(rest);
	ssize_t n = max > 0 ? read(v->io.fd, wanted ? a->in + a->in_len : rest, max) : -1;

	if (n > 0) {
		a->active = monotime_now();
		if (wanted)
			a->in_len += (size_t)n;
		else
			a->dropped += (uint64_t)n;
		if (v->drives)
			a->taken += (uint64_t)n;
		return true;
	}
	if (n < 0 && (max > 0 ? errno == EAGAIN : !hup))
		return true;
	if (n < 0 || hup)
		return false;
	v->input_over = true;
	a->in_end = a->in_end || v->drives;
	return true;
}

void
attach_last_words(struct attach_viewer *v)
{
	uint64_t before;

	do {
		before = v->a->taken;
		(void)read_viewer(v, true);
		write_input(v->a);
	} while (v->a->taken != before);
}

void
attach_on_viewer(struct loop_io *io, uint32_t events)
{
	struct attach_viewer *v = io->ctx;
	struct attach *a = v->a;

	/* After a hang-up what he sent before is still there, and nothing else will say that he is gone. */
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0 && !read_viewer(v, (events & (EPOLLHUP | EPOLLERR)) != 0)) {
		gone(v);
		return;
	}
	attach_pump(a);
}

static void
on_input(struct loop_io *io, uint32_t events)
{
	struct attach *a = io->ctx;

	if ((events & (EPOLLERR | EPOLLHUP)) != 0)	/* nobody reads it */
		attach_drop_input(a);
	attach_pump(a);
}

/* ---- all of it ---- */

static void
on_source(struct loop_io *io, uint32_t events)
{
	struct attach_source *src = io->ctx;

	io->events = 0;		/* it fired, so the kernel has disarmed it */
	src->drained = false;
	attach_pump(src->a);
}

static void
quiet_over(struct loop_timer *timer)
{
	struct attach *a = timer->ctx;

	for (unsigned i = 0; i < 2; i++)
		if (a->src[i].held)
			judge(&a->src[i], true, false);
	push(a);
}

void
attach_drain(struct attach *a)
{
	for (unsigned i = 0; i < 2; i++)
		if (a->src[i].io.fd >= 0)
			pull(a, &a->src[i]);
}

void
attach_pump(struct attach *a)
{
	bool held = false, open = false;

	write_input(a);
	for (unsigned i = 0; i < 2; i++)
		if (a->src[i].io.fd >= 0 && (!a->src[i].drained || a->state == ATTACH_ENDED))
			pull(a, &a->src[i]);
	push(a);
	for (unsigned i = 0; i < 2; i++) {
		struct attach_source *src = &a->src[i];

		held = held || src->held;
		open = open || src->io.fd >= 0;
		if (src->io.fd >= 0)
			(void)loop_io_set(a->w->loop, &src->io, room(a) >= REDACT_MARK_LEN ? EPOLLIN | EPOLLONESHOT : EPOLLONESHOT);
	}
	if (held)
		loop_timer_set_ms(a->w->loop, &a->quiet, QUIET_MS);
	if (a->state != ATTACH_ENDED)
		return;
	for (struct attach_viewer *v = a->viewers, *next; v != NULL && !open; v = next) {
		next = v->next;
		if (v->cursor == a->head)
			attach_leave(v, true, a->reason);
	}
	if (!open && a->viewers == NULL)
		attach_free(a);
}

void
attach_secrets_changed(const struct workload *wl)
{
	for (struct attach *a = wl->w->attaches.list; a != NULL; a = a->next)
		for (unsigned i = 0; i < 2 && a->wl == wl; i++)
			redact_again(&a->src[i].scan);
}

void
attach_io_init(struct attach *a)
{
	for (unsigned i = 0; i < 2; i++)
		a->src[i] = (struct attach_source){ .a = a, .io.fd = -1 };
	a->input.fd = -1;
	loop_timer_init(&a->quiet, quiet_over, a);
	loop_timer_init(&a->timer, NULL, a);
	attach_mind(a);
}

int
attach_add_source(struct attach *a, unsigned i, int fd)
{
	int r = fd_set_nonblock(fd);

	if (r == 0)
		r = loop_io_add(a->w->loop, &a->src[i].io, fd, EPOLLIN | EPOLLONESHOT, on_source, &a->src[i]);
	if (r < 0)
		close(fd);
	return r;
}

int
attach_add_input(struct attach *a, int fd)
{
	int r = fd < 0 ? -errno : fd_set_nonblock(fd);

	if (r == 0)
		r = loop_io_add(a->w->loop, &a->input, fd, 0, on_input, a);
	if (r < 0 && fd >= 0)
		close(fd);
	return r;
}
