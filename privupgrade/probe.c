/*
 * Asks the daemons how they are, by way of edgectl(8).
 *
 * Who calls: trial.c. What is trusted: nothing of the answer. It comes from an edgectl of their own
 * release, run as an ordinary user in the socket's group, so that root parses a few lines and no records. On error: it counts as not
 * healthy.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/runprog.h"
#include "privupgrade/privtrial.h"

#define PROBE_MS	5000	/* or a sixth of -t, on machines so slow that they need more */

void
probe_daemons(struct updater *u, const char *target, struct upgrade_probe *ret_probe)
{
	static char out[UPGRADE_RECORD_MAX];
	char edgectl[600], sock[300];
	const char *const argv[] = { edgectl, "-r", u->rundir, "probe", u->open ? u->state.peer : "-", NULL };
	int64_t ms = u->start_ms / 6 > PROBE_MS ? u->start_ms / 6 : PROBE_MS;
	struct stat st;

	*ret_probe = (struct upgrade_probe){ .cause = "no-probe", .peer = "-" };
	snprintf(sock, sizeof(sock), "%s/connectd.sock", u->rundir);
	if (target[0] == '/')
		snprintf(edgectl, sizeof(edgectl), "%s", u->packaged_edgectl);
	else
		snprintf(edgectl, sizeof(edgectl), "%s/%s/edgectl", u->base_path, target);
	if (stat(sock, &st) == 0 && run_program(argv, u->test_uid, st.st_gid, ms, out, sizeof(out)) == 0)
		upgrade_probe_parse(out, strlen(out), ret_probe);
}
