#include "workerd/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "workerd/control.h"
#include "workerd/life.h"
#include "workerd/spill.h"
#include "workerd/vault.h"
#include "workerd/workchan.h"
#include "workerd/workerd.h"

#define READ_A_TURN	(256u << 10)	/* bytes of one pipe before the others get their turn */
#define SHORT_READ	(32u << 10)	/* less than that: the writer is slow, leave it alone for QUIET_MS */
#define QUIET_MS	1
#define LARGE_PIPE	(1 << 20)

/* ---- pipe to ring ---- */

enum conf_overflow
output_overflow(const struct workload *wl)
{
	switch (wl->rec.h != NULL ? wl->rec.h->overflow : WORK_OVERFLOW_DEVICE) {
	case WORK_OVERFLOW_WAIT: return CONF_OVERFLOW_WAIT;
	case WORK_OVERFLOW_WAIT_FOREVER: return CONF_OVERFLOW_WAIT_FOREVER;
	case WORK_OVERFLOW_DROP: return CONF_OVERFLOW_DROP;
	default: return wl->w->conf.work_overflow;
	}
}

static bool
may_drop(const struct workload *wl)
{
	const struct workerd *w = wl->w;

	if (workload_is_own(wl))	/* nobody takes it */
		return true;
	switch (output_overflow(wl)) {
	case CONF_OVERFLOW_DROP:
		return true;
	case CONF_OVERFLOW_WAIT:
		return !w->session && !loop_timer_armed(&w->overflow);
	case CONF_OVERFLOW_WAIT_FOREVER:
		return false;
	}
	return false;
}

/* What is read from the pipe: the record itself, or what is looked through first. */
static struct record *
input(struct workload *wl)
{
	return wl->vault != NULL ? &wl->vault->raw : &wl->rec;
}

/* Bytes that are about to come into the ring. */
static size_t
expected(const struct workload *wl)
{
	int there = 0;

	if (wl->vault != NULL)	/* what is looked through may become longer */
		return (size_t)(wl->vault->raw.h->head - wl->vault->scan.from) * 2 + REDACT_MARK_LEN;
	return ioctl(wl->pipe, FIONREAD, &there) < 0 || there < 0 ? 0 : (size_t)there;
}

/* Makes room for what is about to come, at most want bytes: the oldest go to the disk, or are dropped. */
static void
make_room(struct workload *wl, size_t want)
{
	size_t room = record_room(&wl->rec), there;
	uint32_t gaps = wl->rec.h->gaps, reason;
	bool drop = may_drop(wl);

	if (room >= want || (!drop && !spill_helps(wl)))
		return;
	there = expected(wl);
	want = there < want ? there : want;
	want = want < wl->rec.h->ring ? want : (size_t)wl->rec.h->ring;
	if (room >= want)
		return;
	reason = spill_room(wl, want - room, drop);
	if (reason == 0 || !drop)
		return;
	workload_drop(wl, wl->rec.h->head + want - wl->rec.h->ring);
	wl->rec.h->hole = reason;
	if (wl->rec.h->gaps != gaps)
		workchan_tell(wl);
}

static bool
drained(struct workload *wl)
{
	return wl->state == ST_DRAINING && input(wl)->h->head >= input(wl)->h->drain_to && (wl->vault == NULL || mask_end(wl));
}

/* Reads up to a turn's worth: the number of bytes. */
static size_t
pull(struct workload *wl)
{
	struct record *in = input(wl);
	size_t got = 0;

	while (got < READ_A_TURN && wl->pipe >= 0) {
		size_t want = READ_A_TURN - got;
		ssize_t n;

		if (wl->state == ST_DRAINING && in->h->drain_to - in->h->head < want)
			want = (size_t)(in->h->drain_to - in->h->head);
		if (want == 0)
			break;
		if (wl->vault == NULL)
			make_room(wl, want);
		n = record_fill(in, wl->pipe, want);
		if (n <= 0)
			break;
		got += (size_t)n;
		if ((size_t)n < want || wl->vault != NULL)
			break;
	}
	wl->w->output_bytes += got;
	return got;
}

/* What was read before and now goes into the ring. */
static bool
pass_mask(struct workload *wl)
{
	if (wl->vault == NULL)
		return false;
	make_room(wl, READ_A_TURN);
	return mask_move(wl);
}

static bool
is_full(struct workload *wl)
{
	if (may_drop(wl) || spill_helps(wl))
		return false;
	return wl->vault != NULL ? mask_waits(wl) : record_room(&wl->rec) == 0;
}

static void
grow_pipe(struct workload *wl)
{
	if (!wl->pipe_large)
		fcntl(wl->pipe, F_SETPIPE_SZ, LARGE_PIPE);	/* the user's quota may say no: it stays small */
	wl->pipe_large = true;
}

static void
watch(struct workload *wl)
{
	wl->pipe_io.events = 0;		/* it fired, so the kernel has disarmed it */
	if (loop_io_set(wl->w->loop, &wl->pipe_io, EPOLLIN | EPOLLONESHOT) < 0)
		output_close(wl);
}

/* What was written beyond it by then is kept: nobody is told less than there was. */
static void
check_limit(struct workload *wl)
{
	const struct record_head *h = wl->rec.h;

	if (h->output_max != 0 && h->head > h->output_max && (h->flags & RECORD_F_LIMIT) == 0)
		workload_event(wl, EV_LIMIT);
}

/* Reads, sends, and decides when to look again. hup: nobody can write any more. */
static void
turn(struct workload *wl, bool hup)
{
	struct workerd *w = wl->w;
	size_t got;
	bool moved, all;

	if (wl->pipe < 0 && wl->vault == NULL)
		return;
	got = pull(wl);
	moved = pass_mask(wl);
	all = drained(wl);
	wl->full = !all && is_full(wl);
	if (got > 0 || wl->full)
		spill_note(wl);
	if (got > 0 || moved || all) {
		output_send(wl);
		control_output(wl);
	}
	check_limit(wl);
	if (all) {
		workload_event(wl, EV_DRAINED);
		return;
	}
	if (wl->full)
		return;			/* an ack, room in the spool, or the end of overflow-wait comes back here */
	if (got == 0 && !moved && wl->state == ST_DRAINING && input(wl)->h->drain_to != input(wl)->h->head) {
		input(wl)->h->drain_to = input(wl)->h->head;	/* a reader outside took what we counted */
		loop_timer_set_ms(w->loop, &wl->pipe_timer, 0);
		return;
	}
	if (got >= SHORT_READ)
		grow_pipe(wl);
	if (got > 0 || moved || (wl->vault != NULL && mask_waits(wl)))
		loop_timer_set_ms(w->loop, &wl->pipe_timer, got >= SHORT_READ ? 0 : QUIET_MS);
	else if (wl->pipe < 0)
		return;
	else if (hup)
		output_close(wl);
	else
		watch(wl);
}

static void
pipe_ready(struct loop_io *io, uint32_t events)
{
	turn(io->ctx, (events & EPOLLHUP) != 0);
}

static void
pipe_quiet_over(struct loop_timer *timer)
{
	turn(timer->ctx, false);
}

void
output_init(struct workload *wl)
{
	wl->pipe = -1;
	wl->pipe_io.fd = -1;
	loop_timer_init(&wl->pipe_timer, pipe_quiet_over, wl);
}

int
output_open(struct workload *wl, int fd)
{
	int r = loop_io_add(wl->w->loop, &wl->pipe_io, fd, EPOLLIN | EPOLLONESHOT, pipe_ready, wl);

	if (r < 0) {
		close(fd);
		return r;
	}
	wl->pipe = fd;
	return 0;
}

void
output_resume(struct workload *wl)
{
	loop_timer_set_ms(wl->w->loop, &wl->pipe_timer, 0);
}

void
output_close(struct workload *wl)
{
	loop_timer_del(wl->w->loop, &wl->pipe_timer);
	if (wl->pipe < 0)
		return;
	loop_io_del(wl->w->loop, &wl->pipe_io);
	close(wl->pipe);
	wl->pipe = -1;
}

void
output_drain(struct workload *wl)
{
	struct record_head *h = wl->rec.h, *in;
	int there = 0;

	if (h != NULL && (h->flags & RECORD_F_TREE_GONE) == 0) {
		if (wl->pipe >= 0 && ioctl(wl->pipe, FIONREAD, &there) < 0)
			there = 0;
		in = input(wl)->h;
		in->drain_to = in->head + (there > 0 ? (uint64_t)there : 0);
		if (in != h)
			h->drain_to = UINT64_MAX;	/* how much it becomes is not known yet */
		__atomic_store_n(&h->flags, h->flags | RECORD_F_TREE_GONE, __ATOMIC_RELEASE);
	}
	if (h == NULL || (wl->pipe < 0 && wl->vault == NULL))
		workload_event(wl, EV_DRAINED);
	else
		turn(wl, false);
}

/* ---- what connectd says ---- */

void
output_ack(struct workload *wl, uint64_t offset)
{
	if (wl->rec.h != NULL)
		record_ack(&wl->rec, offset);
	spill_ack(wl, offset);
	if (wl->full)
		turn(wl, false);
}

static void
overflow_over(struct loop_timer *timer)
{
	struct workerd *w = timer->ctx;

	for (struct workload *wl = w->all.first, *next; wl != NULL; wl = next) {
		next = wl->next;
		if (wl->full)
			turn(wl, false);
	}
}

void
output_start(struct workerd *w)
{
	loop_timer_init(&w->overflow, overflow_over, w);
	loop_timer_init(&w->pump, output_send_later, w);
	loop_timer_set_ms(w->loop, &w->overflow, w->conf.work_overflow_wait);
}

void
output_session(struct workerd *w, bool up)
{
	if (up == w->session)
		return;
	w->session = up;
	loop_timer_del(w->loop, &w->overflow);
	if (up)
		return;
	loop_timer_set_ms(w->loop, &w->overflow, w->conf.work_overflow_wait);
	if (w->all.first != NULL)
		spill_note(w->all.first);
}

bool
output_again(struct workload *wl)
{
	uint32_t wid = wl->info.wid;
	const struct workerd *w = wl->w;

	turn(wl, false);
	wl = workload_by_wid(w, wid);
	return wl != NULL && wl->full;
}

void
output_reset(struct workerd *w)
{
	w->blocked = false;
	for (struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		wl->subscribed = wl->end_sent = false;
}
