/*
 * privtrial: switches to a staged release, judges its trial, and goes back when it must.
 *
 * Who calls: privupgrade, which becomes this program (-s: a release is staged; nothing: a trial was interrupted), both of the release whose
 * link is `updater`; and edgeward-upgrade-boot.service (-b, before the daemons start) in the packaged one. What is trusted: the command
 * line, and what root alone can write; it never looks at anything of edgeward-net's. On error: exit code 1, the state is still on disk and
 * the unit tries again later.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "privupgrade/privtrial.h"

#define USAGE "usage: privtrial [-bsvV] [-d statedir] [-e edgectl] [-l packaged] [-r rundir] [-S systemctl] [-t start-ms] [-u uid]\n"

static struct updater self;

/* A packaged release with a higher sequence takes over; links that lead nowhere lead to the packaged one. */
static int
settle_links(struct updater *u)
{
	char current[UPGRADE_LINK_SIZE], updater[UPGRADE_LINK_SIZE];
	uint64_t packaged = target_sequence(u, u->packaged);
	int r;

	link_read(u, LINK_CURRENT, current);
	link_read(u, LINK_UPDATER, updater);
	if (!target_complete(u, current) || (strcmp(current, u->packaged) != 0 && target_sequence(u, current) <= packaged)) {
		if (current[0] != '\0')
			log_warn("the packaged release, sequence %" PRIu64 ", takes over from %s", packaged, current);
		snprintf(current, sizeof(current), "%s", u->packaged);
		updater[0] = '\0';
	}
	r = fd_replace_link(u->base, LINK_CURRENT, current);
	if (r == 0 && !target_complete(u, updater))
		r = fd_replace_link(u->base, LINK_UPDATER, current);
	return r;
}

static int
run(struct updater *u)
{
	int r = updater_open(u);

	if (r <= 0)
		return r;
	r = 0;
	if (u->open && u->state.phase != UPGRADE_STAGING)
		r = trial_resume(u);
	else if (u->open && u->begin)
		r = trial_begin(u);
	/* What was being staged is privupgrade's to forget. */
	if (r == 0 && u->at_boot && (!u->open || u->state.phase == UPGRADE_STAGING))
		r = settle_links(u);
	return r;
}

int
main(int argc, char **argv)
{
	int r = updater_options(&self, "privtrial", argc, argv);

	if (r < 0 || self.check != NULL) {
		fputs(USAGE, stderr);
		return 2;
	}
	if (r > 0)
		return 0;
	r = run(&self);
	if (r < 0)
		fatal("%s: %s", self.base_path, strerror(-r));
	return 0;
}
