#include "common/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#include "common/cleanup.h"

#define BATCH		64
#define SHORT_WAIT_NS	1000000000	/* longer waits use the timerfd: epoll's timeout stops while the machine sleeps */

struct loop {
	int epoll, timerfd;
	monotime_t timerfd_at;		/* what the timerfd is set to, NEVER = not set */
	struct loop_io timer_io, signal_io;
	struct loop_timer *timers;
	uint64_t turns;
	struct epoll_event batch[BATCH];
	int nbatch, at;			/* the batch being delivered; at = the entry in hand */
	bool stop;
	void (*on_signal)(int signo, void *ctx);
	void *signal_ctx;
};

static void
timerfd_ready(struct loop_io *io, uint32_t events)
{
	struct loop *loop = io->ctx;
	uint64_t n;

	(void)events;
	if (read(io->fd, &n, sizeof(n)) == (ssize_t)sizeof(n))
		loop->timerfd_at = MONOTIME_NEVER;
}

int
loop_new(struct loop **ret_loop)
{
	_cleanup_free_ struct loop *loop = calloc(1, sizeof(*loop));
	_cleanup_close_ int ep = -1, tfd = -1;
	int r;

	if (loop == NULL)
		return -ENOMEM;
	loop->timer_io.fd = loop->signal_io.fd = -1;
	loop->timerfd_at = MONOTIME_NEVER;
	ep = epoll_create1(EPOLL_CLOEXEC);
	tfd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (ep < 0 || tfd < 0)
		return -errno;
	loop->epoll = ep;
	r = loop_io_add(loop, &loop->timer_io, tfd, EPOLLIN, timerfd_ready, loop);
	if (r < 0)
		return r;
	take_fd(&ep);
	loop->timerfd = take_fd(&tfd);
	*ret_loop = take_ptr(&loop);
	return 0;
}

void
loop_free(struct loop *loop)
{
	if (loop == NULL)
		return;
	if (loop->signal_io.fd >= 0)
		close(loop->signal_io.fd);
	close(loop->timerfd);
	close(loop->epoll);
	free(loop);
}

int
loop_io_add(struct loop *loop, struct loop_io *io, int fd, uint32_t events,
    void (*cb)(struct loop_io *io, uint32_t events), void *ctx)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &ev) < 0)
		return -errno;
	*io = (struct loop_io){ .fd = fd, .events = events, .cb = cb, .ctx = ctx };
	return 0;
}

int
loop_io_set(struct loop *loop, struct loop_io *io, uint32_t events)
{
	struct epoll_event ev = { .events = events, .data.ptr = io };

	if (io->fd < 0 || io->events == events)
		return 0;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_MOD, io->fd, &ev) < 0)
		return -errno;
	io->events = events;
	return 0;
}

void
loop_io_del(struct loop *loop, struct loop_io *io)
{
	if (io->fd < 0)
		return;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, io->fd, NULL);
	io->fd = -1;
	for (int i = loop->at + 1; i < loop->nbatch; i++)
		if (loop->batch[i].data.ptr == io)
			loop->batch[i].data.ptr = NULL;
}

void
loop_timer_init(struct loop_timer *timer, void (*cb)(struct loop_timer *timer), void *ctx)
{
	*timer = (struct loop_timer){ .when = MONOTIME_NEVER, .cb = cb, .ctx = ctx };
}

bool
loop_timer_armed(const struct loop_timer *timer)
{
	return timer->when.ns != INT64_MAX;
}

void
loop_timer_del(struct loop *loop, struct loop_timer *timer)
{
	if (!loop_timer_armed(timer))
		return;
	if (timer->prev != NULL)
		timer->prev->next = timer->next;
	else
		loop->timers = timer->next;
	if (timer->next != NULL)
		timer->next->prev = timer->prev;
	timer->prev = timer->next = NULL;
	timer->when = MONOTIME_NEVER;
}

void
loop_timer_set(struct loop *loop, struct loop_timer *timer, monotime_t when)
{
	struct loop_timer *prev = NULL, *next;

	loop_timer_del(loop, timer);
	if (when.ns == INT64_MAX)
		return;
	for (next = loop->timers; next != NULL && !monotime_before(when, next->when); next = next->next)
		prev = next;
	timer->when = when;
	timer->prev = prev;
	timer->next = next;
	if (next != NULL)
		next->prev = timer;
	if (prev != NULL)
		prev->next = timer;
	else
		loop->timers = timer;
}

void
loop_timer_set_ms(struct loop *loop, struct loop_timer *timer, int64_t ms)
{
	loop_timer_set(loop, timer, monotime_add_ms(monotime_now(), ms));
}

static void
signal_ready(struct loop_io *io, uint32_t events)
{
	struct loop *loop = io->ctx;
	struct signalfd_siginfo si;

	(void)events;
	while (read(io->fd, &si, sizeof(si)) == (ssize_t)sizeof(si))
		loop->on_signal((int)si.ssi_signo, loop->signal_ctx);
}

int
loop_signals(struct loop *loop, const sigset_t *mask, void (*cb)(int signo, void *ctx), void *ctx)
{
	_cleanup_close_ int fd = -1;
	int r;

	/* One that is ignored, as a careless parent may leave it, would never be seen. */
	for (int signo = 1; signo < SIGRTMAX; signo++)
		if (sigismember(mask, signo) == 1 && signal(signo, SIG_DFL) == SIG_ERR)
			return -errno;
	if (sigprocmask(SIG_BLOCK, mask, NULL) < 0)
		return -errno;
	fd = signalfd(-1, mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	r = loop_io_add(loop, &loop->signal_io, fd, EPOLLIN, signal_ready, loop);
	if (r < 0)
		return r;
	take_fd(&fd);
	loop->on_signal = cb;
	loop->signal_ctx = ctx;
	return 0;
}

/*
 * How long epoll may wait. Short waits are its own timeout, long ones a timerfd on the boot clock; the timerfd is only
 * touched when the soonest deadline comes before what it is set to.
 */
static int
wait_ms(struct loop *loop, int max_wait_ms)
{
	int64_t left;

	if (loop->timers == NULL)
		return max_wait_ms;
	left = loop->timers->when.ns - monotime_now().ns;
	if (left <= 0)
		return 0;
	if (left > SHORT_WAIT_NS) {
		if (monotime_before(loop->timers->when, loop->timerfd_at)) {
			struct itimerspec its = { .it_value = {
				.tv_sec = loop->timers->when.ns / 1000000000,
				.tv_nsec = loop->timers->when.ns % 1000000000 } };

			if (timerfd_settime(loop->timerfd, TFD_TIMER_ABSTIME, &its, NULL) == 0)
				loop->timerfd_at = loop->timers->when;
		}
		return max_wait_ms;
	}
	left = (left + 999999) / 1000000;
	return max_wait_ms >= 0 && left > max_wait_ms ? max_wait_ms : (int)left;
}

static void
run_timers(struct loop *loop)
{
	monotime_t now = monotime_now();

	while (loop->timers != NULL && !monotime_before(now, loop->timers->when)) {
		struct loop_timer *timer = loop->timers;

		loop_timer_del(loop, timer);
		timer->cb(timer);
	}
}

int
loop_turn(struct loop *loop, int max_wait_ms)
{
	int n = epoll_wait(loop->epoll, loop->batch, BATCH, wait_ms(loop, max_wait_ms));

	loop->turns++;
	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	loop->nbatch = n;
	for (loop->at = 0; loop->at < loop->nbatch; loop->at++) {
		struct loop_io *io = loop->batch[loop->at].data.ptr;

		if (io != NULL)
			io->cb(io, loop->batch[loop->at].events);
	}
	loop->nbatch = 0;
	run_timers(loop);
	return 0;
}

int
loop_run(struct loop *loop)
{
	loop->stop = false;
	while (!loop->stop) {
		int r = loop_turn(loop, -1);

		if (r < 0)
			return r;
	}
	return 0;
}

uint64_t
loop_turns(const struct loop *loop)
{
	return loop->turns;
}

void
loop_stop(struct loop *loop)
{
	loop->stop = true;
}

static void
stop(int signo, void *ctx)
{
	loop_stop(ctx);
}

int
loop_stop_on_signals(struct loop *loop)
{
	sigset_t mask;

	sigemptyset(&mask);
	sigaddset(&mask, SIGTERM);
	sigaddset(&mask, SIGINT);
	return loop_signals(loop, &mask, stop, loop);
}
