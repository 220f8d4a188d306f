/*
 * Names to addresses, by c-ares in the event loop: A and AAAA at the same time, /etc/hosts first where nsswitch.conf
 * says so. Each query has its own c-ares channel and with it reads resolv.conf anew: a resolver file that was replaced
 * counts from the next query on, a cancelled query takes everything with it, and nothing is remembered that could be
 * stale. localhost and *.localhost are the loopback addresses without asking anybody (RFC 6761).
 */
#ifndef EDGEWARD_CONNECTD_DNS_H
#define EDGEWARD_CONNECTD_DNS_H

#include <stdbool.h>

#include "common/loop.h"
#include "connectd/netaddr.h"

#define DNS_ADDRS_MAX	64u	/* addresses beyond are ignored: one round through them stays bounded */

struct dns_query;

/*
 * More addresses, in the order they came. last: there will be no further call; n is 0 in it when that is all there is.
 * why is the reason when no address came at all, else NULL.
 */
typedef void (*dns_cb)(const union netaddr *addrs, size_t n, bool last, const char *why, void *ctx);

/*
 * host is a name or an address in text form (ip, ip6 as in struct url). The answer comes from the loop, never from
 * inside this call. -ENOMEM, -EMFILE. dns_free() cancels.
 */
int dns_start(struct loop *loop, const char *host, bool ip, bool ip6, uint16_t port, dns_cb cb, void *ctx,
    struct dns_query **ret_query);
void dns_free(struct dns_query *query);

/* Tests put their own server here ("127.0.0.1:port", kept, not copied); NULL restores resolv.conf. */
void dns_set_server(const char *server);

/* Once per process, before the first query; not thread-safe. -ENOMEM. */
int dns_library_init(void);
void dns_library_done(void);

#endif
