/*
 * What changes around us and makes a retry worth while at once: an address was added (netlink), the resolver file was
 * replaced (inotify on its directory, and on the one a link leads to), the wall clock was set.
 */
#ifndef EDGEWARD_CONNECTD_NETWATCH_H
#define EDGEWARD_CONNECTD_NETWATCH_H

#include "common/loop.h"

struct netwatch;

/*
 * changed() is told "address", "resolver" or "clock", at most once a second all together. A source the system refuses is
 * left out: it only makes retries quicker. -ENOMEM.
 */
int netwatch_new(struct loop *loop, const char *resolver, void (*changed)(const char *what, void *ctx), void *ctx,
    struct netwatch **ret_watch);
void netwatch_free(struct netwatch *watch);

#endif
