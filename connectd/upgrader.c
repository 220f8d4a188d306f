#include "connectd/upgrader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "common/log.h"
#include "connectd/jitter.h"
#include "connectd/upgrader_impl.h"
#include "proto/ipc/names.h"
#include "version.h"

#define LOOK_MS		1000		/* is the request taken */
#define TAKEN_MS	120000		/* by then; else nobody takes any */
#define FORGOTTEN_MS	3600000		/* a request that was taken and of which nothing is heard */
#define STAGED_MS	600000		/* a release of the hub's waits so long to be asked for */

static void timer_due(struct loop_timer *timer);

/* Of a job that is queued the release stays: its request is there, or about to be written. */
static void
clear_stage(struct upgrader *u)
{
	if (u->job.phase == UPJOB_QUEUED)
		upstage_drop_part(&u->stage);
	else
		upstage_clear(&u->stage);
}

void
upgrader_drop_part(struct upgrader *u)
{
	if (u->fetch != NULL)
		u->p.net->free(u->fetch);
	u->fetch = NULL;
	if (u->check != NULL)
		relcheck_done(u->check);
	free(u->check);
	u->check = NULL;
	u->etag[0] = '\0';
	u->source = UPGRADER_NOTHING;
	u->staged = u->receiving = false;
	clear_stage(u);
}

int
upgrader_begin_part(struct upgrader *u)
{
	int r = upstage_begin(&u->stage);

	if (r < 0)
		return r;
	if (u->check != NULL)
		relcheck_done(u->check);
	else
		u->check = malloc(sizeof(*u->check));
	return u->check == NULL ? -ENOMEM : relcheck_init(u->check, u->p.keys);
}

/* ---- the job ---- */

static int
save(struct upgrader *u)
{
	int r = upjob_save(u->p.statedir, &u->job);

	if (r < 0)
		log_error("upgrade: the state of it cannot be stored: %s", strerror(-r));
	return r;
}

void
upgrader_init(struct upgrader *u, const struct upgrader_params *params)
{
	*u = (struct upgrader){ .p = *params, .history_mtime = -1 };
	loop_timer_init(&u->timer, timer_due, u);
	upstage_init(&u->stage, params->statedir);
	upjob_load(params->statedir, &u->job);
	clear_stage(u);
	if (upjob_load_told(params->statedir, &u->told) < 0) {
		/* What was there before anybody told anything is no news. */
		upgrader_look(u);
		u->told = u->history.n > 0 ? u->history.entries[u->history.n - 1].attempt : 0;
		if (params->managed && upjob_save_told(params->statedir, u->told) < 0)
			log_warn("upgrade: the state directory cannot be written");
	}
	u->queued_at = monotime_now();
	if (u->job.phase == UPJOB_FETCH) {	/* whatever ended us during an attempt may do so each time */
		u->job.tries++;
		(void)save(u);
	}
	if (u->job.phase == UPJOB_FETCH || u->job.phase == UPJOB_QUEUED)
		loop_timer_set_ms(params->loop, &u->timer, LOOK_MS);
}

void
upgrader_done(struct upgrader *u)
{
	loop_timer_del(u->p.loop, &u->timer);
	upgrader_drop_part(u);
}

void
upgrader_fail(struct upgrader *u, const char *code, const char *detail)
{
	/* They may be the part's, which goes. */
	snprintf(u->job.code, sizeof(u->job.code), "%s", code);
	upgrade_detail(u->job.detail, detail);
	loop_timer_del(u->p.loop, &u->timer);
	u->job.phase = UPJOB_FAILED;
	upgrader_drop_part(u);
	log_warn("upgrade: refused (%s): %s", u->job.code, u->job.detail);
	(void)save(u);
	if (u->p.news != NULL)
		u->p.news(u->p.ctx);
}

/* The complete release is privupgrade's from here on. */
static int
ask(struct upgrader *u)
{
	struct upgrade_request request = { .sequence = u->job.sequence, .settle = u->job.settle };

	snprintf(request.id, sizeof(request.id), "%s", u->job.id);
	return upstage_request(&u->stage, &request);
}

static void
queue(struct upgrader *u, const struct manifest *m)
{
	int r;

	u->job.sequence = m->sequence;
	snprintf(u->job.version, sizeof(u->job.version), "%s", m->version);
	u->job.phase = UPJOB_QUEUED;
	/* In this order: a request that nobody remembers would be reported as somebody else's. */
	r = save(u);
	if (r == 0)
		r = ask(u);
	u->staged = false;
	if (r < 0) {
		upgrader_fail(u, "io", strerror(-r));
		return;
	}
	log_info("upgrade: %s, sequence %llu, is queued", m->version, (unsigned long long)m->sequence);
	u->queued_at = monotime_now();
	loop_timer_set_ms(u->p.loop, &u->timer, LOOK_MS);
}

/* Once all bytes are there: 0, or -errno; -ECANCELED with the reason in check. */
int
upgrader_complete(struct upgrader *u)
{
	int r = relcheck_end(u->check);

	if (r == 0)
		r = upstage_commit(&u->stage);
	if (r < 0)
		return r;
	u->manifest = u->check->manifest;
	relcheck_done(u->check);
	free(u->check);
	u->check = NULL;
	u->source = UPGRADER_NOTHING;
	return 0;
}

void
upgrader_fetched(struct upgrader *u)
{
	int r = upgrader_complete(u);

	if (r == 0)
		queue(u, &u->manifest);
	else
		upgrader_fail(u, r == -ECANCELED ? u->check->why.code : "io", r == -ECANCELED ? u->check->why.detail : strerror(-r));
}

bool
upgrader_fetching(const struct upgrader *u, char *text, size_t size)
{
	if (u->job.phase != UPJOB_FETCH)
		return false;
	snprintf(text, size, "fetching %s: %llu of %llu bytes, try %llu of %u", u->job.target, (unsigned long long)(u->check != NULL ? u->check->at : 0),
	    (unsigned long long)(u->check != NULL && u->check->known ? u->check->size : 0), (unsigned long long)u->job.tries + 1, UPGRADER_TRIES);
	return true;
}

/* Another attempt later, what has come is kept; or the end, when there were too many. */
void
upgrader_again(struct upgrader *u, const char *code, const char *detail, int64_t retry_after_ms)
{
	int64_t wait = u->p.conf->upgrade_wait_min;

	if (u->check != NULL && u->check->at >= u->reached + UPGRADER_PROGRESS) {
		u->reached = u->check->at;
		u->job.tries = 0;
	}
	if (++u->job.tries >= UPGRADER_TRIES) {
		upgrader_fail(u, code, detail);
		return;
	}
	(void)save(u);
	for (uint64_t i = 1; i < u->job.tries && wait < u->p.conf->upgrade_wait_max; i++)
		wait *= 2;
	wait = wait < u->p.conf->upgrade_wait_max ? wait : u->p.conf->upgrade_wait_max;
	wait = wait > retry_after_ms ? wait : retry_after_ms;
	wait = jitter_between(wait, wait + wait / 4);
	log_warn("upgrade: %s: %s; again in %lld s", code, detail, (long long)(wait + 500) / 1000);
	loop_timer_set_ms(u->p.loop, &u->timer, wait);
}

static void
look_if_taken(struct upgrader *u)
{
	/* Of a release without a request nobody knows: we were ended between the two. privupgrade takes the request, then the release, at once. */
	if (!upstage_requested(&u->stage) && upstage_has_release(&u->stage) && ask(u) < 0) {
		upgrader_fail(u, "io", "the request cannot be stored");
		return;
	}
	if (!upstage_requested(&u->stage))
		return;			/* privupgrade has it; its result will be in the history */
	if (monotime_diff_ms(monotime_now(), u->queued_at) < TAKEN_MS)
		loop_timer_set_ms(u->p.loop, &u->timer, LOOK_MS);
	else if (upstage_withdraw(&u->stage))
		upgrader_fail(u, "not-taken", "nobody takes the request: is edgeward-upgrade.path active on the device?");
}

static void
timer_due(struct loop_timer *timer)
{
	struct upgrader *u = timer->ctx;

	switch (u->job.phase) {
	case UPJOB_FETCH:
		if (u->job.tries >= UPGRADER_TRIES)
			upgrader_fail(u, "interrupted", "each try to fetch it was interrupted");
		else
			upgrader_attempt(u);
		break;
	case UPJOB_QUEUED:
		look_if_taken(u);
		break;
	case UPJOB_NONE:
	case UPJOB_FAILED:
		if (u->staged)
			log_info("upgrade: the release the hub has sent was not asked for in time and is removed");
		upgrader_drop_part(u);
		break;
	}
}

/* ---- requests ---- */

/* privupgrade has said what became of it, or nothing for long: it looks after itself. */
static bool
is_over(struct upgrader *u)
{
	upgrader_look(u);
	for (unsigned i = 0; i < u->history.n; i++)
		if (strcmp(u->history.entries[i].id, u->job.id) == 0)
			return true;
	return !upstage_requested(&u->stage) && monotime_diff_ms(monotime_now(), u->queued_at) > FORGOTTEN_MS;
}

static const char *
busy(struct upgrader *u)
{
	static char text[160];

	if (u->job.phase != UPJOB_FETCH && (u->job.phase != UPJOB_QUEUED || is_over(u)))
		return NULL;
	snprintf(text, sizeof(text), "an upgrade to %.63s is under way", u->job.target);
	return text;
}

static const char *
forbidden(const struct upgrader *u)
{
	static char text[POLICY_WHERE + 48];
	char where[POLICY_WHERE];

	if (u->p.policy->remote_upgrade)
		return NULL;
	snprintf(text, sizeof(text), "%s = no: this device takes no upgrade from a hub", policy_where(u->p.policy, POLICY_REMOTE_UPGRADE, where));
	return text;
}

void
upgrader_facts(struct upgrader *u, const char *version, struct upfacts *ret)
{
	*ret = (struct upfacts){ .managed = u->p.managed, .helper = u->p.helper, .forbidden = forbidden(u),
		.edge = u->p.policy->channel == POLICY_CHANNEL_EDGE, .mirror = u->p.conf->upgrade_mirror[0] != '\0', .busy = busy(u),
		.version = EDGEWARD_VERSION, .sequence = u->p.sequence };
	if (version == NULL)
		return;
	ret->staged = u->staged && (strcmp(u->manifest.version, version) == 0 || strcmp(version, "latest") == 0);
	upgrader_look(u);
	for (unsigned i = u->history.n; i > 0; i--)
		if (strcmp(u->history.entries[i - 1].version, version) == 0) {
			ret->bad = upgrade_history_tries(&u->history, u->history.entries[i - 1].to) >= UPGRADE_TRIES;
			break;
		}
}

bool
upgrader_has(struct upgrader *u, const char *id, const struct uptarget *target)
{
	struct uptarget have;

	if (u->job.phase != UPJOB_NONE && strcmp(u->job.id, id) == 0)
		return true;
	return busy(u) != NULL && (uptarget_parse(u->job.target, &have) == 0 && have.kind == target->kind &&
	    strcmp(have.name, target->name) == 0);
}

int
upgrader_begin(struct upgrader *u, const char *id, const struct uptarget *target, uint64_t settle)
{
	struct upjob job = { .phase = UPJOB_FETCH, .settle = settle, .version = "-" };
	uint32_t raw[2];
	int r;

	if (busy(u) != NULL)
		return -EBUSY;
	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -EIO;
	snprintf(job.id, sizeof(job.id), "%.64s", id);
	if (strlen(id) >= sizeof(job.id) || !handle_ok(job.id))
		snprintf(job.id, sizeof(job.id), "hub-%08x%08x", raw[0], raw[1]);
	snprintf(job.target, sizeof(job.target), "%s%.58s", target->kind == UPTARGET_EDGE ? "edge:" : "", target->name);
	snprintf(job.from, sizeof(job.from), "%s", EDGEWARD_VERSION);
	r = upjob_save(u->p.statedir, &job);
	if (r < 0)
		return r;
	u->job = job;
	u->damaged = 0;
	u->reached = 0;
	if (u->staged) {
		queue(u, &u->manifest);
		return 0;
	}
	upgrader_drop_part(u);
	/* After the answer is on its way. */
	loop_timer_set(u->p.loop, &u->timer, monotime_now());
	return 0;
}

/* ---- a release that the hub sends ---- */

int
upgrader_receive(struct upgrader *u, uint64_t size, const uint8_t sha256[RELEASE_HASH], uint64_t *ret_from)
{
	bool same = u->source == UPGRADER_STREAM && u->stream_size == size && memcmp(u->stream_sha256, sha256, RELEASE_HASH) == 0;
	int r = 0;

	if (busy(u) != NULL || u->receiving)
		return -EBUSY;
	loop_timer_del(u->p.loop, &u->timer);
	if (!same) {
		upgrader_drop_part(u);
		r = upgrader_begin_part(u);
	}
	if (r < 0) {
		upgrader_drop_part(u);
		return r;
	}
	u->source = UPGRADER_STREAM;
	u->stream_size = size;
	memcpy(u->stream_sha256, sha256, RELEASE_HASH);
	u->receiving = true;
	*ret_from = u->check->at;
	return 0;
}

int
upgrader_bytes(struct upgrader *u, const uint8_t *data, size_t len)
{
	bool known = u->check->known;
	int r = relcheck_feed(u->check, data, len);

	if (r == 0 && !known && u->check->known)
		r = upgrader_judge(u);
	if (r == 0)
		r = upstage_write(&u->stage, data, len);
	return r;
}

int
upgrader_received(struct upgrader *u)
{
	int r = relcheck_is(u->check, u->stream_size, u->stream_sha256);

	if (r == 0)
		r = upgrader_complete(u);
	if (r < 0)
		return r;
	u->receiving = false;
	u->staged = true;
	loop_timer_set_ms(u->p.loop, &u->timer, STAGED_MS);
	log_info("upgrade: the hub has sent %s, sequence %llu", u->manifest.version, (unsigned long long)u->manifest.sequence);
	return 0;
}

void
upgrader_pause(struct upgrader *u)
{
	u->receiving = false;
	if (u->source == UPGRADER_STREAM)
		loop_timer_set_ms(u->p.loop, &u->timer, STAGED_MS);
}

void
upgrader_forget(struct upgrader *u)
{
	u->receiving = false;
	if (u->source == UPGRADER_STREAM)
		upgrader_drop_part(u);
}
