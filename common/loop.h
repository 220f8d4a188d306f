/*
 * The event loop: epoll, signalfd and timers. One thread, no callback from inside a call that adds or removes.
 *
 * A struct loop_io or loop_timer belongs to the caller and stays where it is while it is added. It may be deleted, and
 * its storage freed, from any callback; events already fetched for it are then forgotten.
 */
#ifndef EDGEWARD_LOOP_H
#define EDGEWARD_LOOP_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "common/monotime.h"

struct loop;

struct loop_io {
	int fd;				/* -1 = not added */
	uint32_t events;		/* what is watched now */
	void (*cb)(struct loop_io *io, uint32_t events);
	void *ctx;
};

struct loop_timer {
	monotime_t when;		/* NEVER = not armed */
	void (*cb)(struct loop_timer *timer);
	void *ctx;
	struct loop_timer *prev, *next;	/* list of armed timers, soonest first */
};

int loop_new(struct loop **ret_loop);
void loop_free(struct loop *loop);

/* Adds fd (not owned) for EPOLLIN, EPOLLOUT, ...; -errno. */
int loop_io_add(struct loop *loop, struct loop_io *io, int fd, uint32_t events,
    void (*cb)(struct loop_io *io, uint32_t events), void *ctx);

/* Changes what is watched. No system call when nothing changes. */
int loop_io_set(struct loop *loop, struct loop_io *io, uint32_t events);

/* No-op when not added. Does not close the descriptor. Call it before close(). */
void loop_io_del(struct loop *loop, struct loop_io *io);

void loop_timer_init(struct loop_timer *timer, void (*cb)(struct loop_timer *timer), void *ctx);
void loop_timer_set(struct loop *loop, struct loop_timer *timer, monotime_t when);
void loop_timer_set_ms(struct loop *loop, struct loop_timer *timer, int64_t ms);	/* from now */
void loop_timer_del(struct loop *loop, struct loop_timer *timer);
bool loop_timer_armed(const struct loop_timer *timer);

/* SIGTERM and SIGINT end loop_run(). */
int loop_stop_on_signals(struct loop *loop);

/* Blocks the signals of mask in the process and delivers them as calls of cb with the signal number. */
int loop_signals(struct loop *loop, const sigset_t *mask, void (*cb)(int signo, void *ctx), void *ctx);

/* Runs until loop_stop(). 0, or -errno when epoll itself fails. */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* One turn: waits at most max_wait_ms (-1 = until something happens) and runs what is due. */
int loop_turn(struct loop *loop, int max_wait_ms);

/* How many turns there have been: two that follow each other tell a source that it was not finished. */
uint64_t loop_turns(const struct loop *loop);

#endif
