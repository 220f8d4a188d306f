/* Addresses of an interface in our own network namespace, by netlink. */
#ifndef EDGEWARD_IFADDR_H
#define EDGEWARD_IFADDR_H

#include "proto/ipc/l2.h"

/* Adds them; one that is there is no error. Needs CAP_NET_ADMIN there. -ENODEV: no such interface; -errno of the first that failed. */
int ifaddr_add(const struct l2_addresses *what);

#endif
