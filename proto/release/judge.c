#include "proto/release/judge.h"

#include <stdio.h>
#include <string.h>

#include "proto/release/lines.h"

#define WORKERD_DEATHS	3	/* of workerd under one launcher, which starts it again itself */
#define REACHED_STARTS	4	/* start times for which the hub's address may answer without a session */

void
judge_init(struct judge *j, const struct upgrade_state *state, int64_t start_ms, const struct upgrade_probe *work)
{
	*j = (struct judge){ .settle_ms = (int64_t)state->settle * 1000, .start_ms = start_ms, .units = state->units, .connected = state->connected,
		.reached_ms = -1 };
	if (work != NULL)
		j->work = *work;
}

/* It goes back, and why. */
#define bad(j, ...)	(refuse(&(j)->why, __VA_ARGS__), JUDGE_BAD)

static bool
counts(const struct judge *j, enum judge_unit unit)
{
	return (j->units >> unit & 1) != 0;
}

/* Ended, and started again by the service manager or by the launcher. A restart that somebody asked for resets the count. */
static enum judge_verdict
look_for_crash(struct judge *j, const struct judge_facts *f)
{
	static const char *const names[JUDGE_UNITS] = { "privhelper", "connectd", "the launcher" };
	uint64_t old = j->work_pid;

	for (unsigned i = 0; i < JUDGE_UNITS; i++) {
		if (!j->looked || f->units[i].restarts < j->first[i].restarts)
			j->first[i].restarts = f->units[i].restarts;
		if (counts(j, i) && (f->units[i].failed || f->units[i].restarts > j->first[i].restarts))
			return bad(j, "crashed", "%s ended and was started again", names[i]);
	}
	if (f->units[JUDGE_WORKERD].pid != j->first[JUDGE_WORKERD].pid)
		j->deaths = 0;
	j->first[JUDGE_WORKERD].pid = f->units[JUDGE_WORKERD].pid;
	j->work_pid = f->probe->work_pid != 0 ? f->probe->work_pid : old;
	if (j->looked && old != 0 && j->work_pid != old && ++j->deaths > WORKERD_DEATHS)
		return bad(j, "crashed", "workerd ends again and again");
	j->looked = true;
	return JUDGE_GO_ON;
}

/* NULL if all that counts runs from the new release, answers and is introduced; else what is wrong. */
static const char *
unhealthy(const struct judge *j, const struct judge_facts *f)
{
	if (!f->units_known)
		return "the service manager does not answer";
	if (counts(j, JUDGE_PRIVHELPER) && !f->units[JUDGE_PRIVHELPER].runs_new)
		return "privhelper does not run";
	if (counts(j, JUDGE_CONNECTD) && !f->units[JUDGE_CONNECTD].runs_new)
		return "connectd does not run";
	if (counts(j, JUDGE_CONNECTD) && !f->probe->net_up)
		return "connectd does not answer";
	if (counts(j, JUDGE_WORKERD) && !f->probe->work_up)
		return "workerd does not answer";
	if (counts(j, JUDGE_WORKERD) && !f->units[JUDGE_WORKERD].runs_new)
		return "workerd is not the new one";
	if (j->units == 7 && !f->probe->introduced)
		return "the processes do not know each other";
	return NULL;
}

/* A workload that ran and is neither running under its pid nor properly ended. One that is no longer told of has ended, unless its
 * process is still there. */
static const char *
lost_work(const struct judge *j, const struct judge_facts *f)
{
	for (unsigned i = 0; i < j->work.nwork; i++) {
		const struct upgrade_work *w = &j->work.work[i], *found = NULL;

		for (unsigned k = 0; k < f->probe->nwork && found == NULL; k++)
			if (strcmp(f->probe->work[k].handle, w->handle) == 0)
				found = &f->probe->work[k];
		if (w->pid != 0 && (found != NULL ? found->pid != 0 && found->pid != w->pid : f->work_alive[i]))
			return w->handle;
	}
	return NULL;
}

/* Healthy and settled: is it welcome at the hub? */
static enum judge_verdict
look_at_hub(struct judge *j, const struct judge_facts *f)
{
	int64_t late = f->now_ms - j->settle_ms;

	if (!j->connected || !counts(j, JUDGE_CONNECTD) || f->probe->connected)
		return JUDGE_GOOD;
	if (f->probe->hub_refuses && late >= j->start_ms)
		return bad(j, "hub-refuses", "the hub is there and does not take it: %s", f->probe->cause);
	if (!f->probe->reachable)
		j->reached_ms = -1;
	else if (j->reached_ms < 0)
		j->reached_ms = f->now_ms;
	if (j->reached_ms >= 0 && f->now_ms - j->reached_ms >= REACHED_STARTS * j->start_ms)
		return bad(j, "no-session", "the hub's address answers, but there is no session: %s", f->probe->cause);
	snprintf(j->why.detail, sizeof(j->why.detail), "%s", f->probe->cause);
	return JUDGE_WAIT;
}

enum judge_verdict
judge_look(struct judge *j, const struct judge_facts *f)
{
	const char *why, *lost;

	if (f->cancelled)
		return bad(j, "cancelled", "the operator cancelled it");
	if (f->units_known && look_for_crash(j, f) == JUDGE_BAD)
		return JUDGE_BAD;
	why = unhealthy(j, f);
	if (why != NULL)
		return f->now_ms - j->good_ms >= j->start_ms ? bad(j, "unhealthy", "%s", why) : JUDGE_GO_ON;
	j->good_ms = f->now_ms;
	lost = lost_work(j, f);
	if (lost != NULL)
		return bad(j, "lost-work", "workload %s was not taken over", lost);
	return f->now_ms >= j->settle_ms ? look_at_hub(j, f) : JUDGE_GO_ON;
}

static void
set_property(struct judge_unit_facts *info, const char *line)
{
	if (strncmp(line, "ActiveState=", 12) == 0) {
		info->failed = strcmp(line + 12, "failed") == 0;
		info->active = !info->failed && strcmp(line + 12, "inactive") != 0 && strcmp(line + 12, "deactivating") != 0;
	} else if (strncmp(line, "MainPID=", 8) == 0) {
		lines_number(line + 8, 0, INT32_MAX, &info->pid);
	} else if (strncmp(line, "NRestarts=", 10) == 0) {
		lines_number(line + 10, 0, UINT32_MAX, &info->restarts);
	}
}

void
judge_read_units(char *text, struct judge_unit_facts units[JUDGE_UNITS])
{
	char *line = text;

	memset(units, 0, JUDGE_UNITS * sizeof(units[0]));
	for (unsigned i = 0; i < JUDGE_UNITS && line != NULL; ) {
		char *next = strchr(line, '\n');

		if (next != NULL)
			*next++ = '\0';
		if (line[0] == '\0')
			i++;
		else
			set_property(&units[i], line);
		line = next;
	}
}

/* The path in the line of the unified hierarchy, without its newline; NULL. */
static const char *
unified(const char *cgroup, size_t *ret_len)
{
	const char *p = strncmp(cgroup, "0::/", 4) == 0 ? cgroup : strstr(cgroup, "\n0::/");

	if (p == NULL)
		return NULL;
	p = strchr(p, '/');
	*ret_len = strcspn(p, "\n");
	return p;
}

bool
judge_is_work(const char *cgroup, const char *launcher)
{
	size_t len, own_len;
	const char *path = unified(cgroup, &len), *own = unified(launcher, &own_len);

	if (path == NULL || own == NULL)
		return path == own;	/* one of them has ended, or there is no such hierarchy */
	while (own_len > 0 && own[own_len - 1] != '/')
		own_len--;
	return len >= own_len && memcmp(path, own, own_len) == 0;
}
