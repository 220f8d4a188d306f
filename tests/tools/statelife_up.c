/*
 * A hub's request for an upgrade, from the frame to the request that privupgrade takes: connectd's own upgrader fetches DIR/x.release, signed
 * by a key in DIR/keys, from a mirror that is a file, stages it in DIR/box and asks for it. What was told to the hub. Events. Results.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/eventlog.h"
#include "common/fdutil.h"
#include "connectd/upgrader.h"
#include "proto/ipc/job.h"
#include "tests/tools/statelife.h"
#include "workerd/result.h"
#include "workerd/workerd.h"

#define FILE_MAX	(8u << 20)
#define PIECE		65536u

/* ---- the job's file by itself ---- */

void
job_write(bool is_new)
{
	struct upjob job = { .phase = UPJOB_QUEUED, .target = "latest", .from = "1.0", .version = "2.0", .sequence = 2 };

	snprintf(job.id, sizeof(job.id), "job-%s", is_new ? "new" : "old");
	NEED(upjob_save(dir, &job) == 0);
}

const char *
job_check(void)
{
	struct upjob job;

	upjob_load(dir, &job);
	NEED(job.phase == UPJOB_QUEUED && (strcmp(job.id, "job-new") == 0 || strcmp(job.id, "job-old") == 0));
	return job.id[4] == 'n' ? "new" : "old";
}

/* ---- the upgrader, with a mirror that is a file ---- */

static struct loop *loop;
static struct upgrader up;
static struct upfetch_cb cb;
static struct loop_timer answer;
static uint64_t from;
static int box;

static void
give(struct loop_timer *timer)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct upfetch_end end = { .what = HTTPGET_BODY };
	struct httpget g = { .what = HTTPGET_BODY, .from = from };
	size_t len;

	NEED(fd_read_file(dir, "x.release", FILE_MAX, &data, &len) == 0);
	g.total = len;
	NEED(cb.head(&g, timer->ctx) == 0);
	for (size_t at = (size_t)from; at < len; at += PIECE)
		NEED(cb.body(data + at, len - at < PIECE ? len - at : PIECE, timer->ctx) == 0);
	cb.ended(&end, timer->ctx);
}

static int
net_start(struct netenv *env, struct loop *l, const struct upfetch_params *p, const struct upfetch_cb *c, void *ctx, struct upfetch **ret_fetch,
    char err[200])
{
	cb = *c;
	from = p->from;
	*ret_fetch = (struct upfetch *)&cb;
	loop_timer_init(&answer, give, ctx);
	loop_timer_set(l, &answer, monotime_now());
	return 0;
}

static void
net_free(struct upfetch *f)
{
	loop_timer_del(loop, &answer);
}

static bool
never(void *ctx)
{
	return false;
}

/* As connectd starts. */
static void
start(void)
{
	static const struct upgrader_net net = { .start = net_start, .free = net_free };
	static const struct conf conf = { .upgrade_mirror = "https://mirror.test/", .upgrade_wait_min = 10, .upgrade_wait_max = 10 };
	static const struct policy policy = { .remote_upgrade = true };
	static struct clock_floor clock;
	static char releases[64], keys[64];

	snprintf(releases, sizeof(releases), "/proc/self/fd/%d/releases", dir);
	snprintf(keys, sizeof(keys), "/proc/self/fd/%d/keys", dir);
	box = openat(dir, "box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	NEED(box >= 0 && loop_new(&loop) == 0);
	upgrader_init(&up, &(struct upgrader_params){ .loop = loop, .net = &net, .conf = &conf, .policy = &policy, .clock = &clock, .statedir = box,
	    .releases = releases, .keys = keys, .managed = true, .helper = true, .sequence = 1, .busy = never });
}

static void
stop(void)
{
	upgrader_done(&up);
	loop_free(loop);
	close(box);
}

/* It goes on with what it finds at its start, or is asked. */
void
upgrade_write(bool is_new)
{
	static const struct uptarget latest = { .kind = UPTARGET_LATEST, .name = "latest" };

	start();
	if (is_new && up.job.phase == UPJOB_NONE)
		NEED(upgrader_begin(&up, "job-1", &latest, 7) == 0);
	else if (loop_timer_armed(&up.timer))
		loop_timer_set(loop, &up.timer, monotime_now());	/* nobody need wait here */
	for (unsigned i = 0; is_new && i < 1000 && !upstage_requested(&up.stage) && up.job.phase != UPJOB_FAILED; i++)
		loop_turn(loop, 10);
	NEED(!is_new || (up.job.phase == UPJOB_QUEUED && upstage_requested(&up.stage)));
	stop();
}

static bool
is_there(const char *name)
{
	return faccessat(box, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void
release_is_whole(void)
{
	_cleanup_free_ uint8_t *data = NULL, *want = NULL;
	size_t len, wlen;

	NEED(fd_read_file(dir, "x.release", FILE_MAX, &want, &wlen) == 0 && fd_read_file(box, UPSTAGE_RELEASE, FILE_MAX, &data, &len) == 0);
	NEED(len == wlen && memcmp(data, want, len) == 0);
}

static void
request_is_right(void)
{
	_cleanup_free_ uint8_t *data = NULL;
	struct upgrade_request request;
	size_t len;

	NEED(fd_read_file(box, UPSTAGE_REQUEST, 1024, &data, &len) == 0 && upgrade_request_parse(data, len, &request) == 0);
	NEED(request.sequence == 7 && request.settle == 7 && strcmp(request.id, "job-1") == 0 && !request.downgrade);
}

/* What privupgrade would find, before connectd starts again and after that. */
const char *
upgrade_check(void)
{
	const char *found;
	bool requested;

	box = openat(dir, "box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	requested = is_there(UPSTAGE_REQUEST);
	if (requested) {
		request_is_right();
		release_is_whole();
	}
	close(box);
	start();
	NEED(!is_there(UPSTAGE_PART) && requested == is_there(UPSTAGE_REQUEST));
	NEED(up.job.phase != UPJOB_FAILED && (!requested || up.job.phase == UPJOB_QUEUED));
	if (up.job.phase == UPJOB_QUEUED)
		release_is_whole();
	else
		NEED(!is_there(UPSTAGE_RELEASE));
	NEED(up.job.phase == UPJOB_NONE || loop_timer_armed(&up.timer));	/* somebody goes on with it */
	found = up.job.phase == UPJOB_NONE ? "old" : requested ? "new" : "between";
	stop();
	return found;
}

/* ---- what the hub has been told ---- */

static void
add_entry(struct upgrade_history *h, uint64_t attempt, const char *id)
{
	struct upgrade_entry e = { .attempt = attempt, .source = UPGRADE_HUB, .outcome = UPGRADE_OUT_DONE, .from = 1, .to = 2, .version = "2.0",
		.code = "ok", .detail = "installed" };

	snprintf(e.id, sizeof(e.id), "%s", id);
	upgrade_history_add(h, &e);
}

void
told_write(bool is_new)
{
	struct upjob job = { .phase = UPJOB_QUEUED, .id = "job-1", .target = "latest", .from = "1.0", .version = "2.0", .sequence = 2 };
	static struct upgrade_history h;
	struct upgrader_result r;
	char buf[2048];
	int releases, n;

	if (is_new) {
		start();
		if (upgrader_result(&up, 0, &r)) {
			NEED(r.attempt == 4 && strcmp(r.id, "job-1") == 0 && strcmp(r.outcome, "installed") == 0);
			upgrader_told(&up, 4);
		}
		stop();
		return;
	}
	releases = openat(dir, "releases", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	box = openat(dir, "box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	add_entry(&h, 3, "before");
	add_entry(&h, 4, "job-1");
	n = upgrade_history_write(&h, buf, sizeof(buf));
	NEED(n > 0 && fd_replace_file(releases, "results", buf, (size_t)n, 0644) == 0);
	NEED(upjob_save(box, &job) == 0 && upjob_save_told(box, 3) == 0);
	close(box);
	close(releases);
}

/* Told again, or told and over; never told and still under way. */
const char *
told_check(void)
{
	struct upgrader_result r;
	bool again;

	start();
	NEED(up.told == 3 || up.told == 4);
	again = upgrader_result(&up, 0, &r);
	NEED(again == (up.told == 3) && (again || up.job.phase == UPJOB_NONE));
	NEED(!again || (r.attempt == 4 && strcmp(r.id, "job-1") == 0 && !upgrader_result(&up, 1, &r)));
	stop();
	return again ? "old" : "new";
}

/* ---- events ---- */

#define EVENTS_NEW	6u	/* the file becomes full among them */

void
events_write(bool is_new)
{
	struct eventlog log;
	uint64_t until;

	eventlog_open(&log, dir);
	until = log.next + EVENTS_NEW;
	while (is_new ? log.next < until : log.size < EVENTLOG_MAX - 300)
		eventlog_add(&log, "kind", "subject", "this is event %" PRIu64 ", and it has a text that is long enough", log.next);
	eventlog_close(&log);
}

static int
look_at_event(const struct ctl_event *e, void *ctx)
{
	uint64_t *last = ctx;
	char text[sizeof(e->text)];

	snprintf(text, sizeof(text), "this is event %" PRIu64 ", and it has a text that is long enough", e->seq);
	NEED(e->seq > *last && strcmp(e->text, text) == 0);
	*last = e->seq;
	return 0;
}

const char *
events_check(void)
{
	struct eventlog log;
	uint64_t last = 0, next;

	eventlog_open(&log, dir);
	next = log.next;
	eventlog_read(&log, 0, SIZE_MAX, look_at_event, &last);
	NEED(last + 1 == next);
	/* The next one is kept, whatever the end of the file looks like. */
	eventlog_add(&log, "kind", "subject", "this is event %" PRIu64 ", and it has a text that is long enough", log.next);
	eventlog_close(&log);
	eventlog_open(&log, dir);
	NEED(log.next == next + 1);
	eventlog_close(&log);
	return faccessat(dir, EVENTLOG_OLD, F_OK, 0) == 0 ? "new" : "old";
}

/* ---- what a run brought back ---- */

static struct workerd worker;
static struct workload run = { .w = &worker };

static void
result_life(void)
{
	result_open(&worker, dir);
	snprintf(run.info.handle, sizeof(run.info.handle), "a");
	NEED(worker.results >= 0);
}

void
result_write(bool is_new)
{
	struct work_result res = { .flags = WORK_RESULT_BACK, .mode = JOB_BACK_BUNDLE };

	result_life();
	memset(res.commit, is_new ? 'b' : 'a', 40);
	snprintf(res.branch, sizeof(res.branch), "%s", is_new ? "new" : "old");
	result_keep(&run, &res);
	free(run.result);
}

const char *
result_check(void)
{
	const char *found;

	result_life();
	result_load(&run);
	NEED(run.result != NULL);
	found = run.result->commit[0] == 'b' ? "new" : "old";
	NEED(strcmp(run.result->branch, found) == 0);
	free(run.result);
	return found;
}
