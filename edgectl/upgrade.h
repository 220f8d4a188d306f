/* upgrade: what it asks for, and how it shows what became of it. */
#ifndef EDGEWARD_EDGECTL_UPGRADE_H
#define EDGEWARD_EDGECTL_UPGRADE_H

#include <stdbool.h>
#include <stdint.h>

#include "edgectl/edgectl.h"
#include "proto/release/records.h"

struct upgrade_options {
	const char *file, *state;	/* state: /var/lib/edgeward */
	bool check, cancel, history, downgrade, no_wait;
	uint32_t settle;
};

/* The history below dir (the upgrade directory): 0, also when there is none, or -errno. */
int upgrade_read_history(int dir, struct upgrade_history *ret_history);

/* Each prints and returns an exit code. */
int upgrade_show_entry(const struct edgectl *ctl, const struct upgrade_entry *e);
int upgrade_show_history(const struct edgectl *ctl, int dir);
/* hub: what connectd fetches for it, "" = nothing. */
int upgrade_show_state(const struct edgectl *ctl, int base, int dir, const char *hub);
int upgrade_show_check(const struct edgectl *ctl, const struct upgrade_options *o);

#endif
