#include "hub/syncer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/cleanup.h"

struct syncer {
	struct loop *loop;
	struct loop_io io;		/* eventfd: the thread has finished a batch */
	struct loop_timer start;	/* next turn: hand over what was collected */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool nosync, stop, have_thread;
	struct sync_item *batch;	/* with the thread; under lock */
	bool work;			/* batch is for the thread to do; under lock */
	struct sync_item *queue, **queue_tail;	/* loop only */
	bool running;			/* loop only: a batch is under way */
};

static int
do_item(struct sync_item *item)
{
	if (item->work != NULL)
		return item->work(item);
	return item->fd >= 0 && fdatasync(item->fd) < 0 ? -errno : 0;
}

static void *
thread_main(void *arg)
{
	struct syncer *s = arg;

	pthread_mutex_lock(&s->lock);
	for (;;) {
		uint64_t one = 1;

		while (!s->work && !s->stop)
			pthread_cond_wait(&s->cond, &s->lock);
		if (s->stop)
			break;
		pthread_mutex_unlock(&s->lock);
		for (struct sync_item *i = s->batch; i != NULL; i = i->next)
			i->err = do_item(i);
		pthread_mutex_lock(&s->lock);
		s->work = false;
		if (write(s->io.fd, &one, sizeof(one)) < 0)
			break;		/* cannot happen: the counter is nowhere near its limit */
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void
enqueue(struct syncer *s, struct sync_item *item)
{
	item->queued = true;
	item->next = NULL;
	*s->queue_tail = item;
	s->queue_tail = &item->next;
}

static bool
is_barrier(const struct sync_item *item)
{
	return item->fd < 0 && item->work == NULL;
}

/* Calls back for one part of a finished batch and returns the rest. */
static struct sync_item *
finish_part(struct syncer *s, struct sync_item *list, bool barriers)
{
	struct sync_item *rest = NULL, **tail = &rest, *item;

	while ((item = list) != NULL) {
		list = item->next;
		item->next = NULL;
		if (is_barrier(item) != barriers) {
			*tail = item;
			tail = &item->next;
			continue;
		}
		item->running = false;
		/* Asked for again meanwhile: into the very next batch, the one that barriers queued meanwhile are in. */
		if (item->again)
			enqueue(s, item);
		item->again = false;
		item->done(item, item->err);
	}
	return rest;
}

static void
finish_batch(struct syncer *s)
{
	struct sync_item *rest = s->batch;

	s->batch = NULL;
	s->running = false;
	/* Barriers last: whoever waits at one looks at what the others have become. */
	rest = finish_part(s, rest, false);
	finish_part(s, rest, true);
}

static void
start_batch(struct loop_timer *timer)
{
	struct syncer *s = timer->ctx;

	if (s->running || s->queue == NULL)
		return;
	for (struct sync_item *i = s->queue; i != NULL; i = i->next) {
		i->queued = false;
		i->running = true;
		i->synced = i->mark;
		i->err = 0;
	}
	s->running = true;
	pthread_mutex_lock(&s->lock);
	s->batch = s->queue;
	s->work = !s->nosync;
	pthread_cond_signal(&s->cond);
	pthread_mutex_unlock(&s->lock);
	s->queue = NULL;
	s->queue_tail = &s->queue;
	if (s->nosync) {
		finish_batch(s);
		if (s->queue != NULL)
			loop_timer_set(s->loop, &s->start, monotime_now());
	}
}

static void
batch_done(struct loop_io *io, uint32_t events)
{
	struct syncer *s = io->ctx;
	uint64_t count;

	(void)events;
	if (read(io->fd, &count, sizeof(count)) < 0)
		return;
	finish_batch(s);
	start_batch(&s->start);
}

static int
start_thread(struct syncer *s)
{
	sigset_t all, old;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&s->thread, NULL, thread_main, s);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	s->have_thread = r == 0;
	return -r;
}

int
syncer_new(struct loop *loop, bool nosync, struct syncer **ret_syncer)
{
	struct syncer *s = calloc(1, sizeof(*s));
	int fd, r;

	if (s == NULL)
		return -ENOMEM;
	s->loop = loop;
	s->nosync = nosync;
	s->io.fd = -1;
	s->queue_tail = &s->queue;
	loop_timer_init(&s->start, start_batch, s);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->cond, NULL);
	fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = fd < 0 ? -errno : loop_io_add(loop, &s->io, fd, EPOLLIN, batch_done, s);
	if (r < 0 && fd >= 0)
		close(fd);
	if (r < 0) {
		syncer_free(s);
		return r;
	}
	*ret_syncer = s;
	return 0;
}

int
syncer_start(struct syncer *s)
{
	return s->nosync ? 0 : start_thread(s);
}

void
syncer_free(struct syncer *s)
{
	int fd;

	if (s == NULL)
		return;
	fd = s->io.fd;
	if (s->have_thread) {
		pthread_mutex_lock(&s->lock);
		s->stop = true;
		pthread_cond_signal(&s->cond);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->thread, NULL);
	}
	loop_timer_del(s->loop, &s->start);
	loop_io_del(s->loop, &s->io);
	if (fd >= 0)
		close(fd);
	pthread_cond_destroy(&s->cond);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

void
syncer_add(struct syncer *s, struct sync_item *item)
{
	if (item->running)
		item->again = true;
	else if (!item->queued)
		enqueue(s, item);
	if (!s->running && !loop_timer_armed(&s->start))
		loop_timer_set(s->loop, &s->start, monotime_now());
}

bool
syncer_busy(const struct syncer *s)
{
	return s->running || s->queue != NULL;
}
