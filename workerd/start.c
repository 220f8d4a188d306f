#include "workerd/start.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/pool.h"
#include "proto/ipc/secrets.h"
#include "workerd/admit.h"
#include "workerd/confinement.h"
#include "workerd/container.h"
#include "workerd/harness.h"
#include "workerd/launchchan.h"
#include "workerd/leases.h"
#include "workerd/life.h"
#include "workerd/shown.h"
#include "workerd/stage.h"
#include "workerd/sweep.h"
#include "workerd/tally.h"
#include "workerd/placing.h"
#include "workerd/vault.h"
#include "workerd/workchan.h"

#define HOME_SIZE	(PATH_MAX + WORK_DIR_SIZE + 32)
#define HOME_BELOW	"/.git/edgeward-home"	/* made by steps/place.sh: what programs leave in it is not committed */
#define OOM_SCORE_ADJ	200	/* when memory runs out a workload goes before the agent */

struct start_choice {
	char top[IDS_TOP_SIZE];
	uint32_t slot, parts;
	struct work_job job;		/* decided: for a container engine, network and socket, too */
	enum stage own;			/* of a workload of the device's own; else PAYLOAD */
	int bundle;		/* a branch that came with the start, -1 = none */
};

static void
refuse(struct workerd *w, uint32_t id, enum work_refusal refusal, uint32_t flags, const char *error)
{
	tally_refused(w, refusal, error);
	workchan_answer(w, id, refusal, 0, flags, error);
}

static enum work_refusal
check_admission(struct workerd *w, struct work_spec *spec, bool own, char error[208], uint32_t *ret_flags)
{
	struct admit_now now = { .conf = &w->conf, .policy = &w->policy, .ready = &w->ready, .slots = w->slots,
		.held = w->all.counts[ST_ACCEPTED] + w->all.counts[ST_HELD] + w->all.counts[ST_RUNNING] +
		    w->all.counts[ST_DRAINING],
		.undelivered = w->all.counts[ST_ENDED], .own = own,
		.undelivered_max = w->undelivered_max, .draining = w->journal.drain };
	struct statvfs st;

	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		if (wl->state == ST_ENDED)
			now.retained += workload_in_memory(wl);
		else if (workload_is_own(wl))	/* no hub gave it a slot */
			now.held--;
	if (fstatvfs(w->ids.root, &st) == 0)
		admit_free(&st, &now.disk_free, &now.inodes_free);
	now.one_disk = w->disk_major != 0;
	now.disk_was_low = w->disk_was_low;
	return admit(&now, spec, error, ret_flags);
}

/* The slot of a directory; somebody who works there already decides. The root itself is slot 0's, and what is made from there. */
static int
find_slot(struct workerd *w, const char *top, bool claim, uint32_t *ret_slot, uint32_t *ret_owner)
{
	const struct pool pool = { .first = w->ids.first, .count = w->ids.count };
	uint8_t taken[POOL_MAX] = { 0 };
	int r;

	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next) {
		if (wl->rec.h == NULL || wl->state >= ST_ENDED || top[0] == '\0')
			continue;
		if (strcmp(wl->top, top) == 0) {
			*ret_slot = wl->rec.h->slot;
			return 0;
		}
		taken[wl->rec.h->slot % POOL_MAX] = 1;
	}
	r = ids_slot(&w->ids, top, taken, ret_slot, ret_owner);
	if (r < 0 || *ret_slot == 0)
		return r;
	return (claim ? owners_claim : owners_check)(&w->owners, &pool, *ret_slot, top, *ret_owner == 0);
}

static const char quota[] = "disk quota of workerd's user";

static enum work_refusal
choose_dir(struct workerd *w, struct work_spec *spec, bool claim, char top[IDS_TOP_SIZE], uint32_t *ret_slot, char error[208])
{
	char path[WORK_DIR_SIZE], quoted[LOG_QUOTE_SIZE];
	uint32_t owner = 0;
	int r = ids_clean(&w->ids, spec->work_dir, path);

	log_quote(quoted, sizeof(quoted), spec->work_dir, strlen(spec->work_dir));
	if (r == 0)
		r = ids_top(path, top);
	if (r == 0)
		r = find_slot(w, top, claim, ret_slot, &owner);
	switch (r) {
	case 0:
		snprintf(spec->work_dir, sizeof(spec->work_dir), "%s", path);
		return WORK_OK;
	case -EUSERS:
		snprintf(error, 208, "no runner id is free for %s: all %u belong to other directories; remove one under %.60s",
		    quoted, w->ready.pool_count, w->ids.configured);
		return WORK_REFUSED_POLICY;
	case -EACCES:
		snprintf(error, 208, "work directory %s belongs to uid %u, which is no runner id; give it to one or remove it",
		    quoted, owner);
		return WORK_REFUSED_FORBIDDEN_PATH;
	case -EPERM:
		snprintf(error, 208, "work directory %s was made by the runner of another directory, uid %u; remove it", quoted,
		    owner);
		return WORK_REFUSED_FORBIDDEN_PATH;
	case -ENOSPC:
	case -EDQUOT:
		snprintf(error, 208, "%s: no room in workerd's state directory for the runner of %s", r == -EDQUOT ? quota : "disk-full", quoted);
		return WORK_REFUSED_DISK_LOW;
	case -ENAMETOOLONG:
		snprintf(error, 208, "work directory %s: a name is too long", quoted);
		return WORK_REFUSED_BAD_SPEC;
	case -EXDEV:
	case -ELOOP:
	case -ENOTDIR:
		snprintf(error, 208, "work directory %s is outside %.60s or no directory", quoted, w->ids.configured);
		return WORK_REFUSED_FORBIDDEN_PATH;
	default:
		snprintf(error, 208, "work directory %s: %s", quoted, strerror(-r));
		return WORK_REFUSED_START_FAILED;
	}
}

enum work_refusal
start_find_dir(struct workerd *w, struct work_spec *spec, char top[IDS_TOP_SIZE], uint32_t *ret_slot, char error[208])
{
	return choose_dir(w, spec, false, top, ret_slot, error);
}

static bool
names(const struct work_spec *spec, const char *name)
{
	for (uint32_t i = 0; i < spec->envc; i++)
		if (spec->env[i].len >= strlen(name) && memcmp(spec->env[i].s, name, strlen(name)) == 0)
			return true;
	return false;
}

/* Where an environment was sent it is exactly that, with a floor for PATH and HOME (cloop.md 5.2); else the device's own. */
static void
complete_env(struct work_spec *spec, const char *home)
{
	static const char *const fixed[] = { "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"USER=edgeward-run", "LOGNAME=edgeward-run", "SHELL=/bin/sh", "LANG=C.UTF-8", "TMPDIR=/tmp" };
	size_t n = spec->env_given ? 1 : sizeof(fixed) / sizeof(fixed[0]);

	if (!names(spec, "HOME=") && spec->envc < WORK_ENV_MAX)
		spec->env[spec->envc++] = (struct work_str){ home, strlen(home) };
	for (size_t i = 0; i < n; i++)
		if (spec->envc < WORK_ENV_MAX && (!spec->env_given || !names(spec, "PATH=")))
			spec->env[spec->envc++] = (struct work_str){ fixed[i], strlen(fixed[i]) };
	spec->env_given = true;
}

int
start_spec(const struct work_spec *spec)
{
	static uint8_t buf[WORK_SPEC_MAX];
	size_t len;
	int r = work_spec_encode(spec, buf, sizeof(buf), &len);

	if (r < 0)
		return r == -ENOSPC ? -E2BIG : r;
	r = fd_sealed_memfd("spec", buf, len);
	explicit_bzero(buf, len);	/* the environment may hold secrets */
	return r;
}

/* Files are placed where only that workload can see them, or not at all. */
static enum work_refusal
check_secrets(const struct work_spec *spec, uint32_t parts, char error[208])
{
	struct secret s;
	struct wire_r r;

	wire_r_init(&r, spec->secrets.s, spec->secrets.len);
	while ((parts & LAUNCH_PART_MOUNT) == 0 && secret_next(&r, &s) == 1) {
		if (s.kind != SECRET_FILE)
			continue;
		snprintf(error, 208, "secret files need a view of the file system for each workload alone, which this device does not "
		    "give (sandbox-level = uid, or no user namespaces); give the secret as a variable");
		return WORK_REFUSED_SANDBOX;
	}
	return WORK_OK;
}

static bool
known(struct workerd *w, const struct work_spec *spec, uint32_t id)
{
	struct workload *wl = workload_by_handle(w, spec->handle);

	if (wl == NULL && journal_seen(&w->journal, spec->handle)) {
		refuse(w, id, WORK_REFUSED_START_FAILED, 0, "this handle was used before; what it started has ended and its "
		    "result was delivered");
		return true;
	}
	if (wl == NULL)
		return false;
	if (wl->state <= ST_HELD && wl->naskers < WORKLOAD_ASKERS) {
		wl->askers[wl->naskers++] = id;
		return true;
	}
	workchan_tell(wl);
	workchan_answer(w, id, WORK_OK, wl->info.wid, 0, "");
	return true;
}

int
start_process(struct workload *wl, const struct work_spec *spec, enum stage stage, int input)
{
	const struct workerd *w = wl->w;
	struct launch_start s = { .slot = wl->rec.h->slot, .memory_bytes = spec->memory_bytes, .pids = spec->pids,
		.cpu_millis = spec->cpu_millis, .io_rate = w->policy.io_rate, .io_major = w->disk_major, .io_minor = w->disk_minor,
		.oom_score_adj = OOM_SCORE_ADJ, .parts = wl->rec.h->parts, .stage = stage };
	_cleanup_close_ int fd = start_spec(spec);

	if (fd < 0)
		return fd;
	memcpy(s.handle, wl->info.handle, sizeof(s.handle));
	static_assert(sizeof(s.show) == sizeof(w->conf.work_show), "one bound");
	memcpy(s.show, w->conf.work_show, sizeof(s.show));
	if (stage == STAGE_PAYLOAD && (wl->rec.h->flags & RECORD_F_CONTAINER) == 0)
		harness_show(w, s.show, sizeof(s.show));
	if (container_stage(wl, stage))
		container_launch(w, container_socket(), &s);
	else if ((wl->rec.h->flags & RECORD_F_CONTAINER) != 0)
		container_step_limits(w, &s);
	return launchchan_start(wl, &s, fd, input);
}

/* The job as it was decided, where it was sent: what later stages read. */
static int
put_decided(struct work_spec *spec, const struct work_job *job)
{
	static uint8_t buf[WORK_SPEC_MAX];
	size_t len;
	int r = job_encode(job, buf, sizeof(buf), &len);

	spec->job = (struct work_str){ (const char *)buf, len };
	return r == -ENOSPC ? -E2BIG : r;
}

/* Its record is there: fills it in and asks the launcher for the first process. */
static int
begin(struct workload *wl, struct work_spec *spec, const struct start_choice *c)
{
	char home[HOME_SIZE];
	int r;

	snprintf(home, sizeof(home), "HOME=%s%s%s%s", wl->w->ids.real, spec->work_dir[0] != '\0' ? "/" : "", spec->work_dir,
	    c->job.workspace != JOB_WORKSPACE_NONE ? HOME_BELOW : "");
	if (!c->job.container) {	/* its variables are what was sent and the image's */
		complete_env(spec, home);
		harness_path(wl->w, spec);
	}
	wl->rec.h->slot = c->slot;
	snprintf(wl->rec.h->work_dir, sizeof(wl->rec.h->work_dir), "%s", spec->work_dir);
	wl->rec.h->dir_known = 1;
	shown_command(spec->argv, spec->argc, wl->vault != NULL ? wl->vault->redact : NULL, wl->rec.h->command, sizeof(wl->rec.h->command));
	wl->rec.h->parts = c->parts;
	wl->rec.h->timeout_s = spec->timeout_s;
	wl->rec.h->output_max = wl->w->policy.output;
	wl->rec.h->overflow = spec->overflow;
	wl->rec.h->accepted_at = monotime_wall_ns();
	r = life_journal(wl, JOURNAL_STARTED);
	if (r < 0)
		return r;
	if (c->own != STAGE_PAYLOAD) {
		wl->rec.h->stage = c->own;
		wl->rec.h->deadline = monotime_add_ms(monotime_now(), stage_deadline(c->own)).ns;
		return start_process(wl, spec, c->own, -1);
	}
	if (c->job.container && (r = put_decided(spec, &c->job)) < 0)
		return r;
	if (!job_is_plain(&c->job))
		return stage_first(wl, spec, &c->job, c->bundle);
	spec->job = (struct work_str){ 0 };
	return start_process(wl, spec, STAGE_PAYLOAD, -1);
}

/* Everything is decided: note it, then ask the launcher. 0 or -errno; wl is the caller's to free then. */
static int
launch(struct workload *wl, struct work_spec *spec, const struct start_choice *c)
{
	static uint8_t items[SECRET_TOTAL_MAX + SECRETS_MAX * 1024u];
	static struct placing placing;
	size_t n = 0;
	int r = placing_make(&placing, spec);

	if (r == 0 && (spec->secrets.len > 0 || c->job.password.len > 0))
		r = vault_new(wl, spec, &placing, &c->job.password);
	else if (r == 0)
		r = record_new(&wl->w->spares, spec->handle, wl->w->conf.work_retain, &wl->rec);
	leases_bound(wl->w, spec->handle, spec);
	if (r == 0 && placing_for_init(&placing, spec, items, sizeof(items), &n) < 0)
		r = -E2BIG;
	/* What workinit gets of the secrets: the files, and where they go. */
	spec->secrets = (struct work_str){ (const char *)items, n };
	if (r == 0)
		r = begin(wl, spec, c);
	explicit_bzero(items, n);
	placing_done(&placing);
	return r;
}

static enum work_refusal
decode_job(struct work_spec *spec, struct work_job *job, char error[208])
{
	*job = (struct work_job){ 0 };
	if (spec->job.len > 0 && job_decode(job, spec->job.s, spec->job.len) < 0) {
		snprintf(error, 208, "malformed workspace, write-back or container");
		return WORK_REFUSED_BAD_SPEC;
	}
	job->socket = (struct work_str){ 0 };	/* nobody's to send */
	spec->contained = job->container;
	return WORK_OK;
}

/* A checkout that is not whole is cleared away by the next one: it must not be one that somebody is at work on. */
static enum work_refusal
check_workspace(const struct workerd *w, const struct work_spec *spec, const struct work_job *job, char error[208])
{
	if (job->workspace == JOB_WORKSPACE_NONE)
		return WORK_OK;
	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next) {
		if (!stage_is_before(wl) || stage_of(wl) == STAGE_CREATE || strcmp(wl->rec.h->work_dir, spec->work_dir) != 0)
			continue;
		snprintf(error, 208, "another start is making its workspace in that directory; try again when it runs");
		return WORK_REFUSED_BUSY;
	}
	return WORK_OK;
}

/* What is decided before anything is made. claim: the directory is given to its runner. */
static enum work_refusal
choose(struct workerd *w, struct work_spec *spec, bool claim, struct start_choice *c, char error[208], uint32_t *ret_flags)
{
	enum work_refusal r = decode_job(spec, &c->job, error);

	if (r == WORK_OK)
		r = check_admission(w, spec, c->own != STAGE_PAYLOAD, error, ret_flags);
	w->disk_was_low = claim ? r == WORK_REFUSED_DISK_LOW : w->disk_was_low;
	if (r == WORK_OK)
		r = confinement_decide(&w->conf, &w->policy, &w->ready, c->job.container && c->job.workspace == JOB_WORKSPACE_NONE ?
		    WORK_NETWORK_NONE : (enum work_network)spec->network, &c->parts, error);
	if (r == WORK_OK)
		r = check_secrets(spec, c->parts, error);
	if (r == WORK_OK)
		r = stage_check(w, spec, &c->job, error);
	if (r == WORK_OK)
		r = check_workspace(w, spec, &c->job, error);
	if (r == WORK_OK && c->job.container)
		r = container_check(w, spec, &c->job, error);
	if (r == WORK_OK && c->job.workspace == JOB_WORKSPACE_BUNDLE && claim && c->bundle < 0) {
		snprintf(error, 208, "the branch was not shipped, or not completely");
		r = WORK_REFUSED_START_FAILED;
	}
	if (r == WORK_OK)
		r = choose_dir(w, spec, claim, c->top, &c->slot, error);
	if (r == WORK_OK && c->own == STAGE_PAYLOAD && strcmp(c->top, HARNESS_DIR) == 0) {
		snprintf(error, 208, "work directory " HARNESS_DIR " is the device's own; name another one");
		r = WORK_REFUSED_FORBIDDEN_PATH;
	}
	if (r == WORK_OK && c->own != STAGE_PAYLOAD && w->ids.count > 1 && c->slot == 0) {
		snprintf(error, 208, "%.100s/" HARNESS_DIR " was made by the runner of another directory; remove it", w->ids.configured);
		r = WORK_REFUSED_FORBIDDEN_PATH;
	}
	if (r == WORK_OK && c->job.container)
		r = container_check_dir(w, c->top, c->slot, error);
	return r == WORK_OK && !devices_slot_ok(w, spec->handle, c->slot, error) ? WORK_REFUSED_BUSY : r;
}

enum work_refusal
workload_would_start(struct workerd *w, struct work_spec *spec, char error[208], uint32_t *ret_flags)
{
	struct start_choice c = { .bundle = -1 };

	return choose(w, spec, false, &c, error, ret_flags);
}

const uint8_t *
workload_spec_bytes(struct ipc_msg *msg, uint8_t buf[WORK_SPEC_MAX], size_t *ret_len)
{
	_cleanup_close_ int fd = msg->hdr.len == 0 ? ipc_take_fd(msg, 0) : -1;	/* else it is a branch */
	ssize_t n;

	*ret_len = msg->hdr.len;
	if (fd < 0)
		return msg->data;
	if (msg->hdr.len != 0 || fd_is_sealed_memfd(fd, WORK_SPEC_MAX, ret_len) != 1) {
		*ret_len = 0;
		return buf;
	}
	n = pread(fd, buf, *ret_len, 0);
	*ret_len = n > 0 ? (size_t)n : 0;
	return buf;
}

void
workload_start(struct workerd *w, struct work_spec *spec, int bundle, uint32_t id)
{
	struct start_choice c = { .bundle = bundle };
	char error[208] = "";
	struct workload *wl;
	uint32_t flags = 0;
	enum work_refusal refusal;
	int r;

	if (strncmp(spec->handle, HARNESS_HANDLE, sizeof(HARNESS_HANDLE) - 1) == 0) {
		refuse(w, id, WORK_REFUSED_BAD_SPEC, 0, "handles that begin with " HARNESS_HANDLE " are the device's own");
		return;
	}
	if (strncmp(spec->handle, CARRIER_HANDLE, sizeof(CARRIER_HANDLE) - 1) == 0) {
		refuse(w, id, WORK_REFUSED_BAD_SPEC, 0, "handles that begin with " CARRIER_HANDLE " are the device's own; mint another one");
		return;
	}
	if (known(w, spec, id))
		return;
	if (strcmp(spec->handle, SWEEP_HANDLE) == 0) {
		refuse(w, id, WORK_REFUSED_BAD_SPEC, 0, "the handle " SWEEP_HANDLE " is this device's own; mint another one");
		return;
	}
	refusal = choose(w, spec, true, &c, error, &flags);
	if (refusal == WORK_OK)
		refusal = devices_check(w, spec, c.slot, error);
	if (refusal != WORK_OK) {
		refuse(w, id, refusal, flags, error);
		return;
	}
	wl = workload_add(w, spec->handle, ST_ACCEPTED);
	if (wl == NULL)
		fatal("out of memory");
	memcpy(wl->top, c.top, sizeof(wl->top));
	r = launch(wl, spec, &c);
	if (r < 0) {
		snprintf(error, sizeof(error), "cannot start: %s%s", strerror(-r), r == -ENOSPC ?
		    " (disk-full: workerd's state directory)" : r == -EDQUOT ? " (that of workerd's user, in its state directory)" : "");
		workload_free(wl);
		refuse(w, id, r == -ENOSPC || r == -EDQUOT ? WORK_REFUSED_DISK_LOW : WORK_REFUSED_START_FAILED, 0, error);
		return;
	}
	devices_lease(wl, spec->devices);
	wl->askers[wl->naskers++] = id;
	w->started++;
	if (stage_is_before(wl))	/* the hub follows what goes on from now on */
		workchan_tell(wl);
}

enum work_refusal
workload_start_own(struct workerd *w, struct work_spec *spec, enum stage stage, char error[208])
{
	struct start_choice c = { .bundle = -1, .own = stage };
	uint32_t flags = 0;
	enum work_refusal refusal = choose(w, spec, true, &c, error, &flags);
	struct workload *wl;
	int r;

	if (refusal != WORK_OK)
		return refusal;
	wl = workload_add(w, spec->handle, ST_ACCEPTED);
	if (wl == NULL)
		fatal("out of memory");
	memcpy(wl->top, c.top, sizeof(wl->top));
	wl->delivered = true;		/* nobody is told of its end but who asked for it */
	r = launch(wl, spec, &c);
	if (r == 0)
		return WORK_OK;
	snprintf(error, 208, "cannot start: %s", strerror(-r));
	workload_free(wl);
	return WORK_REFUSED_START_FAILED;
}
