/*
 * The switch, the trial, and its end: for good, or back, once.
 *
 *	STAGING  the release is being copied            interrupted: forgotten
 *	TRIAL    `current` leads to it, units restarted  interrupted: goes on, at most TRIAL_ENTRIES times; before the switch: forgotten
 *	BACK     decided against it                      interrupted: finished
 *	COMMIT   decided for it                          interrupted: finished
 *
 * The phase is on disk before what it names is done, so that whoever comes next (edgeward-upgrade-boot.service after a power cut) knows.
 * `updater`, the link that says which privupgrade runs, changes in COMMIT alone: the old updater judges the new release.
 *
 * Who calls: main.c. What is trusted: the state file, which root wrote. On error: back, when that can be done.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/log.h"
#include "common/monotime.h"
#include "privupgrade/privupgrade.h"

#define TRIAL_ENTRIES	3
#define POLL_MS		500

static void
new_target(const struct updater *u, char target[UPGRADE_LINK_SIZE])
{
	snprintf(target, UPGRADE_LINK_SIZE, "releases/%" PRIu64, u->state.sequence);
}

/* Process pid runs this program of target. */
static bool
runs(const struct updater *u, uint64_t pid, const char *target, const char *name)
{
	struct stat exe, file;
	char proc[40], path[600];

	snprintf(proc, sizeof(proc), "/proc/%" PRIu64 "/exe", pid);
	snprintf(path, sizeof(path), "%s%s%s/%s", target[0] == '/' ? "" : u->base_path, target[0] == '/' ? "" : "/", target, name);
	return pid != 0 && stat(proc, &exe) == 0 && stat(path, &file) == 0 && exe.st_dev == file.st_dev && exe.st_ino == file.st_ino;
}

/* Everything the judge wants to know. */
static void
look(struct updater *u, const struct judge *j, const char *target, struct upgrade_probe *probe, struct judge_facts *f)
{
	*f = (struct judge_facts){ .cancelled = unlinkat(u->dir, "cancel", 0) == 0, .probe = probe };
	f->units_known = units_look(u, f->units) == 0;
	units_probe(u, target, probe);
	f->units[JUDGE_PRIVHELPER].runs_new = runs(u, f->units[JUDGE_PRIVHELPER].pid, target, "privhelper");
	f->units[JUDGE_CONNECTD].runs_new = runs(u, f->units[JUDGE_CONNECTD].pid, target, "connectd");
	f->units[JUDGE_WORKERD].runs_new = runs(u, probe->work_pid, target, "workerd");
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
		case JUDGE_BAD: return refuse(u, j.code, "%s", j.detail);
		case JUDGE_GO_ON: break;
		case JUDGE_WAIT:
			if (!told)
				step(u, "not connected (%s): it stays on trial until there is a session", j.detail);
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
		r = link_set(u, LINK_UPDATER, target);
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
	r = link_set(u, LINK_CURRENT, to);
	if (r == 0 && restart) {
		units_probe(u, to, &probe);
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
	snprintf(u->state.code, sizeof(u->state.code), "%s", u->code);
	snprintf(u->state.detail, sizeof(u->state.detail), "%s", u->detail);
	return back(u, restart);
}

static int
forget(struct updater *u)
{
	int r = store_record(u, UPGRADE_OUT_FAILED, "interrupted", "it was interrupted before it was in force");

	if (r == 0)
		r = store_end_state(u);
	releases_prune(u);
	return r;
}

int
trial_begin(struct updater *u)
{
	static struct upgrade_probe work;
	struct judge_unit_facts units[JUDGE_UNITS];
	char target[UPGRADE_LINK_SIZE];
	int r = units_look(u, units);

	if (r < 0)
		return refuse(u, "no-systemctl", "the service manager cannot be asked: %s", strerror(-r));
	units_probe(u, u->state.from, &work);
	u->state.units = 0;
	for (unsigned i = 0; i < JUDGE_UNITS; i++)
		u->state.units |= units[i].active ? 1u << i : 0;
	u->state.connected = units[JUDGE_CONNECTD].active && work.connected;
	snprintf(u->state.peer, sizeof(u->state.peer), "%s", work.peer);
	u->state.entries = 1;
	new_target(u, target);
	r = store_save_state(u, UPGRADE_TRIAL);
	if (r == 0)
		r = link_set(u, LINK_CURRENT, target);
	if (r < 0)
		return r;
	if (u->state.units == 0)
		return commit(u);	/* nothing runs that could be judged */
	step(u, "on trial: %s, %" PRIu64 " s to settle", u->state.version, u->state.settle);
	if (units_restart(u, work.active > 0) < 0)
		r = refuse(u, "no-systemctl", "the units cannot be restarted");
	else
		r = judge(u, &work);
	return r < 0 ? decide_back(u, true) : commit(u);
}

static int
resume_trial(struct updater *u, bool at_boot)
{
	static struct upgrade_probe probe;
	static const struct judge none;
	struct judge_facts f;
	char target[UPGRADE_LINK_SIZE], now[UPGRADE_LINK_SIZE];
	int r = 0;

	new_target(u, target);
	link_read(u, LINK_CURRENT, now);
	if (strcmp(now, target) != 0)
		return forget(u);
	u->state.entries++;
	if (u->state.entries > TRIAL_ENTRIES)
		r = refuse(u, "interrupted", "its trial was interrupted %d times", TRIAL_ENTRIES);
	else if (!target_complete(u, target))
		r = refuse(u, "incomplete", "the release is not complete");
	else if (store_save_state(u, UPGRADE_TRIAL) < 0)
		r = refuse(u, "io", "the state cannot be written");
	if (r < 0 || at_boot)
		return r < 0 ? decide_back(u, !at_boot) : 0;
	if (u->state.units == 0)
		return commit(u);
	/* The units may not have been restarted yet. */
	look(u, &none, target, &probe, &f);
	if (!f.units[JUDGE_PRIVHELPER].runs_new || !f.units[JUDGE_CONNECTD].runs_new || !f.units[JUDGE_WORKERD].runs_new)
		units_restart(u, probe.active > 0);
	return judge(u, NULL) < 0 ? decide_back(u, true) : commit(u);
}

int
trial_resume(struct updater *u, bool at_boot)
{
	step(u, "sequence %" PRIu64 " was interrupted in phase %s", u->state.sequence, upgrade_phase_name(u->state.phase));
	switch (u->state.phase) {
	case UPGRADE_STAGING: return forget(u);
	case UPGRADE_TRIAL: return resume_trial(u, at_boot);
	case UPGRADE_BACK: return back(u, !at_boot);
	case UPGRADE_COMMIT: return commit(u);
	}
	return -EINVAL;
}

int
trial_settle_links(struct updater *u)
{
	char current[UPGRADE_LINK_SIZE], updater[UPGRADE_LINK_SIZE], version[RELEASE_VERSION_SIZE];
	uint64_t packaged = target_sequence(u, u->packaged, version);
	int r;

	link_read(u, LINK_CURRENT, current);
	link_read(u, LINK_UPDATER, updater);
	if (!target_complete(u, current) || (strcmp(current, u->packaged) != 0 && target_sequence(u, current, version) <= packaged)) {
		if (current[0] != '\0')
			log_warn("the packaged release, sequence %" PRIu64 ", takes over from %s", packaged, current);
		snprintf(current, sizeof(current), "%s", u->packaged);
		updater[0] = '\0';
	}
	r = link_set(u, LINK_CURRENT, current);
	if (r == 0 && !target_complete(u, updater))
		r = link_set(u, LINK_UPDATER, current);
	return r;
}
