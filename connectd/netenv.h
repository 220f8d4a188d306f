/*
 * What every attempt needs and what must be opened before the sandbox closes: the TLS context with its trust, the DNS
 * resolver, the proxy settings of the environment. Rebuilt parts (resolver after a change of resolv.conf) stay inside.
 */
#ifndef EDGEWARD_CONNECTD_NETENV_H
#define EDGEWARD_CONNECTD_NETENV_H

#include "common/loop.h"

struct netenv;

/* ca_file "" = the system's trust only; else in addition to it. -errno with err filled: a configuration error. */
int netenv_new(struct loop *loop, const char *ca_file, struct netenv **ret_env, char err[200]);
void netenv_free(struct netenv *env);

/*
 * Calls changed() when an address was added (netlink), the resolver file was replaced (inotify on its directory) or the
 * wall clock was set (TFD_TIMER_CANCEL_ON_SET). At most once a second.
 */
int netenv_watch(struct netenv *env, void (*changed)(const char *what, void *ctx), void *ctx);

/* For the dial function. */
struct tls_trust;
struct proxy_env;
const struct tls_trust *netenv_trust(const struct netenv *env);
const struct proxy_env *netenv_proxy(const struct netenv *env);

#endif
