/*
 * Makes things durable without stopping the event loop: one thread that calls fdatasync().
 *
 * Items are collected while the thread is busy and go to it as one batch, so under load many runs share one flush
 * (group commit) and acknowledgements come as often as the disk can give them. An item without descriptor is a
 * barrier: it is done when everything queued before it is. Callbacks run in the loop. A second instance, with work
 * functions of its own, computes digests of long logs.
 */
#ifndef EDGEWARD_HUB_SYNCER_H
#define EDGEWARD_HUB_SYNCER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/loop.h"

struct syncer;

/* Belongs to the caller; must stay, with its descriptor open, while sync_item_busy(). */
struct sync_item {
	int fd;				/* -1 = barrier */
	int (*work)(struct sync_item *item);	/* in the thread, instead of fdatasync(); NULL = fdatasync */
	void (*done)(struct sync_item *item, int err);	/* err: 0 or -errno of fdatasync */
	void *ctx;
	uint64_t mark;			/* the caller's: what has been written so far */
	uint64_t synced;		/* in done(): mark as it was when the flush began, now durable */
	struct sync_item *next;		/* syncer's own */
	int err;
	bool queued, running, again;
};

/* nosync: batches finish at once, without thread and fdatasync (acknowledged bytes survive a crash of the hub only). */
int syncer_new(struct loop *loop, bool nosync, struct syncer **ret_syncer);

/* Its thread. Apart, because capabilities and Landlock are a thread's own and must be given up before. */
int syncer_start(struct syncer *syncer);
/* Waits for the running batch; items queued are dropped without callback. */
void syncer_free(struct syncer *syncer);

/* Queues the item for the next batch. No-op when it already waits for it. */
void syncer_add(struct syncer *syncer, struct sync_item *item);

/* True while anything waits or is under way. */
bool syncer_busy(const struct syncer *syncer);

static inline bool
sync_item_busy(const struct sync_item *item)
{
	return item->queued || item->running;
}

#endif
