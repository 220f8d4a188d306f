/*
 * A fixed text with three things filled in: the addresses of each family as ranges, the ports, the resolvers. What is allowed has
 * been computed before (proto/ipc/firewall.c): denied, never reachable and unnamed addresses are not in the ranges, so the
 * rules need no order to be right. Everything filled in is printed from numbers. No connection tracking: nobody calls in, and
 * what comes back to a port that sent nothing finds nobody.
 *
 * Who calls: netns.c, as the runner. On error: that start ends.
 */
#include "workerd/launcher/ruleset.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct out {
	int fd, err;
	size_t len;
	char buf[4096];
};

static void
flush(struct out *o)
{
	if (o->err == 0 && write(o->fd, o->buf, o->len) != (ssize_t)o->len)
		o->err = -EIO;
	o->len = 0;
}

__attribute__((format(printf, 2, 3))) static void
put(struct out *o, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (sizeof(o->buf) - o->len < 512)
		flush(o);
	va_start(ap, fmt);
	n = vsnprintf(o->buf + o->len, sizeof(o->buf) - o->len, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(o->buf) - o->len)
		o->err = -EINVAL;
	else
		o->len += (size_t)n;
}

static const char *const ip[FW_FAMILIES] = { "ip", "ip6" };

static void
put_set(struct out *o, enum fw_family family, const struct netset *set)
{
	char lo[FW_TEXT], hi[FW_TEXT];

	put(o, "\tset to_%s {\n\t\ttype %s\n\t\tflags interval\n", ip[family], family == FW_V4 ? "ipv4_addr" : "ipv6_addr");
	for (uint32_t i = 0; i < set->n; i++) {
		fw_address_text((uint8_t)family, set->r[i].lo, lo);
		fw_address_text((uint8_t)family, set->r[i].hi, hi);
		put(o, "%s%s", i == 0 ? "\t\telements = { " : ",\n\t\t\t", lo);
		if (set->r[i].lo != set->r[i].hi)
			put(o, "-%s", hi);
	}
	put(o, "%s\t}\n", set->n > 0 ? " }\n" : "");
}

static void
put_endpoint(struct out *o, const struct fw_endpoint *e, const char *proto)
{
	char addr[FW_TEXT];

	fw_address_text(e->family, fw_address(e->family, e->addr), addr);
	put(o, "\t\t%s daddr %s %s dport %u accept\n", ip[e->family], addr, proto, e->port);
}

static void
put_allowed(struct out *o, const struct firewall *fw, enum fw_family family)
{
	put(o, "\t\t%s daddr @to_%s ", ip[family], ip[family]);
	for (uint32_t i = 0; i < fw->nports; i++)
		put(o, "%s%u", i == 0 ? "tcp dport { " : ", ", fw->ports[i]);
	put(o, fw->nports > 0 ? " } accept\n" : "meta l4proto tcp accept\n");
}

static void
put_output(struct out *o, const struct firewall *fw)
{
	put(o, "\tchain out {\n\t\ttype filter hook output priority 0; policy drop;\n\t\toifname \"lo\" accept\n"
	    "\t\toifname != \"" RULESET_LINK "\" drop\n"
	    "\t\ticmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\n");
	for (uint32_t i = 0; i < fw->nresolvers; i++) {
		put_endpoint(o, &fw->resolvers[i], "udp");
		put_endpoint(o, &fw->resolvers[i], "tcp");
	}
	if (fw->has_proxy)
		put_endpoint(o, &fw->proxy, "tcp");
	for (enum fw_family f = FW_V4; f < FW_FAMILIES; f++)
		put_allowed(o, fw, f);
	/* So that a program hears it at once. */
	put(o, "\t\tmeta l4proto tcp reject with tcp reset\n\t\treject with icmpx type admin-prohibited\n\t}\n");
}

static void
put_input(struct out *o)
{
	put(o, "\tchain in {\n\t\ttype filter hook input priority 0; policy drop;\n\t\tiifname \"lo\" accept\n"
	    "\t\ttcp flags & (syn | ack) == syn drop\n\t\tmeta l4proto { tcp, udp } accept\n"
	    "\t\ticmp type { destination-unreachable, time-exceeded, parameter-problem } accept\n"
	    "\t\ticmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem, nd-neighbor-solicit, "
	    "nd-neighbor-advert } accept\n\t}\n"
	    "\tchain through {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n");
}

int
ruleset_write(int fd, const struct firewall *fw)
{
	static struct netset set;
	struct out o = { .fd = fd };

	put(&o, "table inet edgeward {\n");
	for (enum fw_family f = FW_V4; f < FW_FAMILIES && o.err == 0; f++) {
		o.err = fw_destinations(fw, f, &set);
		put_set(&o, f, &set);
	}
	put_output(&o, fw);
	put_input(&o);
	put(&o, "}\n");
	flush(&o);
	return o.err < 0 ? o.err : lseek(fd, 0, SEEK_SET) < 0 ? -errno : 0;
}
