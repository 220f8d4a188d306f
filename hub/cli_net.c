/* `run`: what of the network it may have. Everything is checked here with the device's own parsers, so that a slip is told at once. */
#include "hub/cli_net.h"

#include <errno.h>
#include <string.h>

#include "common/parse.h"

static int
bad(const char *text, const char *arg)
{
	cli_fail(RUN_EXIT_NOT_STARTED, "%s: %s", arg, text);
	return -EINVAL;
}

static int
add_cidr(const char *arg, bool deny, struct fw_cidr *list, uint32_t *n)
{
	if (*n == FW_CIDRS)
		return bad("more than 256 addresses", arg);
	if (fw_cidr_parse(arg, deny, &list[*n]) < 0)
		return bad(deny ? "--deny: an address, or a prefix such as 10.0.0.0/8" :
		    "--allow: an address, or a prefix such as 10.0.0.0/8; everything is --public", arg);
	++*n;
	return 1;
}

static int
add_port(struct firewall *fw, const char *arg)
{
	uint32_t port;

	if (fw->nports == FW_PORTS || parse_u32(arg, 1, 65535, &port) < 0)
		return bad("--port: at most 64 numbers from 1 to 65535", arg);
	fw->ports[fw->nports++] = (uint16_t)port;
	return 1;
}

/* The parser of resolvers takes an address with its port; here one must be given. */
static int
take_proxy(struct firewall *fw, const char *arg)
{
	const char *colon = strrchr(arg, ':');

	if (colon == NULL || fw_resolver_parse(arg, &fw->proxy) < 0 || (strchr(arg, ':') != colon && colon[-1] != ']'))
		return bad("--proxy: ADDRESS:PORT, IPv6 in brackets", arg);
	fw->has_proxy = true;
	return 1;
}

static int
take_network(struct net_options *o, const char *arg)
{
	if (strcmp(arg, "none") == 0)
		o->network = WORK_NETWORK_NONE;
	else if (strcmp(arg, "host") == 0)
		o->network = WORK_NETWORK_HOST;
	else if (strcmp(arg, "filtered") == 0)
		o->network = WORK_NETWORK_FILTERED;
	else
		return bad("--network: none, host or filtered", arg);
	return 1;
}

int
net_option(struct net_options *o, int opt, const char *arg)
{
	struct firewall *fw = &o->fw;

	if (opt < NET_NETWORK || opt > NET_PROXY)
		return 0;
	o->rules = o->rules || opt != NET_NETWORK;
	switch (opt) {
	case NET_NETWORK: return take_network(o, arg);
	case NET_PUBLIC: fw->public_internet = true; return 1;
	case NET_ALLOW: return add_cidr(arg, false, fw->allow, &fw->nallow);
	case NET_DENY: return add_cidr(arg, true, fw->deny, &fw->ndeny);
	case NET_PORT: return add_port(fw, arg);
	case NET_PROXY: return take_proxy(fw, arg);
	default: break;
	}
	if (fw->nresolvers == FW_RESOLVERS || fw_resolver_parse(arg, &fw->resolvers[fw->nresolvers]) < 0)
		return bad("--resolver: at most 16 addresses, each with or without a port", arg);
	fw->nresolvers++;
	return 1;
}

int
net_check(struct net_options *o)
{
	if (o->rules && o->network != WORK_NETWORK_DEFAULT && o->network != WORK_NETWORK_FILTERED)
		return cli_fail(RUN_EXIT_NOT_STARTED, "--network %s has no rules; leave it out, or leave --public, --allow and the like out",
		    o->network == WORK_NETWORK_NONE ? "none" : "host");
	if (o->rules)
		o->network = WORK_NETWORK_FILTERED;
	return 0;
}
