/* Giving up privilege, and checking that it is given up. libcap underneath. Every failure is -errno; callers end. */
#ifndef EDGEWARD_DROP_H
#define EDGEWARD_DROP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/capability.h>
#include <sys/types.h>

/*
 * Keeps exactly caps[0..n) in the permitted and effective sets, empties the inheritable and ambient sets, drops everything
 * else from the bounding set where that is permitted, and sets no_new_privs.
 */
int drop_to_caps(const cap_value_t *caps, size_t n);

/* Whether this process could use it. */
bool drop_is_permitted(cap_value_t cap);

/*
 * For a daemon that must own nothing: empties all sets, sets no_new_privs, makes the process undumpable (its memory holds
 * secrets), then reads /proc back: no capability, not uid 0. -EPERM when running as root.
 */
int drop_everything(void);

/*
 * In a child that is about to become a workload, with CAP_SETUID and CAP_SETGID: no supplementary groups, these ids, no capability, not
 * dumpable. With uid 0 the ids stay what they are. Inheritable and ambient sets and no_new_privs are the caller's: drop_to_caps()
 * has seen to them.
 */
int drop_to_runner(uid_t uid, gid_t gid);

#endif
