/*
 * The service manager by way of systemctl(1), and the daemons by way of edgectl(8).
 *
 * Who calls: trial.c. What is trusted: systemctl. What the daemons say of themselves is asked by an edgectl of their own release, run as
 * an ordinary user in the socket's group, so that root parses a few lines and no records. On error: it counts as not healthy.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/parse.h"
#include "common/runprog.h"
#include "privupgrade/privupgrade.h"

#define SYSTEMCTL_MS	30000
#define PROBE_MS	5000

static const char *const names[JUDGE_UNITS] = { [JUDGE_PRIVHELPER] = "edgeward-privhelper.service", [JUDGE_CONNECTD] = "edgeward-connectd.service",
	[JUDGE_WORKERD] = "edgeward-workerd.service" };

static void
set_property(struct judge_unit_facts *info, const char *line)
{
	if (strncmp(line, "ActiveState=", 12) == 0) {
		info->failed = strcmp(line + 12, "failed") == 0;
		info->active = !info->failed && strcmp(line + 12, "inactive") != 0 && strcmp(line + 12, "deactivating") != 0;
	} else if (strncmp(line, "MainPID=", 8) == 0) {
		parse_u64(line + 8, 0, INT32_MAX, &info->pid);
	} else if (strncmp(line, "NRestarts=", 10) == 0) {
		parse_u64(line + 10, 0, UINT32_MAX, &info->restarts);
	}
}

int
units_look(struct updater *u, struct judge_unit_facts units[JUDGE_UNITS])
{
	const char *const argv[] = { u->systemctl, "show", "-p", "ActiveState,MainPID,NRestarts", names[0], names[1], names[2], NULL };
	char out[1024], *line = out;
	int r = run_program(argv, 0, 0, SYSTEMCTL_MS, out, sizeof(out));

	memset(units, 0, JUDGE_UNITS * sizeof(units[0]));
	if (r != 0)
		return r < 0 ? r : -EIO;
	for (unsigned i = 0; i < JUDGE_UNITS && line != NULL; ) {	/* one block for each, an empty line between */
		char *next = strchr(line, '\n');

		if (next != NULL)
			*next++ = '\0';
		if (line[0] == '\0')
			i++;
		else
			set_property(&units[i], line);
		line = next;
	}
	return 0;
}

static int
order(struct updater *u, const char *what, const char *unit)
{
	const char *const argv[] = { u->systemctl, "--no-block", what, unit, NULL };
	char out[512];
	int r = run_program(argv, 0, 0, SYSTEMCTL_MS, out, sizeof(out));

	if (r != 0)
		step(u, "systemctl %s %s failed: %.100s", what, unit, r < 0 ? strerror(-r) : out);
	return r < 0 ? r : r > 0 ? -EIO : 0;
}

int
units_restart(struct updater *u, bool keep_work)
{
	int r = 0;

	for (unsigned i = 0; i < JUDGE_UNITS; i++)
		if ((u->state.units >> i & 1) != 0) {
			int e = order(u, i == JUDGE_WORKERD && keep_work ? "reload" : "restart", names[i]);

			r = r < 0 ? r : e;
		}
	return r;
}

void
units_probe(struct updater *u, const char *target, struct upgrade_probe *ret_probe)
{
	static char out[UPGRADE_RECORD_MAX];
	char edgectl[600], sock[300];
	const char *const argv[] = { edgectl, "-r", u->rundir, "probe", u->open ? u->state.peer : "-", NULL };
	struct stat st;

	*ret_probe = (struct upgrade_probe){ .cause = "no-probe", .peer = "-" };
	snprintf(sock, sizeof(sock), "%s/connectd.sock", u->rundir);
	if (target[0] == '/')
		snprintf(edgectl, sizeof(edgectl), "%s", u->packaged_edgectl);
	else
		snprintf(edgectl, sizeof(edgectl), "%s/%s/edgectl", u->base_path, target);
	if (stat(sock, &st) == 0 && run_program(argv, u->test_uid, st.st_gid, PROBE_MS, out, sizeof(out)) == 0)
		upgrade_probe_parse(out, strlen(out), ret_probe);
}
