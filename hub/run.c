#include "hub/run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "hub/shell.h"
#include "hub/ship.h"

#define SCRUB_MS	1000
#define KILL_GRACE_MS	10000	/* between TERM and KILL of a run that is over its timeout */

static void timeout_cb(struct loop_timer *timer);

static struct run *
alloc_run(struct hub *hub, const struct run_info *info)
{
	struct run *run = calloc(1, sizeof(*run));

	if (run == NULL)
		return NULL;
	run->hub = hub;
	run->info = *info;
	run->log.fd = -1;
	loop_timer_init(&run->timeout, timeout_cb, run);
	return run;
}

static void
link_run(struct run *run)
{
	run->next = run->hub->runs;
	if (run->next != NULL)
		run->next->prev = run;
	run->hub->runs = run;
}

void
run_free(struct run *run)
{
	if (run->prev != NULL)
		run->prev->next = run->next;
	else
		run->hub->runs = run->next;
	if (run->next != NULL)
		run->next->prev = run->prev;
	for (struct session *s = run->hub->sessions; s != NULL; s = s->next)
		if (s->last == run)
			s->last = NULL;
	loop_timer_del(run->hub->loop, &run->timeout);
	logfile_close(&run->log);
	backsum_drop(&run->back);
	free(run);
}

void
run_put(struct run *run)
{
	if (run_state_is_final(run->info.state) && run->watches == NULL && !sync_item_busy(&run->sync) &&
	    !sync_item_busy(&run->digest) && run->epoch == 0)
		run_free(run);
}

int
run_new(struct hub *hub, const struct run_info *info, const char *spec, size_t spec_len, struct run **ret_run)
{
	struct run *run = alloc_run(hub, info);
	int r;

	if (run == NULL)
		return -ENOMEM;
	r = store_run_add(hub->store, info, spec, spec_len);
	if (r == 0)
		r = logfile_open(hub->logfd, info->handle, true, NULL, 0, &run->log);
	if (r < 0) {
		if (r != -EEXIST)
			store_run_delete(hub->store, info->handle);
		free(run);
		return r;
	}
	link_run(run);
	runlog_init(run);
	*ret_run = run;
	return 0;
}

static int
load(struct hub *hub, const char *handle, struct run **ret_run)
{
	struct logfile_gap *gaps = NULL;
	struct run_info info;
	struct run *run;
	size_t ngaps = 0;
	int r = store_run_get(hub->store, handle, &info);

	if (r == 0)
		r = store_gaps(hub->store, handle, &gaps, &ngaps);
	if (r < 0)
		return r;
	run = alloc_run(hub, &info);
	r = run != NULL ? logfile_open(hub->logfd, handle, !run_state_is_final(info.state), gaps, ngaps,
	    &run->log) : -ENOMEM;
	free(gaps);
	if (r < 0) {
		free(run);
		return r;
	}
	link_run(run);
	runlog_init(run);
	shell_load(run);
	if (!run_state_is_final(info.state) && info.timeout_ms > 0 && info.started > 0)
		loop_timer_set_ms(hub->loop, &run->timeout,
		    info.timeout_ms - (monotime_wall_ns() - info.started) / 1000000);
	/* The hub died between the final status and the comparison. */
	if (run_state_is_final(info.state) && info.verify == RUN_UNVERIFIED && info.has_digest)
		run_verify(run);
	*ret_run = run;
	return 0;
}

struct run *
run_get(struct hub *hub, const char *handle)
{
	struct run *run;
	int r;

	for (run = hub->runs; run != NULL; run = run->next)
		if (strcmp(run->info.handle, handle) == 0)
			return run;
	r = load(hub, handle, &run);
	if (r < 0 && r != -ENOENT)
		log_error("run %s: cannot be loaded: %s", handle, strerror(-r));
	return r == 0 ? run : NULL;
}

void
run_save(struct run *run)
{
	int r = store_run_update(run->hub->store, &run->info);

	if (r < 0)
		log_error("run %s: cannot be stored: %s", run->info.handle, strerror(-r));
}

void
run_watch(struct run *run, struct run_watch *watch)
{
	watch->run = run;
	watch->prev = NULL;
	watch->next = run->watches;
	if (watch->next != NULL)
		watch->next->prev = watch;
	run->watches = watch;
}

void
run_unwatch(struct run_watch *watch)
{
	struct run *run = watch->run;

	if (run == NULL)
		return;
	if (watch->prev != NULL)
		watch->prev->next = watch->next;
	else
		run->watches = watch->next;
	if (watch->next != NULL)
		watch->next->prev = watch->prev;
	watch->run = NULL;
	run_put(run);
}

bool
run_is_closed(const struct run *run)
{
	return run_state_is_final(run->info.state) && !run->closing;
}

static void
scrub(struct loop_timer *timer)
{
	struct hub *hub = timer->ctx;
	int r = store_scrub(hub->store);

	if (r < 0) {
		log_warn("the write-ahead log cannot be emptied of what was in starts: %s", strerror(-r));
		loop_timer_set_ms(hub->loop, &hub->scrub, 60 * 1000);
	}
}

void
run_scrub_init(struct hub *hub)
{
	loop_timer_init(&hub->scrub, scrub, hub);
}

/* What may be secret in a start goes from the database at once and from its log after a moment, for many starts together. */
static void
drop_spec(struct run *run)
{
	struct hub *hub = run->hub;

	if (run->spec_gone)
		return;
	run->spec_gone = store_run_drop_spec(hub->store, run->info.handle) == 0;
	ship_drop(hub, run->info.handle);
	if (!loop_timer_armed(&hub->scrub))
		loop_timer_set_ms(hub->loop, &hub->scrub, SCRUB_MS);
}

void
run_bind(struct run *run, struct session *s, uint32_t channel)
{
	run->epoch = s->epoch;
	run->edgeward = s->edgeward;
	run->channel = channel;
	run->acked = run->log.durable;
	run->window = run->log.durable + STREAM_WINDOW;
	run->ack_to = run->acked;
	/* The device holds it, so it has its start: what may be secret in it is not needed here any more. */
	if (run->info.state == RUN_PENDING) {
		drop_spec(run);
		run->info.state = RUN_RUNNING;
		run_save(run);
		if (run->info.timeout_ms > 0)
			loop_timer_set_ms(s->hub->loop, &run->timeout, run->info.timeout_ms);
	}
}

void
run_notify(struct run *run)
{
	struct run_watch *next;

	for (struct run_watch *w = run->watches; w != NULL; w = next) {
		next = w->next;
		w->cb(w);
	}
}

void
run_started(struct run *run, const struct frame_started *started)
{
	if (run_state_is_final(run->info.state))
		return;		/* a short one may end before its start is answered */
	if (run->info.state == RUN_PENDING || run->info.started == 0)
		drop_spec(run);
	run->info.state = RUN_RUNNING;
	run->info.pid = started->pid;
	run->info.started = started->started_at != 0 ? started->started_at : monotime_wall_ns();
	if (run->info.timeout_ms > 0 && !loop_timer_armed(&run->timeout))
		loop_timer_set_ms(run->hub->loop, &run->timeout, run->info.timeout_ms);
	run_save(run);
	run_notify(run);
}

/*
 * Nothing more will come: compares digests, stores, tells those who wait. The run leaves its session, so that what is
 * finished costs neither memory nor a descriptor; its last bytes are flushed before any heartbeat is acknowledged.
 */
static void
finish(struct run *run)
{
	run->epoch = 0;
	run->channel = 0;
	run->info.ended = monotime_wall_ns();
	run_flush(run);
	loop_timer_del(run->hub->loop, &run->timeout);
	drop_spec(run);
	if (run->owes)
		(void)store_shell_over(run->hub->store, run->info.handle);	/* what stays there is asked for once more, in vain */
	run_verify(run);
	run_save(run);
	log_info("run %s: %s, %llu bytes of log, %s", run->info.handle, run_state_name(run->info.state),
	    (unsigned long long)run->log.next, run->closing ? "being verified" : run_verify_name(run->info.verify));
	run_notify(run);
}

void
run_refused(struct run *run, const char *code, const char *error)
{
	if (run_state_is_final(run->info.state))
		return;
	run->info.state = RUN_REFUSED;
	run->info.finished = monotime_wall_ns();
	text_clean(run->info.code, sizeof(run->info.code), code != NULL ? code : "");
	text_clean(run->info.error, sizeof(run->info.error), error);
	finish(run);
	run_put(run);
}

void
run_lost(struct run *run, const char *error)
{
	if (run_state_is_final(run->info.state))
		return;
	run->info.state = RUN_LOST;
	run->info.finished = monotime_wall_ns();
	text_clean(run->info.error, sizeof(run->info.error), error);
	finish(run);
	run_put(run);
}

void
run_status(struct run *run, const struct frame_status *status)
{
	struct run_info *info = &run->info;

	/* Final is final: a repeat after a lost ack, or a late answer to a signal, changes nothing. */
	if (!run_state_is_final(info->state) && run_state_is_final(status->state)) {
		info->state = status->state;
		info->exit_code = status->exit_code;
		info->term_signal = status->term_signal;
		info->pid = status->pid != 0 ? status->pid : info->pid;
		info->started = status->started_at != 0 ? status->started_at : info->started;
		info->finished = status->finished_at != 0 ? status->finished_at : monotime_wall_ns();
		text_clean(info->outcome, sizeof(info->outcome), status->outcome);
		text_clean(info->limit, sizeof(info->limit), status->limit);
		text_clean(info->error, sizeof(info->error), status->error);
		if (status->final_offset != FRAME_NONE)
			info->final_offset = (int64_t)status->final_offset;
		if (status->has_digest && !info->has_digest) {
			info->has_digest = true;
			memcpy(info->digest, status->digest, sizeof(info->digest));
		}
		if (run->shell && run->shell_code >= 0 && info->state != RUN_LOST) {
			info->state = RUN_EXITED;
			info->exit_code = run->shell_code;
			info->term_signal = 0;
			snprintf(info->outcome, sizeof(info->outcome), "exited");
		}
		finish(run);
	} else if (run_state_is_final(info->state)) {
		run->epoch = 0;
		run->channel = 0;
	}
	run_put(run);
}

/* Ends what the device did not: first politely. While the device is away the timer waits for it. */
static void
timeout_cb(struct loop_timer *timer)
{
	struct run *run = timer->ctx;
	struct session *s = session_find(run->hub, run->info.device);

	if (run_state_is_final(run->info.state))
		return;
	if (s != NULL && session_signal_run(s, run->info.handle, run->kills == 0 ? "terminate" : "kill", 0, 0) == 0) {
		if (run->kills++ == 0)
			log_info("run %s: over its timeout, ended", run->info.handle);
		run->info.timed_out = true;
		run_save(run);
	}
	loop_timer_set_ms(run->hub->loop, &run->timeout, KILL_GRACE_MS);
}
