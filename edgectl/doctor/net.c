/* Clock, route and the way to the hub, as netprobe went it: what was passed, what failed, what was therefore not reached. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/monotime.h"
#include "edgectl/doctor/doctor.h"
#include "version.h"

#define SECOND		INT64_C(1000000000)
#define YEAR_S		INT64_C(31536000)
#define YEARS_AHEAD	20
#define OFFSET_WARN_S	300	/* far from what a certificate or a token minds, and far from what a time server leaves */
#define TABLE		"/proc/net/"

void
step_clock(struct doctor *d)
{
	int64_t build = EDGEWARD_BUILD_EPOCH * SECOND, floor = build, wall = monotime_wall_ns();
	const char *what = "this build was made";

	if (d->view.net_up && d->view.net.clock_floor > floor) {
		floor = d->view.net.clock_floor;
		what = "the last time a hub confirmed";
	}
	if (wall < floor)
		check_bad(d, "clock", CHECK_WARN, "clock-implausible", "timedatectl set-ntp true",
		    "the clock says %.24s, before %s (%.24s), which is used for certificates instead", out_time(wall), what,
		    out_time(floor));
	else if (wall > build + YEARS_AHEAD * YEAR_S * SECOND)
		check_bad(d, "clock", CHECK_WARN, "clock-implausible", "timedatectl set-ntp true",
		    "the clock says %.24s, more than %d years after this build: certificates will look expired", out_time(wall),
		    YEARS_AHEAD);
	else
		check_ok(d, "clock", "%.24s, not before %s", out_time(wall), what);
}

/* A default route of either family. /proc/net/route has hexadecimal words, ipv6_route prefix and length first. */
static bool
has_default(const struct doctor *d, const char *table, const char *dest, unsigned dest_col, unsigned mask_col, const char *mask)
{
	char path[PATH_MAX], line[512], word[16][40];
	FILE *f = fopen(doctor_path(d, table, path), "re");
	bool found = false;

	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL) {
		char *p = line, *w;
		unsigned n = 0;

		while (n < 16 && (w = strsep(&p, " \t\n")) != NULL)
			if (*w != '\0')
				snprintf(word[n++], sizeof(word[0]), "%.39s", w);
		/* The kernel keeps an unreachable default on lo. */
		found = n > dest_col && n > mask_col && strcmp(word[dest_col], dest) == 0 && strcmp(word[mask_col], mask) == 0 &&
		    strcmp(word[0], "lo") != 0 && strcmp(word[n - 1], "lo") != 0;
	}
	if (f != NULL)
		fclose(f);
	return found;
}

void
step_route(struct doctor *d)
{
	bool v4 = has_default(d, TABLE "route", "00000000", 1, 7, "00000000");
	bool v6 = has_default(d, TABLE "ipv6_route", "00000000000000000000000000000000", 0, 1, "00");

	if ((d->net.flags & NETPROBE_LOOPBACK) != 0)
		check_skip(d, "route", "the hub is on this device");
	else if (v4 || v6)
		check_ok(d, "route", "a default route for %s", v4 && v6 ? "IPv4 and IPv6" : v4 ? "IPv4" : "IPv6");
	else if (d->net.stage > NETPROBE_CONNECT)
		check_ok(d, "route", "no default route, and none was needed");
	else if (strcmp(d->net.code, "timeout") == 0 || strcmp(d->net.code, "refused") == 0)
		check_ok(d, "route", "no default route, and the hub's address could be dialled without one");
	else if (d->net.stage < NETPROBE_DNS)
		check_skip(d, "route", "the hub's address is not known: see check hub");
	else
		check_bad(d, "route", CHECK_FAIL, "no-route", "ip route", "no default route: is the network up, the cable in?");
}

/* What each cause that netprobe may tell asks for. The first prefix that fits. */
static const struct {
	const char *cause, *command;
} tries[] = {
	{ "dns", "getent ahosts HOST; cat /etc/resolv.conf" },
	{ "no-route", "ip route; ip address" },
	{ "refused", "curl -v https://HOST/" },
	{ "proxy-auth", "correct user and password in [hub] proxy or https_proxy" },
	{ "proxy", "check [hub] proxy, https_proxy and the proxy's own log" },
	{ "tls-untrusted", "openssl s_client -connect HOST -showcerts </dev/null; compare with [hub] ca-file (edgehub: ca.pem)" },
	{ "tls-name", "use the name of the certificate in [hub] url, or have the hub make one for this name (on the hub EDGEHUB_OPTIONS=-n NAME in /etc/default/edgehub, and restart it)" },
	{ "tls-expired", "date; renew the hub's certificate" },
	{ "tls-not-yet-valid", "date; timedatectl set-ntp true" },
	{ "tls-pin", "compare with what the hub shows, then set [hub] pin" },
	{ "tls", "openssl s_client -connect HOST </dev/null" },
	{ "http", "check the path and port of [hub] url" },
	{ "timeout", "is the hub's machine up, and do the firewalls on the way let its port in? curl -v https://HOST/" },
	{ "config", "edgectl doctor: see check config-connectd" },
	{ "unconfigured", "set [hub] url in edgeward.conf, or edgectl enroll with a bundle" },
};

static void
command_for(const struct doctor *d, const char *cause, char *buf, size_t size)
{
	const char *host = (d->net.flags & NETPROBE_PROXIED) != 0 && d->net.stage < NETPROBE_TLS ? d->net.proxy : d->net.hub;
	const char *text = "", *at;

	for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]) && *text == '\0'; i++)
		if (strncmp(cause, tries[i].cause, strlen(tries[i].cause)) == 0)
			text = tries[i].command;
	at = strstr(text, "HOST");
	if (at == NULL || host[0] == '\0')
		snprintf(buf, size, "%s", text);
	else
		snprintf(buf, size, "%.*s%.100s%s", (int)(at - text), text, host, at + 4);
	if (strcmp(cause, "dns") == 0 && (at = strrchr(buf, ':')) != NULL && strchr(at, ';') != NULL)
		memmove((char *)(uintptr_t)at, strchr(at, ';'), strlen(strchr(at, ';')) + 1);	/* a name has no port */
}

struct leg {
	const char *name;
	enum netprobe_stage stage;
	const char *cause;		/* this leg of the stage alone; NULL = every other cause of it */
};

/* In the order OpenSSL finds them out: a chain to a trusted root, the name, the dates; then the pin. */
static const struct leg legs[] = {
	{ "dns", NETPROBE_DNS, NULL },
	{ "connect", NETPROBE_CONNECT, NULL },
	{ "proxy-connect", NETPROBE_PROXY, NULL },
	{ "tls", NETPROBE_TLS, NULL },
	{ "tls-chain", NETPROBE_TLS, "tls-untrusted" },
	{ "tls-name", NETPROBE_TLS, "tls-name" },
	{ "tls-dates", NETPROBE_TLS, "tls-expired tls-not-yet-valid" },
	{ "tls-pin", NETPROBE_TLS, "tls-pin" },
	{ "upgrade", NETPROBE_UPGRADE, NULL },
};
#define NLEGS	(sizeof(legs) / sizeof(legs[0]))

static bool
has_word(const char *words, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = strstr(words, word); p != NULL && len > 0; p = strstr(p + 1, word))
		if ((p == words || p[-1] == ' ') && (p[len] == '\0' || p[len] == ' '))
			return true;
	return false;
}

/* The leg at which it ended. */
static size_t
failed_leg(const struct netprobe_report *r)
{
	size_t other = NLEGS;

	for (size_t i = 0; i < NLEGS; i++) {
		if (legs[i].stage != (enum netprobe_stage)r->stage)
			continue;
		if (legs[i].cause == NULL)
			other = i;
		else if (has_word(legs[i].cause, r->code))
			return i;
	}
	return other;
}

static bool
not_taken(struct doctor *d, const struct leg *leg)
{
	if (leg->stage == NETPROBE_PROXY && (d->net.flags & NETPROBE_PROXIED) == 0) {
		check_skip(d, leg->name, "no proxy is used");
		return true;
	}
	if (leg->stage == NETPROBE_TLS && (d->net.flags & NETPROBE_PLAIN) != 0) {
		if (strcmp(leg->name, "tls") == 0 && (d->net.flags & NETPROBE_LOOPBACK) == 0)
			check_bad(d, leg->name, CHECK_WARN, "insecure", "use wss:// in [hub] url",
			    "the hub's address is without TLS: credential and work are readable on the way");
		else
			check_skip(d, leg->name, "the hub's address is without TLS");
		return true;
	}
	return false;
}

static void
passed(struct doctor *d, const struct leg *leg)
{
	const struct netprobe_report *r = &d->net;
	bool proxied = (r->flags & NETPROBE_PROXIED) != 0;

	if (strcmp(leg->name, "tls-pin") == 0 && r->pins == 0)
		check_skip(d, leg->name, (r->flags & NETPROBE_CRED_HIDDEN) != 0 ?
		    "no pin in the configuration; one in the credential is not visible for this user" : "no pin is set");
	else if (strcmp(leg->name, "tls-pin") == 0)
		check_ok(d, leg->name, "the hub's key is one of %u pinned%s", r->pins,
		    (r->flags & NETPROBE_STORED_PIN) != 0 ? ", from the credential" : "");
	else if (leg->stage == NETPROBE_DNS)
		check_ok(d, leg->name, "%.200s has an address", proxied ? r->proxy : r->hub);
	else if (leg->stage == NETPROBE_CONNECT)
		check_ok(d, leg->name, "%s answers%s%.100s", proxied ? "the proxy" : "the hub", r->peer[0] != '\0' ? " at " : "",
		    r->peer);
	else if (leg->stage == NETPROBE_PROXY)
		check_ok(d, leg->name, "the proxy leads to %.200s", r->hub);
	else
		check_ok(d, leg->name, strcmp(leg->name, "tls") == 0 ? "the hub speaks TLS 1.2 or newer" :
		    strcmp(leg->name, "tls-chain") == 0 ? "the certificate leads to a trusted root" :
		    strcmp(leg->name, "tls-name") == 0 ? "the certificate is for this name" : "the certificate is valid today");
}

/* Without a credential a hub says 401 or 403. That is all that can be learnt here. */
static void
judge_answer(struct doctor *d)
{
	const struct netprobe_report *r = &d->net;
	char command[200];

	command_for(d, "http", command, sizeof(command));
	if (r->http_status == 401 || r->http_status == 403)
		check_ok(d, "upgrade", "the hub answers HTTP %u to a request without a credential, as it should", r->http_status);
	else if (r->http_status == 101 && r->code[0] == '\0')
		check_ok(d, "upgrade", "the hub upgrades even without a credential");
	else
		check_bad(d, "upgrade", r->http_status == 429 ? CHECK_WARN : CHECK_FAIL, r->code, command, "%.200s", r->detail);
}

static void
clock_of_hub(struct doctor *d)
{
	int64_t off = (d->net.hub_date - d->net.wall) / SECOND;

	if (d->net.hub_date == 0)
		check_skip(d, "clock-hub", "the hub's answer has no Date");
	else if (off > OFFSET_WARN_S || off < -OFFSET_WARN_S)
		check_bad(d, "clock-hub", CHECK_WARN, "clock-offset", "timedatectl set-ntp true",
		    "the hub's clock is %" PRId64 " s %s ours", off < 0 ? -off : off, off < 0 ? "behind" : "ahead of");
	else
		check_ok(d, "clock-hub", "the hub's clock is ours, to within %d s", OFFSET_WARN_S);
}

static void
say_proxy(struct doctor *d)
{
	if (d->net.proxy[0] != '\0')
		check_ok(d, "proxy", "%.200s%s, from %s", d->net.proxy, (d->net.flags & NETPROBE_PROXY_AUTH) != 0 ?
		    " with user and password" : "", d->conf_ok && d->conf.hub_proxy[0] != '\0' ? "[hub] proxy" :
		    d->proxy_from);
	else
		check_ok(d, "proxy", "none; variables of %s were looked at", d->proxy_from);
}

/* Nothing to go by: every leg is told as not gone. */
static void
skip_all(struct doctor *d, const char *why)
{
	check_skip(d, "proxy", "%s", why);
	for (size_t i = 0; i < NLEGS; i++)
		check_skip(d, legs[i].name, "%s", why);
	check_skip(d, "clock-hub", "%s", why);
}

void
step_network(struct doctor *d)
{
	const struct netprobe_report *r = &d->net;
	size_t bad = r->stage == NETPROBE_DONE ? NLEGS : failed_leg(r);
	char command[200];

	if (r->magic != NETPROBE_MAGIC || r->stage == NETPROBE_HUB) {
		command_for(d, r->code, command, sizeof(command));
		if (r->magic != NETPROBE_MAGIC)
			check_bad(d, "hub", CHECK_FAIL, d->probe.timeout ? "timeout" : "not-installed", NULL,
			    "netprobe, which tries the way to the hub, %s", d->probe.timeout ? "did not come to an end" : "could not be run");
		else
			check_bad(d, "hub", CHECK_FAIL, r->code, command, "%.200s", r->detail);
		skip_all(d, "the hub's address is not known: see check hub");
		return;
	}
	check_ok(d, "hub", "%.200s", r->hub);
	say_proxy(d);
	for (size_t i = 0; i < NLEGS; i++) {
		command_for(d, r->code, command, sizeof(command));
		if (i > bad)
			check_skip(d, legs[i].name, "not reached: %s failed", legs[bad].name);
		else if (not_taken(d, &legs[i]))
			continue;
		else if (i == bad)
			check_bad(d, legs[i].name, CHECK_FAIL, r->code, command, "%.200s", r->detail);
		else if (legs[i].stage == NETPROBE_UPGRADE)
			judge_answer(d);
		else
			passed(d, &legs[i]);
	}
	if (r->stage == NETPROBE_DONE)
		clock_of_hub(d);
	else
		check_skip(d, "clock-hub", "the hub was not reached");
}
