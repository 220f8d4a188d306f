#include "proto/hub/egress.h"

#include <stdlib.h>
#include <string.h>

static bool
given(const struct json *j)
{
	return j != NULL && j->type != JSON_NULL;
}

/* Strings through parse(), at most max of them. */
static bool
take_cidrs(const struct json *list, bool deny, struct fw_cidr *dst, uint32_t *ret_n)
{
	*ret_n = 0;
	if (!given(list))
		return true;
	if (list->type != JSON_ARRAY)
		return false;
	for (const struct json *j = list->child; j != NULL; j = j->next)
		if (*ret_n == FW_CIDRS || j->type != JSON_STRING || j->len != strlen(j->str) ||
		    fw_cidr_parse(j->str, deny, &dst[(*ret_n)++]) < 0)
			return false;
	return true;
}

static bool
take_resolvers(const struct json *list, struct firewall *fw)
{
	if (!given(list))
		return true;
	if (list->type != JSON_ARRAY)
		return false;
	for (const struct json *j = list->child; j != NULL; j = j->next)
		if (fw->nresolvers == FW_RESOLVERS || j->type != JSON_STRING || j->len != strlen(j->str) ||
		    fw_resolver_parse(j->str, &fw->resolvers[fw->nresolvers++]) < 0)
			return false;
	return true;
}

static bool
take_ports(const struct json *list, struct firewall *fw)
{
	if (!given(list))
		return true;
	if (list->type != JSON_ARRAY)
		return false;
	for (const struct json *j = list->child; j != NULL; j = j->next) {
		if (fw->nports == FW_PORTS || j->type != JSON_INT || j->i < 1 || j->i > 65535)
			return false;
		fw->ports[fw->nports++] = (uint16_t)j->i;
	}
	return true;
}

/* An empty object reaches nothing. */
static bool
take_firewall(const struct json *j, struct firewall *fw)
{
	const struct json *public = json_get(j, "allow_public_internet");

	memset(fw, 0, sizeof(*fw));
	if (j->type != JSON_OBJECT || (given(public) && public->type != JSON_BOOL))
		return false;
	fw->public_internet = given(public) && public->i != 0;
	return take_cidrs(json_get(j, "allow_cidrs"), false, fw->allow, &fw->nallow) &&
	    take_cidrs(json_get(j, "deny_cidrs"), true, fw->deny, &fw->ndeny) && take_ports(json_get(j, "allow_ports"), fw) &&
	    take_resolvers(json_get(j, "resolvers"), fw);
}

static const char *
take_proxy(const struct json *proxy, struct firewall *fw, bool *ret_malformed)
{
	const struct json *gateway = json_get(proxy, "gateway");
	const char *host = json_get_str(proxy, "host");
	int64_t port;

	*ret_malformed = true;
	if (proxy->type != JSON_OBJECT || host == NULL || !json_get_int(proxy, "port", 1, 65535, &port))
		return "egress_proxy must have a host and a port";
	*ret_malformed = false;
	if (given(gateway) && (gateway->type != JSON_BOOL || gateway->i != 0))
		return "egress_proxy: there is no bridge here whose gateway it could be; give its address";
	fw->proxy.port = (uint16_t)port;
	if (fw_address_parse(host, &fw->proxy) < 0)
		return "egress_proxy: host must be an address a workload can reach, not a name";
	fw->has_proxy = true;
	return NULL;
}

const char *
egress_decode(const struct json *spec, struct work_spec *out, bool *ret_malformed)
{
	const struct json *rules = json_get(spec, "egress_rules"), *bound = json_get(spec, "egress_bound"),
	    *proxy = json_get(spec, "egress_proxy"), *off = json_get(spec, "disable_network"), *network = json_get(spec, "network");

	*ret_malformed = true;
	if (given(off) && off->type != JSON_BOOL)
		return "disable_network must be true or false";
	memset(out->net, 0, sizeof(*out->net));
	if (given(rules) && !take_firewall(rules, &out->net->rules))
		return "egress_rules hold what is no address, prefix, port or resolver, or too many of them";
	if (given(bound) && !take_firewall(bound, &out->net->bound))
		return "egress_bound holds what is no address, prefix, port or resolver, or too many of them";
	out->net->bounded = given(bound);
	/* A bound without rules: everything in it, and nothing else. */
	if (given(bound) && !given(rules))
		out->net->rules = out->net->bound;
	out->network = given(rules) || given(bound) ? WORK_NETWORK_FILTERED : WORK_NETWORK_DEFAULT;
	if (given(off) && off->i != 0) {
		out->network = WORK_NETWORK_NONE;
		return NULL;
	}
	/* Edgeward's own: the device's network, and if its policy gives less, a refusal instead of less. */
	if (given(network) && (network->type != JSON_STRING || strcmp(network->str, "host") != 0 || out->network != WORK_NETWORK_DEFAULT))
		return "network must be host, and without egress_rules or egress_bound";
	if (given(network))
		out->network = WORK_NETWORK_HOST;
	if (!given(proxy) || (proxy->type == JSON_OBJECT && proxy->child == NULL))
		return NULL;
	*ret_malformed = false;
	if (out->network != WORK_NETWORK_FILTERED)
		return NULL;	/* nothing keeps it from the proxy */
	return take_proxy(proxy, &out->net->rules, ret_malformed);
}

const char *
egress_of_virtual(const struct json *payload, struct work_spec *out, bool *ret_malformed)
{
	const struct json *fw = json_get(json_get(payload, "virtual"), "firewall");

	if (!given(fw))
		return NULL;
	*ret_malformed = true;
	if (!take_firewall(fw, &out->net->bound))
		return "virtual.firewall holds what is no address, prefix, port or resolver, or too many of them";
	if (out->network == WORK_NETWORK_NONE)
		return NULL;
	*ret_malformed = false;
	if (out->network == WORK_NETWORK_FILTERED && out->net->bounded)
		return "this device does not bound egress_rules by egress_bound and by a virtual executor's firewall; leave egress_bound out";
	out->net->bounded = true;
	if (out->network != WORK_NETWORK_FILTERED)
		out->net->rules = out->net->bound;
	out->network = WORK_NETWORK_FILTERED;
	return NULL;
}
