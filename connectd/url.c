#include "connectd/url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/parse.h"

__attribute__((format(printf, 2, 3))) static int
fail(char err[URL_ERR_SIZE], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(err, URL_ERR_SIZE, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_hex(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool
is_alnum(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/*
 * A name whose last label begins with a digit would be read as an address by one library and as a name by another
 * (127.1, 0x7f.1): it must be a complete dotted quad or nothing.
 */
static int
check_name(const char *host, char err[URL_ERR_SIZE])
{
	size_t label = 0;

	for (const char *p = host;; p++) {
		if (*p == '.' || *p == '\0') {
			if (label == 0 || label > 63 || p[-1] == '-' || p[-(ptrdiff_t)label] == '-')
				return fail(err, "the host name has an empty, too long or malformed part");
			if (*p == '\0' && is_digit(p[-(ptrdiff_t)label]))
				return fail(err, "the host is neither a name nor a complete address");
			if (*p == '\0')
				return 0;
			label = 0;
		} else if (!is_alnum(*p) && *p != '-' && *p != '_') {
			return fail(err, "the host name has a character that is not allowed");
		} else {
			label++;
		}
	}
}

static int
take_host(char *host, bool brackets, bool *ret_ip, bool *ret_ip6, char err[URL_ERR_SIZE])
{
	unsigned char raw[16];
	bool v6 = brackets && inet_pton(AF_INET6, host, raw) == 1;
	bool v4 = !brackets && inet_pton(AF_INET, host, raw) == 1;

	if (brackets && !v6)
		return fail(err, "there is no IPv6 address between the brackets");
	if (!v4 && !v6) {
		int r = check_name(host, err);

		if (r < 0)
			return r;
		for (char *p = host; *p != '\0'; p++)
			if (*p >= 'A' && *p <= 'Z')
				*p = (char)(*p + ('a' - 'A'));
	} else if (inet_ntop(v6 ? AF_INET6 : AF_INET, raw, host, URL_HOST_SIZE) == NULL) {
		return fail(err, "the address cannot be used");
	}
	*ret_ip = v4 || v6;
	*ret_ip6 = v6;
	return 0;
}

static int
take_port(const char *text, size_t len, uint16_t *ret_port, char err[URL_ERR_SIZE])
{
	char digits[8];
	uint32_t port;

	if (len >= sizeof(digits))
		return fail(err, "the port is not a number from 1 to 65535");
	memcpy(digits, text, len);
	digits[len] = '\0';
	if (parse_u32(digits, 1, 65535, &port) < 0)
		return fail(err, "the port is not a number from 1 to 65535");
	*ret_port = (uint16_t)port;
	return 0;
}

int
url_parse_host(const char *text, size_t len, char host[URL_HOST_SIZE], bool *ret_ip, bool *ret_ip6,
    uint16_t *ret_port, char err[URL_ERR_SIZE])
{
	bool brackets = len > 0 && text[0] == '[';
	const char *close = brackets ? memchr(text, ']', len) : NULL, *colon;
	const char *start = brackets ? text + 1 : text, *end = text + len, *rest;
	char copy[URL_HOST_SIZE];
	int r;

	if (brackets && close == NULL)
		return fail(err, "the bracket of the address is not closed");
	colon = brackets ? NULL : memchr(text, ':', len);
	rest = brackets ? close + 1 : colon != NULL ? colon : end;
	if (brackets)
		end = close;
	else if (colon != NULL)
		end = colon;
	if (end == start)
		return fail(err, "the host is missing");
	if ((size_t)(end - start) >= sizeof(copy) || memchr(start, '\0', (size_t)(end - start)) != NULL)
		return fail(err, "the host name is too long");
	memcpy(copy, start, (size_t)(end - start));
	copy[end - start] = '\0';
	r = take_host(copy, brackets, ret_ip, ret_ip6, err);
	if (r == 0 && rest < text + len)
		r = *rest != ':' ? fail(err, "there is something between the address and the port") :
		    take_port(rest + 1, (size_t)(text + len - rest - 1), ret_port, err);
	if (r == 0)
		memcpy(host, copy, sizeof(copy));
	return r;
}

/* RFC 3986: pchar, '/', '?' and whole %XX. */
static int
take_path(const char *text, char path[URL_PATH_SIZE], char err[URL_ERR_SIZE])
{
	int n = snprintf(path, URL_PATH_SIZE, "%s%s", text[0] == '/' ? "" : "/", text);

	if (n < 0 || n >= URL_PATH_SIZE)
		return fail(err, "the path is longer than %d characters", URL_PATH_SIZE - 2);
	for (const char *p = path; *p != '\0'; p++) {
		if (*p == '#')
			return fail(err, "a fragment (#) has no place in the address of a hub");
		if (*p == '%' && !(is_hex(p[1]) && is_hex(p[2])))
			return fail(err, "the path has a %% without two hexadecimal digits");
		if (!is_alnum(*p) && strchr("-._~!$&'()*+,;=:@/?%", *p) == NULL)
			return fail(err, "the path has a character that is not allowed");
	}
	return 0;
}

static const struct {
	const char *prefix;
	bool tls;
} schemes[] = { { "wss://", true }, { "https://", true }, { "ws://", false }, { "http://", false } };

int
url_parse(const char *text, struct url *ret_url, char err[URL_ERR_SIZE])
{
	struct url url = { .port = 0 };
	const char *rest = NULL;
	size_t len;
	int r;

	for (size_t i = 0; rest == NULL && i < sizeof(schemes) / sizeof(schemes[0]); i++) {
		if (strncasecmp(text, schemes[i].prefix, strlen(schemes[i].prefix)) != 0)
			continue;
		rest = text + strlen(schemes[i].prefix);
		url.tls = schemes[i].tls;
	}
	if (rest == NULL)
		return fail(err, "the address does not begin with wss://, https://, ws:// or http://");
	len = strcspn(rest, "/?#");
	if (memchr(rest, '@', len) != NULL)
		return fail(err, "user and password have no place in the address of a hub");
	url.port = url.tls ? 443 : 80;
	r = url_parse_host(rest, len, url.host, &url.ip, &url.ip6, &url.port, err);
	if (r == 0)
		r = take_path(rest + len, url.path, err);
	if (r == 0)
		*ret_url = url;
	return r;
}

bool
url_host_is_localhost(const char *host)
{
	static const char name[] = "localhost";
	size_t len = strlen(host), n = sizeof(name) - 1;

	return len >= n && strcasecmp(host + len - n, name) == 0 && (len == n || host[len - n - 1] == '.');
}

bool
url_is_loopback(const struct url *url)
{
	if (!url->ip)
		return url_host_is_localhost(url->host);
	return url->ip6 ? strcmp(url->host, "::1") == 0 : strncmp(url->host, "127.", 4) == 0;
}

void
url_authority(const struct url *url, bool always_port, char buf[URL_AUTHORITY_SIZE])
{
	const char *open = url->ip6 ? "[" : "", *close = url->ip6 ? "]" : "";

	if (!always_port && url->port == (url->tls ? 443 : 80))
		snprintf(buf, URL_AUTHORITY_SIZE, "%s%s%s", open, url->host, close);
	else
		snprintf(buf, URL_AUTHORITY_SIZE, "%s%s%s:%u", open, url->host, close, url->port);
}
