/*
 * Sets of addresses of one family, as sorted ranges that neither touch nor overlap: what a firewall allows is computed with
 * these, and what is inside of what is proven with them. IPv4 addresses are the numbers below 2^32.
 */
#ifndef EDGEWARD_PROTO_NETSET_H
#define EDGEWARD_PROTO_NETSET_H

#include <stdbool.h>
#include <stdint.h>

#define NETSET_MAX	2048u	/* ranges; every range added or taken away makes one more at most */

__extension__ typedef unsigned __int128 netaddr_t;

struct netrange {
	netaddr_t lo, hi;	/* both belong to it; lo <= hi */
};

struct netset {
	uint32_t n;
	struct netrange r[NETSET_MAX];
};

/* 0, or -ENOSPC, and the set is what it was. */
int netset_add(struct netset *s, struct netrange r);
int netset_sub(struct netset *s, struct netrange r);

bool netset_has(const struct netset *s, netaddr_t addr);
bool netset_has_all(const struct netset *s, struct netrange r);	/* every address of r */

/* True if every address of a is one of b. */
bool netset_inside(const struct netset *a, const struct netset *b);

#endif
