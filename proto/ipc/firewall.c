#include "proto/ipc/firewall.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ALL_BITS(family)	((family) == FW_V4 ? 32u : 128u)
#define V4(a, b, c, d)		{ a, b, c, d }

/* Never reached, whatever is allowed. */
static const struct fw_cidr never[] = {
	{ FW_V4, 8, V4(0, 0, 0, 0) }, { FW_V4, 8, V4(127, 0, 0, 0) }, { FW_V4, 4, V4(224, 0, 0, 0) },
	{ FW_V4, 32, V4(255, 255, 255, 255) },
	/* the two ends of the workload's own cable, see workerd/launcher/netns.c */
	{ FW_V4, 30, V4(192, 0, 0, 0) }, { FW_V6, 64, { 0xfd, 0x65, 0x64, 0x67, 0x65, 0x77 } },
	/* unspecified, loopback and IPv4 in its old form; IPv4 mapped: the other end would talk IPv4 to it, past what is denied there */
	{ FW_V6, 80, { 0 } },
	/* the same by way of a translator: NAT64, Teredo, 6to4 */
	{ FW_V6, 32, { 0x00, 0x64, 0xff, 0x9b } }, { FW_V6, 32, { 0x20, 0x01 } }, { FW_V6, 16, { 0x20, 0x02 } },
	/* link-local, site-local, multicast */
	{ FW_V6, 9, { 0xfe, 0x80 } }, { FW_V6, 8, { 0xff } },
};

/* Metadata services of clouds: reached only where named as a single address, at every level. */
static const struct fw_cidr metadata[] = {
	{ FW_V4, 32, V4(169, 254, 169, 254) }, { FW_V4, 32, V4(169, 254, 169, 253) }, { FW_V4, 32, V4(169, 254, 170, 2) },
	{ FW_V4, 32, V4(169, 254, 170, 23) }, { FW_V4, 32, V4(100, 100, 100, 200) }, { FW_V4, 32, V4(168, 63, 129, 16) },
	{ FW_V4, 32, V4(192, 0, 0, 192) },
	{ FW_V6, 128, { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54 } },
	{ FW_V6, 128, { 0xfd, 0x00, 0x0e, 0xc2, [15] = 0x23 } },
	{ FW_V6, 128, { 0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54 } },
};

/* The public internet is everything but these (IANA's special-purpose registries); of IPv6 what is assigned, 2000::/3. */
static const struct fw_cidr special[] = {
	{ FW_V4, 8, V4(10, 0, 0, 0) }, { FW_V4, 10, V4(100, 64, 0, 0) }, { FW_V4, 16, V4(169, 254, 0, 0) },
	{ FW_V4, 12, V4(172, 16, 0, 0) }, { FW_V4, 24, V4(192, 0, 0, 0) }, { FW_V4, 24, V4(192, 0, 2, 0) },
	{ FW_V4, 24, V4(192, 88, 99, 0) }, { FW_V4, 16, V4(192, 168, 0, 0) }, { FW_V4, 15, V4(198, 18, 0, 0) },
	{ FW_V4, 24, V4(198, 51, 100, 0) }, { FW_V4, 24, V4(203, 0, 113, 0) }, { FW_V4, 4, V4(240, 0, 0, 0) },
	{ FW_V6, 23, { 0x20, 0x01 } }, { FW_V6, 32, { 0x20, 0x01, 0x0d, 0xb8 } }, { FW_V6, 20, { 0x3f, 0xff } },
};
static const struct fw_cidr public[FW_FAMILIES] = { { FW_V4, 0, { 0 } }, { FW_V6, 3, { 0x20 } } };

#define COUNT(a)	(sizeof(a) / sizeof((a)[0]))

/* ---- addresses ---- */

netaddr_t
fw_address(uint8_t family, const uint8_t addr[16])
{
	netaddr_t v = 0;

	for (unsigned i = 0; i < ALL_BITS(family) / 8; i++)
		v = v << 8 | addr[i];
	return v;
}

struct netrange
fw_range(const struct fw_cidr *cidr)
{
	unsigned rest = ALL_BITS(cidr->family) - cidr->bits;
	netaddr_t below = rest >= 128 ? ~(netaddr_t)0 : ((netaddr_t)1 << rest) - 1, addr = fw_address(cidr->family, cidr->addr);

	return (struct netrange){ addr & ~below, addr | below };
}

static bool
same_address(const struct fw_endpoint *a, const struct fw_endpoint *b)
{
	return a->family == b->family && fw_address(a->family, a->addr) == fw_address(b->family, b->addr);
}

static bool
is_never(uint8_t family, netaddr_t addr)
{
	for (size_t i = 0; i < COUNT(never); i++)
		if (never[i].family == family && addr >= fw_range(&never[i]).lo && addr <= fw_range(&never[i]).hi)
			return true;
	return false;
}

static void
store(uint8_t family, netaddr_t v, uint8_t addr[16])
{
	memset(addr, 0, 16);
	for (unsigned i = ALL_BITS(family) / 8; i-- > 0; v >>= 8)
		addr[i] = (uint8_t)(v & 0xff);
}

/* ---- text ---- */

static int
parse_address(const char *s, size_t len, uint8_t *ret_family, uint8_t addr[16])
{
	char buf[FW_TEXT];

	if (len == 0 || len >= sizeof(buf))
		return -EINVAL;
	memcpy(buf, s, len);
	buf[len] = '\0';
	memset(addr, 0, 16);
	*ret_family = strchr(buf, ':') != NULL ? FW_V6 : FW_V4;
	return inet_pton(*ret_family == FW_V6 ? AF_INET6 : AF_INET, buf, addr) == 1 ? 0 : -EINVAL;
}

/* Decimal without sign or leading zero. */
static int
parse_number(const char *s, uint32_t max, uint32_t *ret_v)
{
	uint32_t v = 0;

	if (s[0] == '\0' || (s[0] == '0' && s[1] != '\0'))
		return -EINVAL;
	for (; *s != '\0'; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		v = v * 10 + (uint32_t)(*s - '0');
		if (v > max)
			return -EINVAL;
	}
	*ret_v = v;
	return 0;
}

int
fw_cidr_parse(const char *s, bool deny, struct fw_cidr *ret_cidr)
{
	size_t len = strcspn(s, "/");
	struct fw_cidr c = { 0 };
	uint32_t bits;
	int r = parse_address(s, len, &c.family, c.addr);

	if (r < 0)
		return r;
	bits = ALL_BITS(c.family);
	if (s[len] == '/' && parse_number(s + len + 1, bits, &bits) < 0)
		return -EINVAL;
	if (bits == 0 && !deny)
		return -ERANGE;
	c.bits = (uint8_t)bits;
	store(c.family, fw_range(&c).lo, c.addr);
	*ret_cidr = c;
	return 0;
}

int
fw_address_parse(const char *s, struct fw_endpoint *ret_address)
{
	struct fw_endpoint e = *ret_address;
	int r = parse_address(s, strlen(s), &e.family, e.addr);

	if (r < 0 || is_never(e.family, fw_address(e.family, e.addr)))
		return -EINVAL;
	*ret_address = e;
	return 0;
}

int
fw_resolver_parse(const char *s, struct fw_endpoint *ret_resolver)
{
	const char *first = strchr(s, ':'), *port = NULL;
	struct fw_endpoint e = { 0 };
	char buf[FW_TEXT];
	uint32_t v = 53;
	size_t len = strlen(s);

	if (len >= sizeof(buf))
		return -EINVAL;
	if (s[0] == '[') {
		const char *end = strchr(s, ']');

		if (end == NULL || (end[1] != '\0' && end[1] != ':'))
			return -EINVAL;
		port = end[1] == ':' ? end + 2 : NULL;
		len = (size_t)(end - ++s);
	} else if (first != NULL && strchr(first + 1, ':') == NULL) {
		port = first + 1;
		len = (size_t)(first - s);
	}
	memcpy(buf, s, len);
	buf[len] = '\0';
	if (port != NULL && (parse_number(port, 65535, &v) < 0 || v == 0))
		return -EINVAL;
	e.port = (uint16_t)v;
	if (fw_address_parse(buf, &e) < 0)
		return -EINVAL;
	*ret_resolver = e;
	return 0;
}

const char *
fw_address_text(uint8_t family, netaddr_t addr, char buf[FW_TEXT])
{
	uint8_t bytes[16];

	store(family, addr, bytes);
	if (inet_ntop(family == FW_V6 ? AF_INET6 : AF_INET, bytes, buf, FW_TEXT) == NULL)
		buf[0] = '\0';
	return buf;
}

const char *
fw_cidr_text(const struct fw_cidr *cidr, char buf[FW_TEXT])
{
	size_t len;

	fw_address_text(cidr->family, fw_address(cidr->family, cidr->addr), buf);
	len = strlen(buf);
	snprintf(buf + len, FW_TEXT - len, "/%u", cidr->bits);
	return buf;
}

const char *
fw_endpoint_text(const struct fw_endpoint *e, char buf[FW_TEXT])
{
	char addr[FW_TEXT];

	fw_address_text(e->family, fw_address(e->family, e->addr), addr);
	snprintf(buf, FW_TEXT, e->family == FW_V6 ? "[%.46s]:%u" : "%.46s:%u", addr, e->port);
	return buf;
}

/* ---- what it means ---- */

static bool
names(const struct firewall *fw, const struct fw_cidr *single)
{
	for (uint32_t i = 0; i < fw->nallow; i++)
		if (fw->allow[i].family == single->family && fw->allow[i].bits == single->bits &&
		    fw_range(&fw->allow[i]).lo == fw_range(single).lo)
			return true;
	return false;
}

static int
take_away(struct netset *set, enum fw_family family, const struct fw_cidr *list, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = list[i].family == family ? netset_sub(set, fw_range(&list[i])) : 0;
	return r;
}

int
fw_destinations(const struct firewall *fw, enum fw_family family, struct netset *ret_set)
{
	int r = 0;

	ret_set->n = 0;
	if (fw->public_internet) {
		r = netset_add(ret_set, fw_range(&public[family]));
		if (r == 0)
			r = take_away(ret_set, family, special, COUNT(special));
	}
	for (uint32_t i = 0; i < fw->nallow && r == 0; i++)
		r = fw->allow[i].family == family ? netset_add(ret_set, fw_range(&fw->allow[i])) : 0;
	for (size_t i = 0; i < COUNT(metadata) && r == 0; i++)
		r = metadata[i].family == family && !names(fw, &metadata[i]) ? netset_sub(ret_set, fw_range(&metadata[i])) : 0;
	if (r == 0)
		r = take_away(ret_set, family, never, COUNT(never));
	return r < 0 ? r : take_away(ret_set, family, fw->deny, fw->ndeny);
}

bool
fw_reaches_nothing(const struct firewall *fw)
{
	static struct netset set;

	for (enum fw_family f = FW_V4; f < FW_FAMILIES; f++)
		if (fw_destinations(fw, f, &set) < 0 || set.n > 0)
			return false;
	return fw->nresolvers == 0 && !fw->has_proxy;
}

int
fw_deny(struct firewall *fw, const struct fw_cidr *cidr)
{
	for (uint32_t i = 0; i < fw->ndeny; i++)
		if (fw->deny[i].family == cidr->family && fw->deny[i].bits == cidr->bits && fw_range(&fw->deny[i]).lo == fw_range(cidr).lo)
			return 0;
	if (fw->ndeny == FW_DENIES)
		return -ENOSPC;
	fw->deny[fw->ndeny++] = *cidr;
	return 0;
}

bool
fw_denies(const struct firewall *fw, const struct fw_endpoint *e)
{
	netaddr_t addr = fw_address(e->family, e->addr);

	for (uint32_t i = 0; i < fw->ndeny; i++)
		if (fw->deny[i].family == e->family && addr >= fw_range(&fw->deny[i]).lo && addr <= fw_range(&fw->deny[i]).hi)
			return true;
	return false;
}

void
fw_drop_denied(struct firewall *fw)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < fw->nresolvers; i++)
		if (!fw_denies(fw, &fw->resolvers[i]))
			fw->resolvers[n++] = fw->resolvers[i];
	fw->nresolvers = n;
	fw->has_proxy = fw->has_proxy && !fw_denies(fw, &fw->proxy);
}

static bool
port_open(const struct firewall *fw, uint16_t port)
{
	for (uint32_t i = 0; i < fw->nports; i++)
		if (fw->ports[i] == port)
			return true;
	return fw->nports == 0;
}

static bool
has_resolver(const struct firewall *fw, const struct fw_endpoint *e)
{
	for (uint32_t i = 0; i < fw->nresolvers; i++)
		if (same_address(&fw->resolvers[i], e) && fw->resolvers[i].port == e->port)
			return true;
	return false;
}

static int
outside(char why[160], const char *what, const char *text)
{
	snprintf(why, 160, "%s %.64s is not inside what is permitted", what, text);
	return -EPERM;
}

/* The first address of a that is none of b; both of a family. */
static netaddr_t
first_outside(const struct netset *a, const struct netset *b)
{
	for (uint32_t i = 0; i < a->n; i++) {
		netaddr_t at = a->r[i].lo;

		if (netset_has_all(b, a->r[i]))
			continue;
		for (uint32_t k = 0; k < b->n; k++)
			if (b->r[k].lo <= at && at <= b->r[k].hi)
				at = b->r[k].hi + 1;
		return at;
	}
	return 0;
}

static int
check_addresses(const struct firewall *inner, const struct firewall *outer, bool *ret_any, char why[160])
{
	static struct netset a, b;

	*ret_any = false;
	for (enum fw_family f = FW_V4; f < FW_FAMILIES; f++) {
		char text[FW_TEXT];
		int r = fw_destinations(inner, f, &a);

		if (r == 0)
			r = fw_destinations(outer, f, &b);
		if (r < 0)
			return r;
		*ret_any = *ret_any || a.n > 0;
		if (!netset_inside(&a, &b))
			return outside(why, "address", fw_address_text((uint8_t)f, first_outside(&a, &b), text));
	}
	return 0;
}

static int
check_proxy(const struct firewall *inner, const struct firewall *outer, char why[160])
{
	const struct fw_endpoint *p = &inner->proxy;
	static struct netset set;
	char text[FW_TEXT];
	int r;

	if (!inner->has_proxy || (outer->has_proxy && same_address(p, &outer->proxy) && p->port == outer->proxy.port))
		return 0;
	r = fw_destinations(outer, (enum fw_family)p->family, &set);
	if (r < 0)
		return r;
	if (port_open(outer, p->port) && netset_has(&set, fw_address(p->family, p->addr)))
		return 0;
	return outside(why, "proxy", fw_endpoint_text(p, text));
}

int
fw_narrow(struct firewall *inner, const struct firewall *outer, char why[160])
{
	char text[FW_TEXT];
	bool any;
	int r = 0;

	for (uint32_t i = 0; i < outer->ndeny && r == 0; i++)
		r = fw_deny(inner, &outer->deny[i]);
	if (r == 0)
		r = check_addresses(inner, outer, &any, why);
	if (r == 0)
		r = check_proxy(inner, outer, why);
	if (r < 0)
		return r;
	if (any && inner->nports == 0 && outer->nports > 0)
		return outside(why, "port", "(every one)");
	for (uint32_t i = 0; any && i < inner->nports; i++) {
		snprintf(text, sizeof(text), "%u", inner->ports[i]);
		if (!port_open(outer, inner->ports[i]))
			return outside(why, "port", text);
	}
	for (uint32_t i = 0; i < inner->nresolvers; i++)
		if (!has_resolver(outer, &inner->resolvers[i]))
			return outside(why, "resolver", fw_endpoint_text(&inner->resolvers[i], text));
	return 0;
}

/* ---- between processes ---- */

static void
put_cidrs(struct wire_w *w, const struct fw_cidr *list, uint32_t n)
{
	wire_put_u32(w, n);
	for (uint32_t i = 0; i < n; i++) {
		wire_put_u8(w, list[i].family);
		wire_put_u8(w, list[i].bits);
		wire_put_bytes(w, list[i].addr, sizeof(list[i].addr));
	}
}

static void
put_endpoint(struct wire_w *w, const struct fw_endpoint *e)
{
	wire_put_u8(w, e->family);
	wire_put_u16(w, e->port);
	wire_put_bytes(w, e->addr, sizeof(e->addr));
}

void
fw_put(struct wire_w *w, const struct firewall *fw)
{
	wire_put_u8(w, fw->public_internet);
	put_cidrs(w, fw->allow, fw->nallow);
	put_cidrs(w, fw->deny, fw->ndeny);
	wire_put_u32(w, fw->nports);
	for (uint32_t i = 0; i < fw->nports; i++)
		wire_put_u16(w, fw->ports[i]);
	wire_put_u32(w, fw->nresolvers);
	for (uint32_t i = 0; i < fw->nresolvers; i++)
		put_endpoint(w, &fw->resolvers[i]);
	wire_put_u8(w, fw->has_proxy);
	if (fw->has_proxy)
		put_endpoint(w, &fw->proxy);
}

static void
bad(struct wire_r *r)
{
	r->err = -EBADMSG;
}

static void
get_address(struct wire_r *r, uint8_t *family, uint8_t addr[16])
{
	size_t len;
	const uint8_t *p = wire_bytes(r, &len);

	memset(addr, 0, 16);
	if (p == NULL || len != 16 || *family >= FW_FAMILIES) {
		bad(r);
		*family = FW_V4;
		return;
	}
	memcpy(addr, p, 16);
	for (unsigned i = ALL_BITS(*family) / 8; i < 16; i++)
		if (addr[i] != 0)
			bad(r);
}

static uint32_t
get_count(struct wire_r *r, uint32_t max)
{
	uint32_t n = wire_u32(r);

	if (n > max)
		bad(r);
	return r->err == 0 ? n : 0;
}

static bool
get_bool(struct wire_r *r)
{
	uint8_t v = wire_u8(r);

	if (v > 1)
		bad(r);
	return v == 1;
}

static void
get_cidrs(struct wire_r *r, struct fw_cidr *list, uint32_t max, bool deny, uint32_t *ret_n)
{
	*ret_n = get_count(r, max);
	for (uint32_t i = 0; i < *ret_n; i++) {
		list[i].family = wire_u8(r);
		list[i].bits = wire_u8(r);
		get_address(r, &list[i].family, list[i].addr);
		if (list[i].bits > ALL_BITS(list[i].family) || (list[i].bits == 0 && !deny)) {
			bad(r);
			list[i].bits = (uint8_t)ALL_BITS(list[i].family);
		}
		if (fw_address(list[i].family, list[i].addr) != fw_range(&list[i]).lo)
			bad(r);
	}
}

static void
get_endpoint(struct wire_r *r, struct fw_endpoint *e)
{
	e->family = wire_u8(r);
	e->port = wire_u16(r);
	get_address(r, &e->family, e->addr);
	if (e->port == 0 || is_never(e->family, fw_address(e->family, e->addr)))
		bad(r);
}

void
fw_get(struct wire_r *r, struct firewall *ret_fw)
{
	struct firewall *fw = ret_fw;

	memset(fw, 0, sizeof(*fw));
	fw->public_internet = get_bool(r);
	get_cidrs(r, fw->allow, FW_CIDRS, false, &fw->nallow);
	get_cidrs(r, fw->deny, FW_DENIES, true, &fw->ndeny);
	fw->nports = get_count(r, FW_PORTS);
	for (uint32_t i = 0; i < fw->nports; i++)
		if ((fw->ports[i] = wire_u16(r)) == 0)
			bad(r);
	fw->nresolvers = get_count(r, FW_RESOLVERS);
	for (uint32_t i = 0; i < fw->nresolvers; i++)
		get_endpoint(r, &fw->resolvers[i]);
	fw->has_proxy = get_bool(r);
	if (fw->has_proxy)
		get_endpoint(r, &fw->proxy);
	if (r->err != 0)
		memset(fw, 0, sizeof(*fw));
}
