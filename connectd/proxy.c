#include "connectd/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/parse.h"

static const struct {
	const char *prefix;
	enum proxy_kind kind;
	uint16_t port;
} schemes[] = {
	{ "http://", PROXY_HTTP, 8080 }, { "socks5://", PROXY_SOCKS5, 1080 }, { "socks5h://", PROXY_SOCKS5, 1080 },
};

static int
fail(char err[URL_ERR_SIZE], const char *why)
{
	snprintf(err, URL_ERR_SIZE, "proxy: %.180s", why);
	return -EINVAL;
}

static int
read_one(const char *lower, const char *upper, char out[PROXY_ENV_SIZE])
{
	const char *v = getenv(lower);

	if ((v == NULL || *v == '\0') && upper != NULL)
		v = getenv(upper);
	return snprintf(out, PROXY_ENV_SIZE, "%s", v != NULL ? v : "") >= PROXY_ENV_SIZE ? -EINVAL : 0;
}

int
proxy_env_read(struct proxy_env *ret_env)
{
	if (read_one("https_proxy", "HTTPS_PROXY", ret_env->https) < 0 || read_one("http_proxy", NULL, ret_env->http) < 0 ||
	    read_one("all_proxy", "ALL_PROXY", ret_env->all) < 0 || read_one("no_proxy", "NO_PROXY", ret_env->no) < 0)
		return -EINVAL;
	return 0;
}

static int
hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes %XX; what comes out must be printable ASCII (or UTF-8) so that neither protocol is confused by it. */
static int
unescape(const char *s, size_t len, char out[PROXY_SECRET_SIZE])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = s[i];

		if (c == '%') {
			if (len - i < 3 || hex(s[i + 1]) < 0 || hex(s[i + 2]) < 0)
				return -EINVAL;
			c = (char)(hex(s[i + 1]) << 4 | hex(s[i + 2]));
			i += 2;
		}
		if (((unsigned char)c < ' ') || c == 0x7f || n == PROXY_SECRET_SIZE - 1)
			return -EINVAL;
		out[n++] = c;
	}
	out[n] = '\0';
	return 0;
}

static int
take_userinfo(const char *s, size_t len, struct proxy *proxy, char err[URL_ERR_SIZE])
{
	const char *colon = memchr(s, ':', len);
	size_t user = colon != NULL ? (size_t)(colon - s) : len;

	if (unescape(s, user, proxy->user) < 0 ||
	    (colon != NULL && unescape(colon + 1, len - user - 1, proxy->password) < 0))
		return fail(err, "the user or password is malformed or too long");
	if (proxy->user[0] == '\0')
		return fail(err, "the user is empty");
	/* Basic separates by the first colon. */
	if (proxy->kind == PROXY_HTTP && strchr(proxy->user, ':') != NULL)
		return fail(err, "the user has a colon, which Basic authentication cannot carry");
	proxy->auth = true;
	return 0;
}

int
proxy_parse(const char *text, struct proxy *ret_proxy, char err[URL_ERR_SIZE])
{
	struct proxy proxy = { .kind = PROXY_NONE };
	const char *rest = NULL, *at;
	char why[URL_ERR_SIZE];
	size_t len;
	int r = 0;

	for (size_t i = 0; rest == NULL && i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		if (strncasecmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
			continue;
		rest = text + strlen(schemes[i].prefix);
		proxy.kind = schemes[i].kind;
		proxy.port = schemes[i].port;
	}
	if (rest == NULL)
		return fail(err, "the address does not begin with http://, socks5:// or socks5h://");
	len = strcspn(rest, "/?#");
	if (rest[len] != '\0' && strcmp(rest + len, "/") != 0)
		return fail(err, "the address has a path");
	at = memrchr(rest, '@', len);
	if (at != NULL) {
		r = take_userinfo(rest, (size_t)(at - rest), &proxy, err);
		len -= (size_t)(at + 1 - rest);
		rest = at + 1;
	}
	if (r < 0)
		return r;
	if (url_parse_host(rest, len, proxy.host, &proxy.ip, &proxy.ip6, &proxy.port, why) < 0)
		return fail(err, why);
	*ret_proxy = proxy;
	return 0;
}

static bool
in_network(const char *net, const struct url *target)
{
	unsigned char want[16], have[16];
	char copy[64];
	char *slash;
	uint32_t bits;
	int family = target->ip6 ? AF_INET6 : AF_INET;

	if (!target->ip || strlen(net) >= sizeof(copy))
		return false;
	memcpy(copy, net, strlen(net) + 1);
	slash = strchr(copy, '/');
	if (slash == NULL)
		return false;
	*slash = '\0';
	if (parse_u32(slash + 1, 0, target->ip6 ? 128 : 32, &bits) < 0 || inet_pton(family, copy, want) != 1 ||
	    inet_pton(family, target->host, have) != 1)
		return false;
	if (memcmp(want, have, bits / 8) != 0)
		return false;
	return bits % 8 == 0 || (want[bits / 8] ^ have[bits / 8]) >> (8 - bits % 8) == 0;
}

static bool
exempt_one(const char *element, const struct url *target)
{
	size_t dots = strspn(element, "."), len, n;
	char host[URL_HOST_SIZE], why[URL_ERR_SIZE], brackets[80];
	bool ip, ip6;
	uint16_t port = target->port;

	if (strcmp(element, "*") == 0 || in_network(element, target))
		return true;
	element += dots;
	/* An IPv6 address may stand there without brackets. */
	if (strchr(element, ':') != strrchr(element, ':') && element[0] != '[') {
		if (snprintf(brackets, sizeof(brackets), "[%s]", element) >= (int)sizeof(brackets))
			return false;
		element = brackets;
	}
	if (url_parse_host(element, strlen(element), host, &ip, &ip6, &port, why) < 0 || port != target->port)
		return false;
	len = strlen(target->host);
	n = strlen(host);
	if (ip || target->ip)
		return strcmp(host, target->host) == 0;
	return len >= n && strcmp(target->host + len - n, host) == 0 && (len == n || target->host[len - n - 1] == '.');
}

bool
proxy_exempt(const char *no_proxy, const struct url *target)
{
	char element[URL_AUTHORITY_SIZE];

	while (*(no_proxy += strspn(no_proxy, ", \t")) != '\0') {
		size_t len = strcspn(no_proxy, ", \t");

		if (len < sizeof(element)) {
			memcpy(element, no_proxy, len);
			element[len] = '\0';
			if (exempt_one(element, target))
				return true;
		}
		no_proxy += len;
	}
	return false;
}

int
proxy_choose(const char *conf, const char *no_proxy, const struct proxy_env *env, const struct url *target,
    struct proxy *ret_proxy, char err[URL_ERR_SIZE])
{
	const char *from_env = target->tls ? env->https : env->http;

	*ret_proxy = (struct proxy){ .kind = PROXY_NONE };
	if (strcmp(conf, "none") == 0)
		return 0;
	if (conf[0] != '\0') {
		/* Looked at even when the hub is exempt: a mistake in it is told at start, not later. */
		int r = proxy_parse(conf, ret_proxy, err);

		if (r == 0 && proxy_exempt(no_proxy, target))
			*ret_proxy = (struct proxy){ .kind = PROXY_NONE };
		return r;
	}
	if (from_env[0] == '\0')
		from_env = env->all;
	if (from_env[0] == '\0' || url_is_loopback(target) || proxy_exempt(no_proxy, target) || proxy_exempt(env->no, target))
		return 0;
	return proxy_parse(from_env, ret_proxy, err);
}
