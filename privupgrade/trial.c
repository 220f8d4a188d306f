/*
 * The switch, the trial, and its end: for good, or back, once.
 *
 *	STAGING  the release is being copied            interrupted: forgotten
 *	TRIAL    `current` leads to it, units restarted  interrupted: goes on, at most TRIAL_ENTRIES times; before the switch: forgotten
 *	BACK     decided against it                      interrupted: finished
 *	COMMIT   decided for it                          interrupted: finished
 *
 * The phase is on disk before what it names is done, so that whoever comes next (edgeward-upgrade-boot.service after a power cut) knows.
 * `updater`, the link that says whose privupgrade and privtrial run, changes in COMMIT alone: the old updater judges the new release.
 *
 * Who calls: privtrial.c. What is trusted: the state file, which root wrote. On error: back, when that can be done.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "common/monotime.h"
#include "privupgrade/privtrial.h"

#define TRIAL_ENTRIES	3
#define POLL_MS		500

static void
new_target(const struct updater *u, char target[UPGRADE_LINK_SIZE])
{
	snprintf(target, UPGRADE_LINK_SIZE, "releases/%" PRIu64, u->state.sequence);
}

/* Everything the judge wants to know. */
static void
look(struct updater *u, const struct judge *j, const char *target, struct upgrade_probe *probe, struct judge_facts *f)
{
	*f = (struct judge_facts){ .cancelled = unlinkat(u->dir, "cancel", 0) == 0, .probe = probe };
	f->units_known = units_look(u, f->units) == 0;
	probe_daemons(u, target, probe);
	f->units[JUDGE_PRIVHELPER].runs_new = unit_runs(u, f->units[JUDGE_PRIVHELPER].pid, target, "privhelper");
	f->units[JUDGE_CONNECTD].runs_new = unit_runs(u, f->units[JUDGE_CONNECTD].pid, target, "connectd");
	f->units[JUDGE_WORKERD].runs_new = unit_runs(u, probe->work_pid, target, "workerd");
	for (unsigned i = 0; i < j->work.nwork; i++)
		f->work_alive[i] = j->work.work[i].pid != 0 && kill((pid_t)j->work.work[i].pid, 0) == 0;
}

/* 0 = it may stay, -ECANCELED. */
static int
judge(struct updater *u, const struct upgrade_probe *work)
{
	static struct judge j;
	static struct upgrade_probe probe;
	struct judge_facts f;
	char target[UPGRADE_LINK_SIZE];
	monotime_t begin = monotime_now();
	bool told = false;

	new_target(u, target);
	judge_init(&j, &u->state, u->start_ms, work);
	for (;;) {
		look(u, &j, target, &probe, &f);
		f.now_ms = monotime_diff_ms(monotime_now(), begin);
		switch (judge_look(&j, &f)) {
		case JUDGE_GOOD: return 0;
		case JUDGE_BAD:
			u->why = j.why;
			return -ECANCELED;
		case JUDGE_GO_ON: break;
		case JUDGE_WAIT:
			if (!told)
				step(u, "not connected (%s): it stays on trial until there is a session", j.why.detail);
			told = true;
		}
		usleep(POLL_MS * 1000);
	}
}

static int
commit(struct updater *u)
{
	char target[UPGRADE_LINK_SIZE];
	int r = store_save_state(u, UPGRADE_COMMIT);

	new_target(u, target);
	if (r == 0)
		r = fd_replace_link(u->base, LINK_UPDATER, target);
	if (r == 0)
		r = store_record(u, UPGRADE_OUT_DONE, "ok", "installed");
	if (r == 0)
		r = store_end_state(u);
	if (r == 0)
		step(u, "done: %s, sequence %" PRIu64 ", is in force", u->state.version, u->state.sequence);
	releases_prune(u);
	return r;
}

/* Waits for the old release to run again, and with session for it to be connected. There is nothing else to go to. */
static bool
old_is_back(struct updater *u, const char *target, bool session)
{
	monotime_t end = monotime_add_ms(monotime_now(), (session ? 4 : 1) * u->start_ms);
	static struct upgrade_probe probe;
	static const struct judge none;
	struct judge_facts f;
	bool back = false;

	while (!back && monotime_before(monotime_now(), end)) {
		look(u, &none, target, &probe, &f);
		back = f.units_known && (!session || probe.connected);
		for (unsigned i = 0; i < JUDGE_UNITS; i++)
			back = back && ((u->state.units >> i & 1) == 0 || (f.units[i].active && (f.units[i].runs_new || i == JUDGE_WORKERD)));
		if (!back)
			usleep(POLL_MS * 1000);
	}
	return back;
}

static int
back(struct updater *u, bool restart)
{
	const char *to = target_complete(u, u->state.from) ? u->state.from : u->packaged;
	/* The hub's address answered and there was no session. If the old release gets none either, that says nothing of the new one. */
	bool session = restart && strcmp(u->state.code, "no-session") == 0, well = true;
	struct upgrade_probe probe;
	int saved = store_save_state(u, UPGRADE_BACK), r;

	step(u, "back to %s: %s", to, u->state.detail);
	/* On a full disk the phase stays TRIAL; with `current` switched that means "forgotten" to whoever comes next. */
	r = fd_replace_link(u->base, LINK_CURRENT, to);
	if (r == 0 && restart) {
		probe_daemons(u, to, &probe);
		units_restart(u, probe.work_up && probe.active > 0);
		well = old_is_back(u, to, session);
		if (!well)
			log_error("%s", session ? "the old release has no session either" :
			    "the old release does not run as it should: look at systemctl status 'edgeward-*'");
	}
	r = r == 0 ? saved : r;
	if (r == 0)
		r = store_record(u, session && !well ? UPGRADE_OUT_FAILED : UPGRADE_OUT_BACK, u->state.code, u->state.detail);
	if (r == 0)
		r = store_end_state(u);
	releases_prune(u);
	return r;
}

static int
decide_back(struct updater *u, bool restart)
{
	memcpy(u->state.code, u->why.code, sizeof(u->state.code));
	memcpy(u->state.detail, u->why.detail, sizeof(u->state.detail));
	return back(u, restart);
}

/* A pid that workerd tells and that is no workload is nobody whose end could be held against the release. */
static void
only_real_work(struct upgrade_probe *work, uint64_t launcher)
{
	for (unsigned i = 0; i < work->nwork; i++)
		if (!unit_has_work(work->work[i].pid, launcher))
			work->work[i].pid = 0;
}

/* Before it is in force: does its oldest hub protocol fit the session's, can its programs be run here? */
static int
try_out(struct updater *u, const char *target, uint64_t protocol)
{
	_cleanup_close_ int dir = openat(u->base, target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	_cleanup_free_ uint8_t *data = NULL;
	static struct manifest m;
	size_t len;
	int r = fd_read_file(dir, "manifest", RELEASE_HEAD_MAX, &data, &len);

	r = r == 0 ? manifest_parse(data, len, &m) : r;
	if (r < 0)
		return r;
	if (u->state.source == UPGRADE_HUB && fit_protocol(&u->why, &m, protocol) < 0)
		return -ECANCELED;
	r = self_test(u, &m);
	if (r == 0)
		step(u, "self-test passed");
	return r;
}

/* What stands in releases/ and was never in force is not needed any more. */
static int
give_up(struct updater *u, int error)
{
	int r = store_fail(u, error);

	releases_prune(u);
	return r;
}

/* What runs before must run after; in a sixth of the start time each look counts, as things may be restarted. A hub that asks had a session. */
static int
look_before(struct updater *u, struct upgrade_probe *work)
{
	monotime_t end = monotime_add_ms(monotime_now(), u->start_ms / 6);
	struct judge_unit_facts units[JUDGE_UNITS];
	uint64_t protocol = 0;

	for (u->state.units = 0, u->state.connected = u->state.source == UPGRADE_HUB; ; usleep(POLL_MS * 1000)) {
		int r = units_look(u, units);

		if (r < 0)
			return refuse(&u->why, "no-systemctl", "the service manager cannot be asked: %s", strerror(-r));
		for (unsigned i = 0; i < JUDGE_UNITS; i++)
			u->state.units |= units[i].active ? 1u << i : 0;
		probe_daemons(u, u->state.from, work);
		if (work->connected) {
			u->state.connected = u->state.connected || units[JUDGE_CONNECTD].active;
			protocol = work->protocol;
			snprintf(u->state.peer, sizeof(u->state.peer), "%s", work->peer);
		}
		if ((u->state.units == (1u << JUDGE_UNITS) - 1 && work->connected && work->work_up) || !monotime_before(monotime_now(), end))
			break;
	}
	work->protocol = protocol;
	only_real_work(work, units[JUDGE_WORKERD].pid);
	return 0;
}

int
trial_begin(struct updater *u)
{
	static struct upgrade_probe work;
	char target[UPGRADE_LINK_SIZE];
	int r = look_before(u, &work);

	new_target(u, target);
	if (r == 0)
		r = try_out(u, target, work.protocol);
	if (r < 0)
		return give_up(u, r);
	u->state.entries = 1;
	r = store_save_state(u, UPGRADE_TRIAL);
	if (r == 0)
		r = fd_replace_link(u->base, LINK_CURRENT, target);
	if (r < 0)
		return give_up(u, r);
	if (u->state.units == 0)
		return commit(u);	/* nothing runs that could be judged */
	step(u, "on trial: %s, %" PRIu64 " s to settle", u->state.version, u->state.settle);
	if (units_restart(u, work.active > 0) < 0)
		r = refuse(&u->why, "no-systemctl", "the units cannot be restarted");
	else
		r = judge(u, &work);
	return r < 0 ? decide_back(u, true) : commit(u);
}

static int
resume_trial(struct updater *u)
{
	static struct upgrade_probe probe;
	static const struct judge none;
	struct judge_facts f;
	char target[UPGRADE_LINK_SIZE], now[UPGRADE_LINK_SIZE];
	int r = 0;

	new_target(u, target);
	link_read(u, LINK_CURRENT, now);
	if (strcmp(now, target) != 0)
		return give_up(u, refuse(&u->why, "interrupted", "it was interrupted before it was in force"));
	u->state.entries++;
	if (u->state.entries > TRIAL_ENTRIES)
		r = refuse(&u->why, "interrupted", "its trial was interrupted %d times", TRIAL_ENTRIES);
	else if (!target_complete(u, target))
		r = refuse(&u->why, "incomplete", "the release is not complete");
	else if (store_save_state(u, UPGRADE_TRIAL) < 0)
		r = refuse(&u->why, "io", "the state cannot be written");
	if (r < 0 || u->at_boot)
		return r < 0 ? decide_back(u, !u->at_boot) : 0;
	if (u->state.units == 0)
		return commit(u);
	/* The units may not have been restarted yet. */
	look(u, &none, target, &probe, &f);
	if (!f.units[JUDGE_PRIVHELPER].runs_new || !f.units[JUDGE_CONNECTD].runs_new || !f.units[JUDGE_WORKERD].runs_new)
		units_restart(u, probe.active > 0);
	return judge(u, NULL) < 0 ? decide_back(u, true) : commit(u);
}

int
trial_resume(struct updater *u)
{
	step(u, "sequence %" PRIu64 " was interrupted in phase %s", u->state.sequence, upgrade_phase_name(u->state.phase));
	switch (u->state.phase) {
	case UPGRADE_STAGING: return 0;	/* privupgrade's */
	case UPGRADE_TRIAL: return resume_trial(u);
	case UPGRADE_BACK: return back(u, !u->at_boot);
	case UPGRADE_COMMIT: return commit(u);
	}
	return -EINVAL;
}
