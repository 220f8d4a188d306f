/*
 * Who calls: start.c with what connectd sent and start.c has admitted; life.c and launchchan.c when a process of ours has ended.
 * What a step prints is a workload's output like any other and trusted as little: the last line that begins with "edgeward: "
 * is shown to the operator, no more. The order in the record: what the next stage needs is written first, then its number; what belongs
 * to the process before is reset by begin(), which may be done twice.
 */
#include "workerd/stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "workerd/admit.h"
#include "workerd/container.h"
#include "workerd/handout.h"
#include "workerd/launchchan.h"
#include "workerd/leases.h"
#include "workerd/life.h"
#include "workerd/output.h"
#include "workerd/result.h"
#include "workerd/start.h"
#include "workerd/stepenv.h"
#include "workerd/sweep.h"
#include "workerd/workchan.h"
#include "workerd/workerd.h"

#define REFUSE_WAIT_MS	3000	/* so long the log of a refused start may take to be sent before the refusal */
#define REMOVALS	60u	/* so often in a row a container is looked for in vain: about ten minutes */
#define REMOVE_AGAIN_MS	1000
#define LINE_LOOK	4096u	/* bytes of log in which the reason is looked for */
#define MINUTE		60000LL

static const int64_t deadlines[STAGES] = { [STAGE_FETCH] = 30 * MINUTE, [STAGE_PLACE] = 10 * MINUTE, [STAGE_CLEAN] = 10 * MINUTE,
	[STAGE_COLLECT] = 10 * MINUTE, [STAGE_PUSH] = 10 * MINUTE, [STAGE_CREATE] = 5 * MINUTE, [STAGE_REMOVE] = 10 * MINUTE,
	[STAGE_INSTALL] = 15 * MINUTE };

/* The spec and the job in the record, while one is looked at: views into text. */
static uint8_t text[WORK_SPEC_MAX];
static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
static struct work_net net;

enum stage
stage_of(const struct workload *wl)
{
	return wl->rec.h != NULL && wl->rec.h->stage < STAGES ? (enum stage)wl->rec.h->stage : STAGE_PAYLOAD;
}

bool
stage_is_before(const struct workload *wl)
{
	enum stage s = stage_of(wl);

	return s == STAGE_FETCH || s == STAGE_PLACE || s == STAGE_CLEAN || s == STAGE_CREATE;
}

bool
stage_is_after(const struct workload *wl)
{
	return stage_of(wl) == STAGE_COLLECT || stage_of(wl) == STAGE_PUSH || stage_of(wl) == STAGE_REMOVE;
}

int64_t
stage_deadline(enum stage stage)
{
	return deadlines[stage];
}

static int
load_job(const struct workload *wl, struct work_spec *spec, struct work_job *job)
{
	int r;

	*spec = (struct work_spec){ .argv = argv, .env = env, .net = &net };
	r = record_get_job(&wl->rec, text, sizeof(text));
	if (r == 0)
		r = work_spec_decode(spec, text, wl->rec.h->job_len);
	return r < 0 ? r : job_decode(job, spec->job.s, spec->job.len);
}

/* ---- starting ---- */

/* The bundle lies beside the journal and the spool until the hub has it. */
static enum work_refusal
check_room(const struct workerd *w, const struct work_job *job, char error[208])
{
	uint64_t bytes = UINT64_MAX, inodes;
	struct statvfs st;

	if (fstatvfs(w->results, &st) == 0)
		admit_free(&st, &bytes, &inodes);
	if (bytes >= w->conf.work_disk_low && bytes - w->conf.work_disk_low >= job->max_bundle)
		return WORK_OK;
	snprintf(error, 208, "disk-full: %llu MiB free in the state directory, the bundle of this start may have %llu and [work] disk-low is %llu",
	    (unsigned long long)(bytes >> 20), (unsigned long long)(job->max_bundle >> 20),
	    (unsigned long long)(w->conf.work_disk_low >> 20));
	return WORK_REFUSED_DISK_LOW;
}

/* The device's word, or that of the start; with filtered it may be both, as what is left of the two is nothing. */
static enum work_refusal
no_network(const struct policy *policy, char error[208])
{
	char where[POLICY_WHERE];

	policy_where(policy, POLICY_NETWORK, where);
	if (policy->network == POLICY_NETWORK_HOST)
		snprintf(error, 208, "this start takes the network away: git cannot fetch a workspace without one");
	else
		snprintf(error, 208, "%s = %s: git cannot fetch a workspace without a network", where,
		    policy->network == POLICY_NETWORK_NONE ? "none" : "filtered, of which this start gets nothing");
	return policy->network == POLICY_NETWORK_HOST ? WORK_REFUSED_UNSUPPORTED : WORK_REFUSED_POLICY;
}

enum work_refusal
stage_check(const struct workerd *w, const struct work_spec *spec, const struct work_job *job, char error[208])
{
	if (job_is_plain(job))
		return WORK_OK;
	if (job->expires_at != 0 && job->expires_at <= monotime_wall_ns()) {
		snprintf(error, 208, "the workspace credential has expired; get a new one, or set this device's clock");
		return WORK_REFUSED_START_FAILED;
	}
	if (job->workspace == JOB_WORKSPACE_GIT && spec->network == WORK_NETWORK_NONE)
		return no_network(&w->policy, error);
	if ((job->workspace != JOB_WORKSPACE_NONE || job->back != JOB_BACK_NONE) && !inventory_has_git()) {
		snprintf(error, 208, "no git on this device; install it, or use a plain work directory");
		return WORK_REFUSED_UNSUPPORTED;
	}
	if ((job->back != JOB_BACK_NONE || job->seeded) && w->results < 0) {
		snprintf(error, 208, "the state directory cannot keep results; see the log of workerd");
		return WORK_REFUSED_START_FAILED;
	}
	return job->back == JOB_BACK_BUNDLE ? check_room(w, job, error) : WORK_OK;
}

/* The clock of the new stage, and nothing left of the one before. */
static void
begin(struct workload *wl)
{
	static const struct launch_report none;
	struct record_head *h = wl->rec.h;

	output_close(wl);
	ipc_chan_done(&wl->init);
	leases_ended(wl);
	h->flags &= ~(RECORD_F_TREE_GONE | RECORD_F_TIMEOUT | RECORD_F_LIMIT | RECORD_F_KILL);
	if (stage_is_after(wl))
		h->flags &= ~RECORD_F_CANCEL;
	h->pending_signal = 0;
	h->stage_from = h->head;
	h->deadline = deadlines[h->stage] != 0 ? monotime_add_ms(monotime_now(), deadlines[h->stage]).ns : 0;
	if (pwrite(wl->rec.report, &none, sizeof(none), 0) != (ssize_t)sizeof(none))
		log_error("report of %s: %s", wl->info.handle, strerror(errno));
}

int
stage_first(struct workload *wl, struct work_spec *spec, const struct work_job *job, int bundle)
{
	size_t len;
	int r;

	spec->secrets = (struct work_str){ 0 };		/* the vault has them, until the payload begins */
	r = work_spec_encode(spec, text, sizeof(text), &len);
	if (r == 0)
		r = record_put_job(&wl->rec, text, len);
	if (r < 0)
		return r == -ENOSPC ? -E2BIG : r;
	explicit_bzero(text, len);
	wl->rec.h->stage = job->workspace != JOB_WORKSPACE_NONE ? STAGE_FETCH : job->seeded ? STAGE_PLACE : job->container ? STAGE_CREATE :
	    STAGE_PAYLOAD;
	if (job->container)
		wl->rec.h->flags |= RECORD_F_CONTAINER;
	begin(wl);
	wl->bundle = bundle;
	r = stage_launch(wl);
	wl->bundle = -1;
	return r;
}

/* What the process reads, or writes, as descriptor 0, to *ret_fd; -1 = nothing. 0 or -errno. */
static int
input_of(struct workload *wl, const struct work_job *job, enum stage stage, int *ret_fd)
{
	int fd;

	*ret_fd = -1;
	if (stage == STAGE_FETCH && wl->bundle >= 0) {
		fd = fcntl(wl->bundle, F_DUPFD_CLOEXEC, 3);
		if (fd < 0)
			return -errno;
	} else if (stage == STAGE_PLACE && job->seeded) {
		fd = fd_sealed_memfd("seed", job->seed.s, job->seed.len);
		if (fd >= 0)
			lseek(fd, 0, SEEK_SET);	/* behind what was written */
	} else if (stage == STAGE_COLLECT) {
		fd = result_create(wl);
	} else {
		return 0;
	}
	*ret_fd = fd < 0 ? -1 : fd;
	return fd < 0 ? fd : 0;
}

int
stage_launch(struct workload *wl)
{
	enum stage stage = stage_of(wl);
	_cleanup_close_ int input = -1;
	struct result_trailer t = { 0 };
	struct work_spec spec;
	struct work_job job;
	uint64_t bytes;
	int r = load_job(wl, &spec, &job);

	if (r == 0 && stage == STAGE_PUSH)
		r = result_read(wl, &t, &bytes);
	if (r == 0)
		r = input_of(wl, &job, stage, &input);
	if (r == 0 && container_stage(wl, stage))
		r = container_step(wl, &spec, &job, stage);
	else if (r == 0 && stage != STAGE_PAYLOAD)
		r = stepenv_make(&spec, &job, stage, t.head, wl->rec.h->payload_good != 0);
	else if (r == 0)
		r = handout_make(wl, &spec);
	spec.job = (struct work_str){ 0 };
	if (r == 0)
		r = start_process(wl, &spec, stage, input);
	stepenv_wipe();
	handout_wipe();
	container_wipe();
	explicit_bzero(text, wl->rec.h->job_len);
	return r;
}

int
stage_catch_up(struct workload *wl)
{
	begin(wl);
	return stage_launch(wl);
}

/* ---- what follows ---- */

void
stage_last_word(const struct workload *wl, const char *otherwise, char *reason, size_t size)
{
	static const char mark[] = "edgeward: ";
	const struct record_head *h = wl->rec.h;
	uint64_t len = h != NULL ? h->head - h->stage_from : 0, most = h != NULL && h->ring < LINE_LOOK ? h->ring : LINE_LOOK;
	const char *p, *found = NULL;
	size_t n;

	len = len < most ? len : most;
	p = len > 0 ? (const char *)record_at(&wl->rec, h->head - len) : NULL;
	for (size_t i = 0; i + sizeof(mark) - 1 <= len; i++)
		if ((i == 0 || p[i - 1] == '\n') && memcmp(p + i, mark, sizeof(mark) - 1) == 0)
			found = p + i + sizeof(mark) - 1;
	if (found == NULL) {
		snprintf(reason, size, "%s", otherwise);
		return;
	}
	for (n = 0; found + n < p + len && found[n] != '\n' && n + 1 < size; n++)
		reason[n] = found[n] >= ' ' && found[n] <= '~' ? found[n] : '?';
	reason[n] = '\0';
}

/* True when the step did all it had to; else why not is noted. */
static bool
succeeded(struct workload *wl)
{
	static const char *const what[STAGES] = { [STAGE_FETCH] = "fetching the workspace", [STAGE_PLACE] = "placing the workspace",
		[STAGE_CLEAN] = "removing the workspace", [STAGE_COLLECT] = "collecting the result", [STAGE_PUSH] = "pushing the result", [STAGE_CREATE] = "creating the container" };
	struct record_head *h = wl->rec.h;
	struct launch_report rep;
	char other[160];

	record_report(&wl->rec, &rep);
	if ((h->flags & (RECORD_F_CANCEL | RECORD_F_TIMEOUT | RECORD_F_LIMIT | RECORD_F_DISOWNED)) == 0 &&
	    (rep.flags & LAUNCH_REPORT_EXITED) != 0 && rep.exited.wstatus == 0)
		return true;
	if (h->reason[0] != '\0')	/* of the stage that failed first */
		return false;
	if ((h->flags & (RECORD_F_CANCEL | RECORD_F_DISOWNED)) != 0)
		snprintf(h->reason, sizeof(h->reason), "cancelled while %s", what[h->stage]);
	else if ((h->flags & RECORD_F_TIMEOUT) != 0)
		snprintf(h->reason, sizeof(h->reason), "%s took longer than %lld minutes", what[h->stage],
		    (long long)(deadlines[h->stage] / MINUTE));
	else if ((h->flags & RECORD_F_LIMIT) != 0)
		snprintf(h->reason, sizeof(h->reason), "%s wrote more than the limit of output", what[h->stage]);
	else if ((rep.flags & LAUNCH_REPORT_FAILED) != 0)
		life_failed_text(&rep, h->reason, sizeof(h->reason));
	else {
		snprintf(other, sizeof(other), "%s: %s", what[h->stage], wl->end.oom_kills > 0 ? "ended at the limit of memory" :
		    "its process ended early; see the log");
		stage_last_word(wl, other, h->reason, sizeof(h->reason));
	}
	return false;
}

static enum event
go(struct workload *wl, enum stage next)
{
	__atomic_store_n(&wl->rec.h->stage, (uint32_t)next, __ATOMIC_SEQ_CST);
	begin(wl);
	return EV_NEXT;
}

/* The refusal comes behind the last byte of the log, if somebody takes that. */
static enum event
refuse(struct workload *wl)
{
	struct record_head *h = wl->rec.h;
	bool waits = wl->w->session && !(wl->subscribed && wl->cursor >= h->head);

	record_wipe_job(&wl->rec);
	wl->refusing = true;
	snprintf(wl->info.error, sizeof(wl->info.error), "%s", h->reason);
	life_over_disk(wl, h->reason);
	workchan_tell(wl);
	loop_timer_set_ms(wl->w->loop, &wl->refuse_timer, waits ? REFUSE_WAIT_MS : 0);
	return EVENTS;
}

static void
refuse_now(struct loop_timer *timer)
{
	struct workload *wl = timer->ctx;

	if (stage_of(wl) == STAGE_REMOVE) {
		begin(wl);
		workload_event(wl, EV_NEXT);
	} else {
		workload_unprepared(wl, wl->rec.h->reason);
	}
}

void
stage_init(struct workload *wl)
{
	wl->bundle = -1;
	loop_timer_init(&wl->refuse_timer, refuse_now, wl);
}

void
stage_sent(struct workload *wl)
{
	if (wl->refusing && wl->cursor >= wl->rec.h->head)
		loop_timer_set_ms(wl->w->loop, &wl->refuse_timer, 0);
}

static bool
owes_result(const struct record_head *h, const struct work_job *job)
{
	return h->saved.outcome != WORK_OUTCOME_LOST && (h->flags & RECORD_F_DISOWNED) == 0 &&
	    (job->seeded || (job->back != JOB_BACK_NONE && h->payload_good != 0));
}

/* Its outcome is noted before anything else happens to the record. */
static enum event
after_payload(struct workload *wl, const struct work_job *job)
{
	struct record_head *h = wl->rec.h;
	bool good;

	life_outcome(wl);
	h->saved = wl->info;
	good = wl->info.outcome == WORK_OUTCOME_EXITED && wl->info.exit_code == 0;
	h->payload_good = good;
	if (!job->container && !owes_result(h, job))
		return EV_DRAINED;
	/* Until everything owed is there it counts as running. */
	wl->info.outcome = WORK_OUTCOME_NONE;
	wl->info.limit = WORK_LIMIT_NONE;
	wl->info.finished_at = 0;
	wl->info.error[0] = '\0';
	return go(wl, job->container ? STAGE_REMOVE : STAGE_COLLECT);
}

/*
 * Nothing of a container is told as ended while it may be there. Each try is a process of its own, because an engine that was started again may
 * have another socket. In the end it is told, and the sweep goes on trying.
 */
static enum event
after_remove(struct workload *wl, const struct work_job *job)
{
	struct record_head *h = wl->rec.h;
	struct launch_report rep;
	char why[208];

	record_report(&wl->rec, &rep);
	if ((rep.flags & LAUNCH_REPORT_EXITED) == 0 || rep.exited.wstatus != 0) {
		if (wl->removals++ < REMOVALS) {
			loop_timer_set_ms(wl->w->loop, &wl->refuse_timer, wl->removals < 4 ? REMOVE_AGAIN_MS : 10 * REMOVE_AGAIN_MS);
			return EVENTS;
		}
		stage_last_word(wl, "its container could not be removed yet", why, sizeof(why));
		log_error("%s: %s", wl->info.handle, why);
		if (h->saved.error[0] == '\0')
			snprintf(h->saved.error, sizeof(h->saved.error), "%.180s; it is tried again", why);
		sweep_leftover(wl->w, wl->info.handle);
	}
	return owes_result(h, job) ? go(wl, STAGE_COLLECT) : EV_DRAINED;
}

enum event
stage_drained(struct workload *wl)
{
	enum stage stage = stage_of(wl);
	struct result_trailer t;
	struct work_spec spec;
	struct work_job job;
	uint64_t bytes;

	if (wl->rec.h == NULL || (wl->rec.h->flags & RECORD_F_FINAL) != 0 || stage == STAGE_INSTALL || (stage == STAGE_PAYLOAD && wl->rec.h->job_len == 0))
		return EV_DRAINED;
	if (wl->refusing || stage == STAGE_CLEAN)
		return wl->refusing ? EVENTS : refuse(wl);
	if (load_job(wl, &spec, &job) < 0)
		return stage_is_before(wl) ? refuse(wl) : EV_DRAINED;
	if (stage == STAGE_PAYLOAD)
		return after_payload(wl, &job);
	if (stage == STAGE_REMOVE)
		return after_remove(wl, &job);
	if (stage_is_before(wl)) {
		if (!succeeded(wl))
			return job.workspace != JOB_WORKSPACE_NONE && stage != STAGE_CREATE ? go(wl, STAGE_CLEAN) : refuse(wl);
		return go(wl, stage == STAGE_FETCH ? STAGE_PLACE : stage == STAGE_PLACE && job.container ? STAGE_CREATE : STAGE_PAYLOAD);
	}
	if (succeeded(wl) && stage == STAGE_COLLECT && job.back == JOB_BACK_PUSH && wl->rec.h->payload_good &&
	    result_read(wl, &t, &bytes) == 0 && t.head[0] != '\0' && t.skip[0] == '\0')
		return go(wl, STAGE_PUSH);
	return EV_DRAINED;
}

enum event
stage_refused(struct workload *wl, char error[208])
{
	struct record_head *h = wl->rec.h;

	if (stage_of(wl) == STAGE_REMOVE)
		sweep_leftover(wl->w, wl->info.handle);
	if (stage_is_after(wl)) {
		snprintf(h->reason, sizeof(h->reason), "%s", error);
		return EV_NO_MORE;
	}
	if (stage_of(wl) == STAGE_CLEAN)
		snprintf(error, 208, "%s", h->reason);
	return EV_REFUSED;
}

/* ---- the end ---- */

static void
put(char *dst, size_t size, const struct work_str *s)
{
	snprintf(dst, size, "%.*s", (int)s->len, s->len > 0 ? s->s : "");
}

static void
fill_back(const struct workload *wl, const struct work_job *job, const struct result_trailer *t, uint64_t bytes, struct work_result *res)
{
	const struct record_head *h = wl->rec.h;
	struct work_str base = job_base(job);

	res->flags |= WORK_RESULT_BACK;
	res->mode = (uint32_t)job->back;
	put(res->branch, sizeof(res->branch), &job->branch);
	put(res->base, sizeof(res->base), &base);
	memcpy(res->commit, t->head, sizeof(t->head));
	res->commits = t->commits;
	res->files = t->files;
	if (!h->payload_good) {
		res->flags |= WORK_RESULT_SKIPPED;
		snprintf(res->error, sizeof(res->error), "the workload did not end with exit code 0");
	} else if (h->reason[0] != '\0') {
		snprintf(res->error, sizeof(res->error), "%s", h->reason);
	} else if (t->skip[0] != '\0') {
		res->flags |= WORK_RESULT_SKIPPED;
		snprintf(res->error, sizeof(res->error), "%s", t->skip);
	} else if (job->back == JOB_BACK_PUSH) {
		res->flags |= WORK_RESULT_PUSHED;
	} else if (bytes == 0 || bytes > job->max_bundle) {
		snprintf(res->error, sizeof(res->error), "the bundle has %llu bytes, at most %llu are wanted", (unsigned long long)bytes,
		    (unsigned long long)job->max_bundle);
	} else {
		res->bundle_bytes = bytes;
	}
}

static void
fill_project(const struct workload *wl, const struct result_trailer *t, struct work_result *res)
{
	res->flags |= WORK_RESULT_PROJECT;
	if (strcmp(t->project, "none") == 0 && t->data[0] != '\0') {
		memcpy(res->project, t->data, sizeof(t->data));
		return;
	}
	snprintf(res->project_error, sizeof(res->project_error), "%s", strcmp(t->project, "database") == 0 ?
	    "this device cannot read the project's database back; its state stays in the work directory" :
	    strcmp(t->project, "link") == 0 ? ".cloop or its database is a symbolic link" : wl->rec.h->reason[0] != '\0' ?
	    wl->rec.h->reason : "the workload ended before its state could be read");
}

bool
stage_finish(struct workload *wl)
{
	struct work_result res = { 0 };
	struct result_trailer t = { 0 };
	bool noted = stage_is_after(wl);
	struct work_spec spec;
	struct work_job job;
	uint64_t bytes = 0;

	if (wl->rec.h == NULL || wl->rec.h->job_len == 0) {
		result_load(wl);
	} else if (load_job(wl, &spec, &job) == 0) {
		if (noted && result_read(wl, &t, &bytes) < 0 && wl->rec.h->reason[0] == '\0')
			snprintf(wl->rec.h->reason, sizeof(wl->rec.h->reason), "what was collected cannot be read");
		if (job.back != JOB_BACK_NONE)
			fill_back(wl, &job, &t, bytes, &res);
		if (job.seeded)
			fill_project(wl, &t, &res);
		explicit_bzero(text, wl->rec.h->job_len);
		if (res.flags != 0 && (wl->rec.h->flags & RECORD_F_DISOWNED) == 0)
			result_keep(wl, &res);
	}
	if (wl->rec.h != NULL)
		record_wipe_job(&wl->rec);
	if (noted) {
		wl->rec.h->saved.wid = wl->info.wid;
		wl->rec.h->saved.flags = wl->info.flags;
		wl->info = wl->rec.h->saved;
	}
	return noted;
}
