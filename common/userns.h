/* User namespaces without privilege: whether there are any, and the one mapping a process may give itself. */
#ifndef EDGEWARD_USERNS_H
#define EDGEWARD_USERNS_H

#include <stdbool.h>
#include <sys/types.h>

/* True if an ordinary process can make a user and a pid namespace here: makes one and ends it. */
bool userns_can(void);

/* In a fresh user namespace: maps the ids this process had outside, and only those, to themselves. 0 or -errno. */
int userns_map_self(uid_t uid, gid_t gid);

#endif
