/* User namespaces without privilege: the one mapping a process may give itself. */
#ifndef EDGEWARD_USERNS_H
#define EDGEWARD_USERNS_H

#include <sys/types.h>

/*
 * Enters a user namespace of its own, in which the ids this process has outside, and only those, are mapped to themselves. It
 * has every capability there. Dumpable for a moment, or the maps would be root's; not dumpable afterwards. 0 or -errno.
 */
int userns_enter(uid_t uid, gid_t gid);

#endif
