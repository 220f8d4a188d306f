/*
 * TCP to the first of several addresses that answers, staggered as RFC 8305 section 5 has it: families in turn, IPv6
 * first, the next one after 250 ms or at once when an earlier one has failed. The only place that connects to a network.
 */
#ifndef EDGEWARD_CONNECTD_RACE_H
#define EDGEWARD_CONNECTD_RACE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/loop.h"
#include "connectd/netaddr.h"

#define RACE_STAGGER_MS	250

struct race;

/*
 * fd >= 0: connected, owned by the callee, peer is its address. fd < 0: no address is left; then it is the most telling
 * -errno of all attempts: -ECONNREFUSED, -ETIMEDOUT, -ENETUNREACH, -EHOSTUNREACH, -EMFILE, ... Called once.
 */
typedef void (*race_cb)(int fd, const union netaddr *peer, void *ctx);

/* user_timeout_ms: TCP_USER_TIMEOUT of the connection, 0 = the kernel's. The result comes from the loop. -ENOMEM. */
int race_new(struct loop *loop, unsigned user_timeout_ms, race_cb cb, void *ctx, struct race **ret_race);
void race_free(struct race *race);

/* Adds addresses as they become known. last: these were all. At most DNS_ADDRS_MAX are taken. */
void race_add(struct race *race, const union netaddr *addrs, size_t n, bool last);

/* Attempts begun so far. */
unsigned race_attempts(const struct race *race);

#endif
