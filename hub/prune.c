#include "hub/prune.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "hub/result.h"
#include "hub/run.h"

#define BATCH		64		/* runs in one turn of the loop */
#define PAUSE_MS	(10 * 60 * 1000)

static struct loop_timer timer;
static int64_t keep;

/* False when it is still in use: it goes another time. */
static bool
drop(struct hub *hub, const char *handle)
{
	char name[HANDLE_SIZE + 2];

	for (const struct run *run = hub->runs; run != NULL; run = run->next)
		if (strcmp(run->info.handle, handle) == 0)
			return false;
	snprintf(name, sizeof(name), "w.%s", handle);
	/* The file first: a row without a file can be dropped again, a file without a row would stay for ever. */
	if (unlinkat(hub->logfd, name, 0) < 0 && errno != ENOENT) {
		log_error("run %s: its log cannot be removed: %s", handle, strerror(errno));
		return false;
	}
	result_drop(hub, handle);
	return store_run_delete(hub->store, handle) == 0;
}

static void
prune(struct loop_timer *t)
{
	struct hub *hub = t->ctx;
	int64_t before = monotime_wall_ns() - keep * 1000000;
	char handle[HANDLE_SIZE];
	unsigned n = 0;

	while (n < BATCH && store_run_old(hub->store, before, handle) == 0 && drop(hub, handle))
		n++;
	if (n > 0)
		log_info("%u finished runs removed", n);
	loop_timer_set_ms(hub->loop, &timer, n == BATCH ? 0 : PAUSE_MS);
}

void
prune_start(struct hub *hub, int64_t keep_ms)
{
	keep = keep_ms;
	loop_timer_init(&timer, prune, hub);
	loop_timer_set(hub->loop, &timer, monotime_now());
}

void
prune_stop(struct hub *hub)
{
	loop_timer_del(hub->loop, &timer);
}
