/* Where this agent was installed to, and what belongs to its upgrades; looked up once, before the sandbox closes. */
#ifndef EDGEWARD_CONNECTD_UPPLACE_H
#define EDGEWARD_CONNECTD_UPPLACE_H

#include <stdbool.h>
#include <stdint.h>

struct upgrade_place {
	char releases[4096];		/* beside the state directory */
	char keys[4096];		/* beside the configuration */
	bool managed;			/* we run from what `current` leads to */
	bool helper;			/* `updater` has a privupgrade, and releases/ is there */
	uint64_t sequence;		/* of what runs, 0 = unknown */
};

void upplace_find(struct upgrade_place *ret_place, const char *statedir, const char *conf);

#endif
