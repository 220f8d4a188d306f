#include "workerd/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "workerd/control.h"
#include "workerd/life.h"
#include "workerd/workchan.h"
#include "workerd/workerd.h"

#define READ_A_TURN	(256u << 10)	/* bytes of one pipe before the others get their turn */
#define SEND_A_TURN	4u		/* records of one workload */
#define SHORT_READ	(32u << 10)	/* less than that: the writer is slow, leave it alone for QUIET_MS */
#define QUIET_MS	1
#define LARGE_PIPE	(1 << 20)

/* ---- pipe to ring ---- */

static bool
may_drop(const struct workerd *w)
{
	switch (w->conf.work_overflow) {
	case CONF_OVERFLOW_DROP:
		return true;
	case CONF_OVERFLOW_WAIT:
		return !w->session && !loop_timer_armed(&w->overflow);
	case CONF_OVERFLOW_WAIT_FOREVER:
		return false;
	}
	return false;
}

/* Makes room for what waits in the pipe, at most want bytes, by dropping the oldest. */
static void
make_room(struct workload *wl, size_t want)
{
	size_t room = record_room(&wl->rec);
	uint64_t sent = wl->subscribed ? wl->cursor : 0, before = wl->rec.h->gap_bytes;
	uint32_t gaps = wl->rec.h->gaps;
	int there = 0;

	if (room >= want || !may_drop(wl->w) || ioctl(wl->pipe, FIONREAD, &there) < 0 || there < 0)
		return;
	want = (size_t)there < want ? (size_t)there : want;
	want = want < wl->rec.h->ring ? want : (size_t)wl->rec.h->ring;
	if (room >= want)
		return;
	record_drop(&wl->rec, wl->rec.h->tail + (want - room), sent);
	wl->w->gap_bytes += wl->rec.h->gap_bytes - before;
	if (wl->rec.h->gaps != gaps)
		workchan_tell(wl);
}

static bool
drained(const struct workload *wl)
{
	return wl->state == ST_DRAINING && wl->rec.h->head >= wl->rec.h->drain_to;
}

/* Reads up to a turn's worth: the number of bytes. */
static size_t
pull(struct workload *wl)
{
	size_t got = 0;

	while (got < READ_A_TURN) {
		size_t want = READ_A_TURN - got;
		ssize_t n;

		if (wl->state == ST_DRAINING && wl->rec.h->drain_to - wl->rec.h->head < want)
			want = (size_t)(wl->rec.h->drain_to - wl->rec.h->head);
		if (want == 0)
			break;
		make_room(wl, want);
		n = record_fill(&wl->rec, wl->pipe, want);
		if (n <= 0)
			break;
		got += (size_t)n;
		if ((size_t)n < want)
			break;
	}
	wl->w->output_bytes += got;
	return got;
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

/* Reads, sends, and decides when to look again. hup: nobody can write any more. */
static void
turn(struct workload *wl, bool hup)
{
	struct workerd *w = wl->w;
	size_t got;

	if (wl->pipe < 0)
		return;
	got = pull(wl);
	wl->full = record_room(&wl->rec) == 0 && !may_drop(w);
	if (got > 0) {
		output_send(wl);
		control_output(wl);
	}
	if (drained(wl)) {
		workload_event(wl, EV_DRAINED);
		return;
	}
	if (wl->full)
		return;			/* an ack, or the end of overflow-wait, comes back here */
	if (got == 0 && wl->state == ST_DRAINING) {	/* a reader outside took what we counted */
		wl->rec.h->drain_to = wl->rec.h->head;
		workload_event(wl, EV_DRAINED);
		return;
	}
	if (got >= SHORT_READ)
		grow_pipe(wl);
	if (got > 0)
		loop_timer_set_ms(w->loop, &wl->pipe_timer, got >= SHORT_READ ? 0 : QUIET_MS);
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
	struct record_head *h = wl->rec.h;
	int there = 0;

	if (h != NULL && (h->flags & RECORD_F_TREE_GONE) == 0) {
		if (wl->pipe >= 0 && ioctl(wl->pipe, FIONREAD, &there) < 0)
			there = 0;
		h->drain_to = h->head + (there > 0 ? (uint64_t)there : 0);
		__atomic_store_n(&h->flags, h->flags | RECORD_F_TREE_GONE, __ATOMIC_RELEASE);
	}
	if (h == NULL || wl->pipe < 0)
		workload_event(wl, EV_DRAINED);
	else
		turn(wl, false);
}

/* ---- ring to connectd ---- */

static int
send_gap(struct workload *wl, uint64_t to)
{
	struct work_gap gap = { .wid = wl->info.wid, .epoch = wl->epoch, .from = wl->cursor, .to = to,
		.reason = wl->rec.h != NULL ? WORK_GAP_MEMORY : WORK_GAP_LOST };
	struct iovec iov = { &gap, sizeof(gap) };
	int r = ipc_try_sendv(&wl->w->work, WORK_EV_GAP, &iov, 1);

	if (r == 0)
		wl->cursor = to;
	return r;
}

static int
send_data(struct workload *wl, uint64_t end)
{
	uint64_t n = end - wl->cursor < wl->w->max_data ? end - wl->cursor : wl->w->max_data;
	struct work_output head = { .wid = wl->info.wid, .epoch = wl->epoch, .offset = wl->cursor };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)record_at(&wl->rec, wl->cursor), (size_t)n } };
	int r = ipc_try_sendv(&wl->w->work, WORK_EV_OUTPUT, iov, 2);

	if (r == 0)
		wl->cursor += n;
	return r;
}

static int
send_end(struct workload *wl)
{
	struct work_output_end end = { .wid = wl->info.wid, .epoch = wl->epoch, .total = workload_head(wl),
		.has_digest = (wl->info.flags & WORK_F_DIGEST) != 0 };
	struct iovec iov = { &end, sizeof(end) };
	int r;

	memcpy(end.xxh3, wl->info.log_xxh3, sizeof(end.xxh3));
	r = ipc_try_sendv(&wl->w->work, WORK_EV_OUTPUT_END, &iov, 1);
	wl->end_sent = r == 0;
	return r;
}

/* One record. 1 = sent, 0 = there is nothing to send, -EAGAIN and other errors: not now. */
static int
send_one(struct workload *wl)
{
	uint64_t tail = workload_tail(wl), head = workload_head(wl), end = head < wl->limit ? head : wl->limit;
	int r;

	if (!wl->subscribed || wl->end_sent)
		return 0;
	if (wl->cursor < tail)
		r = send_gap(wl, tail);
	else if (wl->cursor < end)
		r = send_data(wl, end);
	else if (wl->state == ST_ENDED && wl->cursor >= head)
		r = send_end(wl);
	else
		return 0;
	return r == 0 ? 1 : r;
}

void
output_send(struct workload *wl)
{
	unsigned n = 0;
	int r = 1;

	while (!wl->w->blocked && r > 0 && n++ < 2 * SEND_A_TURN) {
		r = send_one(wl);
		wl->w->blocked = r == -EAGAIN;
	}
}

void
output_send_all(struct workerd *w)
{
	struct workload *wl = w->pump_next != NULL ? w->pump_next : w->all.first;
	uint32_t idle = 0, n = 0;

	for (struct workload *p = w->all.first; p != NULL; p = p->next)
		n++;
	while (wl != NULL && !w->blocked && idle < n) {
		int r = 1;

		for (unsigned i = 0; i < SEND_A_TURN && r > 0; i++)
			r = send_one(wl);
		w->blocked = r == -EAGAIN;
		idle = r > 0 ? 0 : idle + 1;
		wl = wl->next != NULL ? wl->next : w->all.first;
	}
	w->pump_next = wl;
}

/* ---- what connectd says ---- */

void
output_sub(struct workload *wl, const struct work_sub *sub)
{
	/* What the hub has was produced, even where the count of it died with the launcher. */
	if (wl->rec.h == NULL && wl->info.outcome == WORK_OUTCOME_LOST && sub->from > wl->info.produced) {
		wl->info.produced = sub->from;
		workchan_tell(wl);
	}
	wl->subscribed = true;
	wl->end_sent = false;
	wl->epoch = sub->epoch;
	wl->cursor = sub->from < workload_head(wl) ? sub->from : workload_head(wl);
	wl->limit = sub->limit;
	output_send(wl);
}

void
output_credit(struct workload *wl, const struct work_sub *sub)
{
	if (!wl->subscribed || sub->epoch != wl->epoch || sub->limit <= wl->limit)
		return;
	wl->limit = sub->limit;
	output_send(wl);
}

void
output_ack(struct workload *wl, uint64_t offset)
{
	if (wl->rec.h == NULL)
		return;
	record_ack(&wl->rec, offset);
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
	loop_timer_set_ms(w->loop, &w->overflow, w->conf.work_overflow_wait);
}

void
output_session(struct workerd *w, bool up)
{
	if (up == w->session)
		return;
	w->session = up;
	loop_timer_del(w->loop, &w->overflow);
	if (!up)
		loop_timer_set_ms(w->loop, &w->overflow, w->conf.work_overflow_wait);
}

void
output_reset(struct workerd *w)
{
	w->blocked = false;
	for (struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		wl->subscribed = wl->end_sent = false;
}
