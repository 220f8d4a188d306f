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
#define WORKERD_DEATHS	3	/* of workerd under one launcher, which starts it again itself */

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

static void
units_before(const struct updater *u, struct unit_info before[UNITS])
{
	for (unsigned i = 0; i < UNITS; i++)
		before[i] = (struct unit_info){ .active = (u->state.units >> i & 1) != 0 };
}

/* NULL if all that ran before runs from target, knows each other and answers; else what is wrong. */
static const char *
unhealthy(const struct updater *u, const struct unit_info before[UNITS], const struct unit_info now[UNITS], const struct upgrade_probe *probe,
    const char *target)
{
	if (before[UNIT_PRIVHELPER].active && !runs(u, now[UNIT_PRIVHELPER].pid, target, "privhelper"))
		return "privhelper does not run";
	if (before[UNIT_CONNECTD].active && !runs(u, now[UNIT_CONNECTD].pid, target, "connectd"))
		return "connectd does not run";
	if (before[UNIT_CONNECTD].active && !probe->net_up)
		return "connectd does not answer";
	if (before[UNIT_WORKERD].active && !probe->work_up)
		return "workerd does not answer";
	if (before[UNIT_WORKERD].active && !runs(u, probe->work_pid, target, "workerd"))
		return "workerd is not the new one";
	if (before[0].active && before[1].active && before[2].active && !probe->introduced)
		return "the processes do not know each other";
	return NULL;
}

/* A workload that ran and is neither running under its pid nor properly ended. One that is no longer told of has ended, or its
 * process would still be there. */
static const char *
lost_work(const struct upgrade_probe *before, const struct upgrade_probe *now)
{
	for (unsigned i = 0; i < before->nwork; i++) {
		const struct upgrade_work *w = &before->work[i], *found = NULL;

		for (unsigned k = 0; k < now->nwork && found == NULL; k++)
			if (strcmp(now->work[k].handle, w->handle) == 0)
				found = &now->work[k];
		if (w->pid != 0 && (found != NULL ? found->pid != 0 && found->pid != w->pid : kill((pid_t)w->pid, 0) == 0))
			return w->handle;
	}
	return NULL;
}

struct watch {
	struct unit_info before[UNITS], first[UNITS], now[UNITS];
	struct upgrade_probe work, probe;	/* work: what ran before */
	unsigned deaths;
	bool looked, told;
};

/* Ended and started again by the service manager, or by the launcher. A restart that somebody asked for resets the count. */
static int
crashed(struct updater *u, struct watch *w, uint64_t old_work_pid)
{
	static const char *const names[UNITS] = { "privhelper", "connectd", "the launcher" };

	for (unsigned i = 0; i < UNITS; i++) {
		if (!w->looked || w->now[i].restarts < w->first[i].restarts)
			w->first[i] = w->now[i];
		if (w->before[i].active && (w->now[i].failed || w->now[i].restarts > w->first[i].restarts))
			return refuse(u, "crashed", "%s ended and was started again", names[i]);
	}
	if (w->now[UNIT_WORKERD].pid != w->first[UNIT_WORKERD].pid)
		w->deaths = 0;
	w->first[UNIT_WORKERD].pid = w->now[UNIT_WORKERD].pid;
	if (old_work_pid != 0 && w->probe.work_pid != 0 && w->probe.work_pid != old_work_pid && ++w->deaths > WORKERD_DEATHS)
		return refuse(u, "crashed", "workerd ends again and again");
	w->looked = true;
	return 0;
}

/* One look. 1 = healthy, 0 = not (yet), -ECANCELED = back. */
static int
look(struct updater *u, struct watch *w, const char *target, const char **ret_why)
{
	uint64_t old_work_pid = w->probe.work_pid;
	const char *lost;
	int r;

	if (unlinkat(u->dir, "cancel", 0) == 0)
		return refuse(u, "cancelled", "the operator cancelled it");
	r = units_look(u, w->now);
	if (r < 0) {
		*ret_why = "systemctl does not work";
		return 0;
	}
	units_probe(u, target, &w->probe);
	r = crashed(u, w, old_work_pid);
	if (r < 0)
		return r;
	*ret_why = unhealthy(u, w->before, w->now, &w->probe, target);
	if (*ret_why != NULL)
		return 0;
	lost = lost_work(&w->work, &w->probe);
	return lost != NULL ? refuse(u, "lost-work", "workload %s was not taken over", lost) : 1;
}

/* The hub: 1 = welcomed again, or there was no session before; 0 = it is not to be reached, which is nobody's fault; -ECANCELED. */
static int
look_at_hub(struct updater *u, struct watch *w, bool late)
{
	if (!u->state.connected || w->probe.connected)
		return 1;
	if (w->probe.hub_refuses && late)
		return refuse(u, "hub-refuses", "the hub is there and does not take it: %s", w->probe.cause);
	if (!w->told)
		step(u, "not connected (%s): it stays on trial until there is a session", w->probe.cause);
	w->told = true;
	return 0;
}

/* 0 = it may stay, -ECANCELED. Being offline alone never ends it. */
static int
judge(struct updater *u, struct watch *w, const char *target)
{
	monotime_t begin = monotime_now(), good = begin;
	const char *why = NULL;

	for (;;) {
		int r = look(u, w, target, &why);
		monotime_t now = monotime_now();

		if (r < 0)
			return r;
		if (r > 0)
			good = now;
		else if (monotime_diff_ms(now, good) >= u->start_ms)
			return refuse(u, "unhealthy", "%s", why);
		if (r > 0 && monotime_diff_ms(now, begin) >= (int64_t)u->state.settle * 1000) {
			r = look_at_hub(u, w, monotime_diff_ms(now, begin) >= (int64_t)u->state.settle * 1000 + u->start_ms);
			if (r != 0)
				return r < 0 ? r : 0;
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

/* Waits for the old release to run again; whatever comes of it, there is nothing else to go to. */
static void
wait_for_old(struct updater *u, const struct unit_info before[UNITS], const char *target)
{
	static const char *const programs[] = { "privhelper", "connectd", "launcher" };
	monotime_t end = monotime_add_ms(monotime_now(), u->start_ms);
	struct unit_info now[UNITS];
	bool all = false;

	while (!all && monotime_before(monotime_now(), end)) {
		all = units_look(u, now) == 0;
		for (unsigned i = 0; i < UNITS; i++)
			all = all && (!before[i].active || (now[i].active && (runs(u, now[i].pid, target, programs[i]) || i == UNIT_WORKERD)));
		if (!all)
			usleep(POLL_MS * 1000);
	}
	if (!all)
		log_error("the old release does not run as it should: look at systemctl status 'edgeward-*'");
}

static int
back(struct updater *u, bool restart)
{
	const char *to = target_complete(u, u->state.from) ? u->state.from : u->packaged;
	struct unit_info before[UNITS];
	struct upgrade_probe probe;
	int r = store_save_state(u, UPGRADE_BACK);

	step(u, "back to %s: %s", to, u->state.detail);
	if (r == 0)
		r = link_set(u, LINK_CURRENT, to);
	if (r == 0 && restart) {
		units_before(u, before);
		units_probe(u, to, &probe);
		units_restart(u, before, probe.work_up && probe.active > 0);
		wait_for_old(u, before, to);
	}
	if (r == 0)
		r = store_record(u, UPGRADE_OUT_BACK, u->state.code, u->state.detail);
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
	struct watch w = { 0 };
	char target[UPGRADE_LINK_SIZE];
	int r = units_look(u, w.before);

	if (r < 0)
		return refuse(u, "no-systemctl", "the service manager cannot be asked: %s", strerror(-r));
	units_probe(u, u->state.from, &w.work);
	u->state.units = 0;
	for (unsigned i = 0; i < UNITS; i++)
		u->state.units |= w.before[i].active ? 1u << i : 0;
	u->state.connected = w.before[UNIT_CONNECTD].active && w.work.connected;
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
	r = units_restart(u, w.before, w.work.active > 0);
	if (r == 0)
		r = judge(u, &w, target);
	else
		refuse(u, "no-systemctl", "the units cannot be restarted");
	return r < 0 ? decide_back(u, true) : commit(u);
}

static int
resume_trial(struct updater *u, bool at_boot)
{
	struct watch w = { 0 };
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
	units_before(u, w.before);
	if (u->state.units == 0)
		return commit(u);
	units_probe(u, target, &w.probe);
	if (units_look(u, w.now) < 0 || unhealthy(u, w.before, w.now, &w.probe, target) != NULL)
		units_restart(u, w.before, w.probe.active > 0);
	w.probe.work_pid = 0;
	return judge(u, &w, target) < 0 ? decide_back(u, true) : commit(u);
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
