#include "proto/ipc/service.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- names ---- */

bool
service_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len < SERVICE_NAME_SIZE && name[0] != '-' && name[0] != '_' &&
	    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static bool
take_port(const char *s, size_t len, uint16_t *ret_port)
{
	unsigned v = 0;

	if (len == 0 || len > 5 || s[0] == '0')
		return false;
	for (size_t i = 0; i < len; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		v = v * 10 + (unsigned)(s[i] - '0');
	}
	*ret_port = (uint16_t)v;
	return v <= UINT16_MAX;
}

static bool
label_ok(const char *s, size_t len)
{
	if (len == 0 || len > 63 || s[0] == '-' || s[len - 1] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (strchr("abcdefghijklmnopqrstuvwxyz0123456789_-", s[i]) == NULL)
			return false;
	return true;
}

/* All that looks like a number must be a whole address: resolvers disagree about the rest. */
static int
take_name(struct service_target *t)
{
	uint8_t addr[4];
	size_t len = strlen(t->host), last = 0;

	if (len > 1 && t->host[len - 1] == '.')
		t->host[--len] = '\0';
	for (size_t i = 0; i < len; i += last + 1) {
		last = strcspn(t->host + i, ".");
		if (!label_ok(t->host + i, last) || i + last + 1 == len)
			return -EINVAL;
	}
	if (len == 0)
		return -EINVAL;
	if (strspn(t->host + len - last, "0123456789") != last && strncmp(t->host + len - last, "0x", 2) != 0)
		return 0;
	t->ip = inet_pton(AF_INET, t->host, addr) == 1;
	return t->ip ? 0 : -EINVAL;
}

static int
take_bracketed(struct service_target *t, const char *s, size_t len)
{
	struct in6_addr addr;

	if (len == 0 || len >= INET6_ADDRSTRLEN)
		return -EINVAL;
	memcpy(t->host, s, len);
	if (inet_pton(AF_INET6, t->host, &addr) != 1)
		return -EINVAL;
	inet_ntop(AF_INET6, &addr, t->host, sizeof(t->host));
	t->ip = t->ip6 = true;
	return 0;
}

static int
take_authority(struct service_target *t, const char *s, size_t len)
{
	const char *close = s[0] == '[' ? memchr(s, ']', len) : NULL, *colon;
	size_t host;

	if (s[0] == '[') {
		if (close == NULL || take_bracketed(t, s + 1, (size_t)(close - s) - 1) < 0)
			return -EINVAL;
		host = (size_t)(close - s) + 1;
	} else {
		colon = memchr(s, ':', len);
		host = colon != NULL ? (size_t)(colon - s) : len;
		if (host == 0 || host >= sizeof(t->host))
			return -EINVAL;
		for (size_t i = 0; i < host; i++)
			t->host[i] = (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] | 0x20 : s[i]);
		if (take_name(t) < 0)
			return -EINVAL;
	}
	if (host == len)
		return 0;
	return s[host] == ':' && take_port(s + host + 1, len - host - 1, &t->port) ? 0 : -EINVAL;
}

static int
take_socket(struct service_target *t, const char *path)
{
	t->scheme = SERVICE_UNIX;
	t->port = 0;
	if (path[0] != '/' || strlen(path) >= sizeof(t->path) || strstr(path, "/../") != NULL)
		return -EINVAL;
	for (const char *p = path; *p != '\0'; p++)
		if (*p <= ' ' || *p > '~')
			return -EINVAL;
	snprintf(t->path, sizeof(t->path), "%s", path);
	return 0;
}

int
service_target_parse(const char *text, bool local, struct service_target *ret_target)
{
	struct service_target t = { .scheme = SERVICE_HTTP, .port = 80 };
	size_t len;
	int r;

	if (local && strncmp(text, "unix:", 5) == 0) {
		r = take_socket(&t, text + 5);
	} else {
		if (strncasecmp(text, "http://", 7) == 0) {
			text += 7;
		} else if (strncasecmp(text, "https://", 8) == 0) {
			text += 8;
			t.scheme = SERVICE_HTTPS;
			t.port = 443;
		} else {
			return -EINVAL;
		}
		len = strlen(text);
		if (len > 0 && text[len - 1] == '/')
			len--;
		r = len > 0 ? take_authority(&t, text, len) : -EINVAL;
	}
	if (r == 0)
		*ret_target = t;
	return r;
}

int
service_declared_parse(const char *item, char ret_name[SERVICE_NAME_SIZE], struct service_target *ret_target)
{
	const char *equals = strchr(item, '=');
	size_t len = equals != NULL ? (size_t)(equals - item) : SERVICE_NAME_SIZE;
	char name[SERVICE_NAME_SIZE] = "";

	if (len >= SERVICE_NAME_SIZE)
		return -EINVAL;
	memcpy(name, item, len);
	if (!service_name_ok(name) || service_target_parse(equals + 1, true, ret_target) < 0)
		return -EINVAL;
	memcpy(ret_name, name, sizeof(name));
	return 0;
}

const char *
service_authority(const struct service_target *t, char buf[SERVICE_AUTHORITY_SIZE])
{
	bool own = t->port == (t->scheme == SERVICE_HTTPS ? 443 : 80);
	const char *open = t->ip6 ? "[" : "", *close = t->ip6 ? "]" : "";

	if (t->scheme == SERVICE_UNIX)
		snprintf(buf, SERVICE_AUTHORITY_SIZE, "localhost");
	else if (own)
		snprintf(buf, SERVICE_AUTHORITY_SIZE, "%s%s%s", open, t->host, close);
	else
		snprintf(buf, SERVICE_AUTHORITY_SIZE, "%s%s%s:%u", open, t->host, close, t->port);
	return buf;
}

const char *
service_target_text(const struct service_target *t, char *buf, size_t size)
{
	const char *open = t->ip6 ? "[" : "", *close = t->ip6 ? "]" : "";

	if (t->scheme == SERVICE_UNIX)
		snprintf(buf, size, "unix:%s", t->path);
	else
		snprintf(buf, size, "%s://%s%s%s:%u", t->scheme == SERVICE_HTTPS ? "https" : "http", open, t->host, close, t->port);
	return buf;
}

bool
service_is_cluster_name(const char *host)
{
	static const char *const suffixes[] = { ".svc", ".svc.cluster.local" };
	size_t len = strlen(host);

	for (size_t i = 0; i < 2; i++) {
		size_t n = strlen(suffixes[i]);
		const char *dot;

		if (len <= n || strcmp(host + len - n, suffixes[i]) != 0)
			continue;
		dot = memchr(host, '.', len - n);
		if (dot != NULL && memchr(dot + 1, '.', (size_t)(host + len - n - dot - 1)) == NULL)
			return true;
	}
	return false;
}

/* ---- addresses ---- */

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

void
service_map_v4(const uint8_t v4[4], uint8_t ret_addr[16])
{
	memcpy(ret_addr, mapped, sizeof(mapped));
	memcpy(ret_addr + 12, v4, 4);
}

bool
service_is_v4(const uint8_t addr[16])
{
	return memcmp(addr, mapped, sizeof(mapped)) == 0;
}

static const char *
never_v4(const uint8_t a[4])
{
	static const uint8_t alibaba[4] = { 100, 100, 100, 200 };

	if (a[0] == 0)
		return "an unspecified address";
	if (a[0] >= 224 && a[0] < 240)
		return "a multicast address";
	if (a[0] >= 240)
		return "a reserved or broadcast address";
	if (a[0] == 169 && a[1] == 254)
		return "a link-local address (cloud metadata is there)";
	return memcmp(a, alibaba, 4) == 0 ? "a metadata service" : NULL;
}

const char *
service_never(const uint8_t addr[16])
{
	static const uint8_t zero[16], nat64[12] = { 0x00, 0x64, 0xff, 0x9b }, aws[16] = { 0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54 };

	if (service_is_v4(addr) || memcmp(addr, nat64, sizeof(nat64)) == 0)
		return never_v4(addr + 12);
	if (memcmp(addr, zero, 16) == 0)
		return "an unspecified address";
	if (addr[0] == 0xff)
		return "a multicast address";
	if (addr[0] == 0xfe && (addr[1] & 0xc0) == 0x80)
		return "a link-local address";
	/* Forms that carry an IPv4 address and that some stacks take for it: 6to4, IPv4-compatible, translated. */
	if (addr[0] == 0x20 && addr[1] == 0x02)
		return never_v4(addr + 2);
	if (memcmp(addr, zero, 12) == 0 && !service_is_loopback(addr))
		return "an IPv4-compatible address";
	return memcmp(addr, aws, 16) == 0 ? "a metadata service" : NULL;
}

bool
service_is_loopback(const uint8_t addr[16])
{
	static const uint8_t one[16] = { [15] = 1 };
	static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b };

	if (service_is_v4(addr) || memcmp(addr, nat64, sizeof(nat64)) == 0)
		return addr[12] == 127;
	return memcmp(addr, one, 16) == 0;
}
