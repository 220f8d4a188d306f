/*
 * What a workload may reach: the firewall object of the hub's protocol (cloop.md 3.4 and 5.6) and of policy.conf, what it means
 * as sets of addresses, and whether one lies inside another. Pure: the rules for the kernel are made of this by
 * workerd/launcher/ruleset.c, in the workload's own network namespace.
 *
 * TCP only, to the addresses that are allowed and not denied, on the ports; and UDP and TCP to each resolver on its port. Nothing else.
 * Never, whatever a list says: loopback, multicast, link-local IPv6, IPv6 forms of IPv4 addresses, and this device's own addresses.
 * A cloud's metadata service only where it is named as a single address.
 */
#ifndef EDGEWARD_PROTO_FIREWALL_H
#define EDGEWARD_PROTO_FIREWALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/netset.h"
#include "proto/ipc/wire.h"

#define FW_CIDRS	256u	/* of a list as it is sent */
#define FW_DENIES	(4 * FW_CIDRS)	/* with those that are inherited, and the device's own addresses */
#define FW_PORTS	64u
#define FW_RESOLVERS	16u
#define FW_TEXT		64	/* bytes of an address, prefix or resolver as text, with NUL */

enum fw_family { FW_V4, FW_V6, FW_FAMILIES };

struct fw_cidr {
	uint8_t family;		/* enum fw_family */
	uint8_t bits;		/* 0..32, 0..128 */
	uint8_t addr[16];	/* network order; IPv4 in the first four */
};

struct fw_endpoint {
	uint8_t family;
	uint16_t port;		/* 1..65535 */
	uint8_t addr[16];
};

struct firewall {
	bool public_internet;	/* what is routed in public, in addition to allow */
	uint32_t nallow, ndeny, nports, nresolvers;
	struct fw_cidr allow[FW_CIDRS], deny[FW_DENIES];
	uint16_t ports[FW_PORTS];	/* none = every port */
	struct fw_endpoint resolvers[FW_RESOLVERS];
	bool has_proxy;
	struct fw_endpoint proxy;	/* one more address with its one TCP port */
};

/* ---- text ---- */

/* "10.0.0.0/8", "fd00::/8", or an address alone. Bits behind the prefix are dropped. 0 or -EINVAL; -ERANGE for a prefix of 0, which is for denying only. */
int fw_cidr_parse(const char *s, bool deny, struct fw_cidr *ret_cidr);
/* An address with or without a port (53), IPv6 with a port in brackets. 0 or -EINVAL; what can never be reached is refused. */
int fw_resolver_parse(const char *s, struct fw_endpoint *ret_resolver);
int fw_address_parse(const char *s, struct fw_endpoint *ret_address);	/* port stays what it is */
const char *fw_cidr_text(const struct fw_cidr *cidr, char buf[FW_TEXT]);
const char *fw_endpoint_text(const struct fw_endpoint *e, char buf[FW_TEXT]);	/* ADDRESS:PORT */
const char *fw_address_text(uint8_t family, netaddr_t addr, char buf[FW_TEXT]);

/* ---- what it means ---- */

netaddr_t fw_address(uint8_t family, const uint8_t addr[16]);
struct netrange fw_range(const struct fw_cidr *cidr);

/* The addresses of a family that TCP may go to. */
int fw_destinations(const struct firewall *fw, enum fw_family family, struct netset *ret_set);

/* True when nothing at all is reached: then no network is needed. */
bool fw_reaches_nothing(const struct firewall *fw);

/* One more deny. 0 or -ENOSPC. */
int fw_deny(struct firewall *fw, const struct fw_cidr *cidr);

/* Denies come first: takes out the resolvers and the proxy whose addresses are denied. */
bool fw_denies(const struct firewall *fw, const struct fw_endpoint *e);
void fw_drop_denied(struct firewall *fw);

/*
 * The proof: every TCP destination of inner (address and port, its proxy included) is one of outer's, once outer's denies hold for inner, too,
 * and every resolver is one of outer's. Then 0, and inner has those denies. Else -EPERM with why[160], -ENOSPC for too many ranges.
 */
int fw_narrow(struct firewall *inner, const struct firewall *outer, char why[160]);

/* ---- between processes ---- */

void fw_put(struct wire_w *w, const struct firewall *fw);
/* Sets the reader's error when it is none. */
void fw_get(struct wire_r *r, struct firewall *ret_fw);

#endif
