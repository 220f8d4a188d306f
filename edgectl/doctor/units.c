/* The units, as systemd has them loaded, with the operator's drop-ins. One systemctl show for all. */
#include <stdio.h>
#include <string.h>

#include "common/parse.h"
#include "edgectl/doctor/doctor.h"

#define RESTARTS_MANY	10u

static void
take(const char *line, size_t len, struct unit *u)
{
	const struct {
		const char *key;
		char *value;
		size_t size;
	} keys[] = {
		{ "Id", u->id, sizeof(u->id) }, { "LoadState", u->load, sizeof(u->load) },
		{ "ActiveState", u->active, sizeof(u->active) }, { "SubState", u->sub, sizeof(u->sub) },
		{ "UnitFileState", u->file, sizeof(u->file) }, { "NeedDaemonReload", u->reload, sizeof(u->reload) },
		{ "Delegate", u->delegate, sizeof(u->delegate) }, { "DropInPaths", u->dropins, sizeof(u->dropins) },
		{ "NRestarts", u->restarts, sizeof(u->restarts) },
	};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		size_t k = strlen(keys[i].key);

		if (len > k && strncmp(line, keys[i].key, k) == 0 && line[k] == '=')
			snprintf(keys[i].value, keys[i].size, "%.*s", (int)(len - k - 1), line + k + 1);
	}
}

bool
unit_next(const char **text, struct unit *ret_unit)
{
	const char *p = *text;

	memset(ret_unit, 0, sizeof(*ret_unit));
	while (*p == '\n')
		p++;
	while (*p != '\0' && *p != '\n') {
		size_t len = strcspn(p, "\n");

		take(p, len, ret_unit);
		p += len;
		if (*p == '\n')
			p++;
	}
	*text = p;
	return ret_unit->id[0] != '\0';
}

static void
judge(struct doctor *d, const struct unit *u)
{
	const char *name = strncmp(u->id, "edgeward-", 9) == 0 ? u->id + 9 : u->id;
	char command[200];
	uint32_t restarts = 0;

	if (parse_u32(u->restarts, 0, UINT32_MAX, &restarts) < 0)
		restarts = 0;
	snprintf(command, sizeof(command), "journalctl -eu %s", u->id);
	if (strcmp(u->load, "loaded") != 0) {
		snprintf(command, sizeof(command), "systemctl cat %s", u->id);
		check_bad(d, name, CHECK_FAIL, strcmp(u->load, "masked") == 0 ? "masked" : "not-installed", command, "%s is %s", u->id, u->load);
	} else if (strcmp(u->reload, "yes") == 0) {
		check_bad(d, name, CHECK_WARN, "needs-reload", "systemctl daemon-reload", "the file of %s or a drop-in was changed since "
		    "systemd read it", u->id);
	} else if (strcmp(u->delegate, "no") == 0 && strcmp(u->id, "edgeward-workerd.service") == 0) {
		check_bad(d, name, CHECK_FAIL, "no-delegation", "systemctl cat edgeward-workerd", "a drop-in takes Delegate=yes away from "
		    "%s: workloads get no cgroup", u->id);
	} else if (strcmp(u->active, "active") != 0) {
		if (strcmp(u->active, "inactive") == 0)
			snprintf(command, sizeof(command), "systemctl enable --now %s", u->id);
		/* Without it no upgrade is taken; everything else works. */
		check_bad(d, name, strcmp(u->id, "edgeward-upgrade.path") == 0 ? CHECK_WARN : CHECK_FAIL, "not-running", command,
		    "%s is %s (%s)", u->id, u->active, u->sub);
	} else if (strcmp(u->file, "disabled") == 0) {
		snprintf(command, sizeof(command), "systemctl enable %s", u->id);
		check_bad(d, name, CHECK_WARN, "disabled", command, "%s runs, but will not start at boot", u->id);
	} else if (restarts > RESTARTS_MANY) {
		check_bad(d, name, CHECK_WARN, "restarts", command, "%s was started again %u times", u->id, restarts);
	} else {
		check_ok(d, name, "%s%s%.200s", u->sub, u->dropins[0] != '\0' ? ", with drop-ins " : "", u->dropins);
	}
}

void
step_units(struct doctor *d)
{
	const char *text = d->units_show.out;
	struct unit u;
	unsigned n = 0;

	if (!d->units) {
		check_skip(d, "units", "%.200s is not the run directory of the units", d->ctl->rundir);
		return;
	}
	if (d->units_show.status != 0) {
		if (!d->systemd)
			check_skip(d, "units", "systemd does not run here");
		else
			check_bad(d, "units", CHECK_WARN, d->units_show.timeout ? "timeout" : "systemctl", "systemctl status 'edgeward-*'",
			    "systemctl show %s", d->units_show.timeout ? "does not answer" : "failed");
		return;
	}
	while (unit_next(&text, &u)) {
		judge(d, &u);
		n++;
	}
	if (n == 0)
		check_bad(d, "units", CHECK_WARN, "systemctl", "systemctl status 'edgeward-*'", "systemctl show told of no unit");
}
