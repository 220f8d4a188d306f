/*
 * Which events stay when there is no room for all of them: each kind has an equal share, and what one does not need is the others'. So a hub that opens
 * thousands of files pushes out what was written of files, not of links, upgrades and refusals. Of a kind the newest stay. Pure.
 */
#ifndef EDGEWARD_EVENTKEEP_H
#define EDGEWARD_EVENTKEEP_H

#include <stddef.h>

#define EVENTKEEP_KINDS	48u	/* what goes beyond counts as one kind together */

/* Lines of events (common/eventlog.h), oldest first; others are left out. At most max bytes of them, in their order, into out: how many. -ENOMEM. */
int eventkeep(const char *lines, size_t len, char *out, size_t max, size_t *ret_len);

#endif
