/* The network of a run on the command line: less than what the device's policy gives, never more. */
#ifndef EDGEWARD_HUB_CLI_NET_H
#define EDGEWARD_HUB_CLI_NET_H

#include <stdbool.h>

#include "hub/admin.h"
#include "hub/cli.h"
#include "proto/ipc/firewall.h"
#include "proto/ipc/spec.h"

/* Values of getopt_long; those of workspaces are below. */
enum { NET_NETWORK = 320, NET_PUBLIC, NET_ALLOW, NET_DENY, NET_PORT, NET_RESOLVER, NET_PROXY };

#define NET_OPTIONS \
	{ "network", required_argument, NULL, NET_NETWORK }, { "public", no_argument, NULL, NET_PUBLIC }, \
	{ "allow", required_argument, NULL, NET_ALLOW }, { "deny", required_argument, NULL, NET_DENY }, \
	{ "port", required_argument, NULL, NET_PORT }, { "resolver", required_argument, NULL, NET_RESOLVER }, \
	{ "proxy", required_argument, NULL, NET_PROXY }

struct net_options {
	enum work_network network;	/* DEFAULT: nothing was said */
	bool rules;			/* some were given, which means FILTERED */
	struct firewall fw;
};

/* 1: the option is one of these and was taken; 0: it is none; -EINVAL: then the reason was printed. */
int net_option(struct net_options *o, int opt, const char *arg);

/* They fit together. 0, or an exit code: then the reason was printed. */
int net_check(struct net_options *o);

#endif
