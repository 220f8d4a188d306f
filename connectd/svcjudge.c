#include "connectd/svcjudge.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/parse.h"

void
svcjudge_address(const union netaddr *a, uint8_t ret_addr[16])
{
	if (a->sa.sa_family == AF_INET6)
		memcpy(ret_addr, &a->in6.sin6_addr, 16);
	else
		service_map_v4((const uint8_t *)&a->in.sin_addr, ret_addr);
}

enum svc_verdict
svcjudge_target(const struct policy *p, const struct service_target *t, const char *name, char why[SVCJUDGE_WHY])
{
	char where[POLICY_WHERE];

	why[0] = '\0';
	if (p->denied)
		snprintf(why, SVCJUDGE_WHY, "%.150s; no service is reached until that is put right", p->problem);
	else if (!p->serve)
		snprintf(why, SVCJUDGE_WHY, "%s = no", policy_where(p, POLICY_SERVE, where));
	else if (t->scheme == SERVICE_UNIX && !keyfile_list_has(&p->service_sockets, name, strlen(name)))
		snprintf(why, SVCJUDGE_WHY, "%s: %s is not in the list", policy_where(p, POLICY_SERVICE_SOCKETS, where), name);
	else if (t->scheme != SERVICE_UNIX && !t->ip && service_is_cluster_name(t->host))
		snprintf(why, SVCJUDGE_WHY, "cluster-DNS names are only allowed in kubernetes mode");
	return why[0] == '\0' ? SVC_ALLOWED : SVC_DENIED;
}

/* An item of the list: HOST:PORT, as it was checked when the file was read. */
static bool
item_of(const char *item, struct service_target *ret)
{
	char text[KEYFILE_STR + 8];

	snprintf(text, sizeof(text), "http://%s", item);
	return service_target_parse(text, false, ret) == 0;
}

static bool
names_loopback(const struct service_target *t)
{
	union netaddr addr;
	uint8_t a[16];

	if (!t->ip)
		return strcmp(t->host, "localhost") == 0;
	netaddr_set(&addr, t->host, t->ip6, t->port);
	svcjudge_address(&addr, a);
	return service_is_loopback(a);
}

/* A port of loopback is listed by any loopback's name; every other address by itself, or by the name that was asked for. */
static bool
listed(const struct policy *p, const struct service_target *t, const uint8_t addr[16], bool loopback)
{
	struct service_target item;
	union netaddr one;
	uint8_t a[16];

	for (const char *i = NULL; (i = keyfile_list_next(&p->services, i)) != NULL;) {
		if (!item_of(i, &item) || item.port != t->port)
			continue;
		if (loopback ? names_loopback(&item) : !item.ip && strcmp(item.host, t->host) == 0)
			return true;
		if (!item.ip)
			continue;
		netaddr_set(&one, item.host, item.ip6, item.port);
		svcjudge_address(&one, a);
		if (memcmp(a, addr, 16) == 0)
			return true;
	}
	return false;
}

static bool
in_networks(const struct policy *p, const uint8_t addr[16])
{
	struct fw_cidr cidr;

	for (const char *i = NULL; (i = keyfile_list_next(&p->service_networks, i)) != NULL;) {
		uint8_t net[16];
		unsigned bits;

		if (fw_cidr_parse(i, false, &cidr) < 0)
			continue;
		if (cidr.family == FW_V4)
			service_map_v4(cidr.addr, net);
		else
			memcpy(net, cidr.addr, 16);
		bits = cidr.bits + (cidr.family == FW_V4 ? 96u : 0u);
		if (memcmp(net, addr, bits / 8) == 0 && (bits % 8 == 0 || ((net[bits / 8] ^ addr[bits / 8]) >> (8 - bits % 8)) == 0))
			return true;
	}
	return false;
}

static enum svc_verdict
judge_one(const struct policy *p, const struct service_target *t, const union netaddr *addr, bool own, char why[SVCJUDGE_WHY])
{
	char where[POLICY_WHERE], text[NETADDR_TEXT_SIZE];
	uint8_t a[16];
	const char *never;
	bool loopback;

	svcjudge_address(addr, a);
	never = service_never(a);
	netaddr_format(addr, text);
	if (never != NULL) {
		snprintf(why, SVCJUDGE_WHY, "%s is %s, which is never dialled", text, never);
		return SVC_DENIED;
	}
	loopback = service_is_loopback(a);
	if (listed(p, t, a, loopback) || (!loopback && !own && in_networks(p, a)))
		return SVC_ALLOWED;
	if (loopback || own) {
		snprintf(why, SVCJUDGE_WHY, "%s: %s is on this device and not in the list", policy_where(p, POLICY_SERVICES, where), text);
		return SVC_DENIED;
	}
	if (p->service_rule != POLICY_SERVICE_ENFORCE)
		return p->service_rule == POLICY_SERVICE_WARN ? SVC_WARN : SVC_ALLOWED;
	snprintf(why, SVCJUDGE_WHY, "%s: %s is neither there nor in services networks", policy_where(p, POLICY_SERVICES, where), text);
	return SVC_DENIED;
}

enum svc_verdict
svcjudge_addresses(const struct policy *p, const struct service_target *t, const union netaddr *addrs, const bool *own, size_t n,
    char why[SVCJUDGE_WHY])
{
	enum svc_verdict worst = SVC_ALLOWED;

	why[0] = '\0';
	for (size_t i = 0; i < n && worst != SVC_DENIED; i++) {
		enum svc_verdict v = judge_one(p, t, &addrs[i], own[i], why);

		if (v > worst)
			worst = v;
	}
	return worst;
}
