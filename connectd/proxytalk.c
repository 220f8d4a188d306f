/*
 * What is said to a proxy. No byte beyond the proxy's own answer is ever taken: nobody may speak before us in the
 * tunnel, so bytes that follow a reply end the attempt.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "connectd/proxy.h"
#include "proto/hub/base64.h"

#define SOCKS_VERSION	5
#define SOCKS_NO_AUTH	0
#define SOCKS_PASSWORD	2

static int
refuse(struct proxy_talk *talk, const char *detail)
{
	snprintf(talk->detail, sizeof(talk->detail), "%s", detail);
	return -EPROTO;
}

static void
put(struct proxy_talk *talk, const void *data, size_t len)
{
	/* Every part has its own bound and together they fit: checked by the sizes of struct proxy and struct url. */
	memcpy(talk->out + talk->out_len, data, len);
	talk->out_len += len;
}

static void
put_u8(struct proxy_talk *talk, unsigned v)
{
	uint8_t b = (uint8_t)v;

	put(talk, &b, 1);
}

static void
start_http(struct proxy_talk *talk)
{
	const struct proxy *proxy = talk->proxy;
	char authority[URL_AUTHORITY_SIZE], plain[2 * PROXY_SECRET_SIZE], basic[BASE64_LEN(2 * PROXY_SECRET_SIZE) + 1] = "";
	int n;

	url_authority(talk->target, true, authority);
	if (proxy->auth) {
		n = snprintf(plain, sizeof(plain), "%s:%s", proxy->user, proxy->password);
		base64_encode(basic, plain, (size_t)n);
	}
	n = snprintf((char *)talk->out, sizeof(talk->out), "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", authority,
	    authority, proxy->auth ? "Proxy-Authorization: Basic " : "", basic, proxy->auth ? "\r\n" : "");
	talk->out_len = (size_t)n;
	talk->state = PROXY_HTTP_HEAD;
	http_init(&talk->head, HTTP_RESPONSE);
	explicit_bzero(plain, sizeof(plain));
	explicit_bzero(basic, sizeof(basic));
}

static void
want(struct proxy_talk *talk, enum proxy_state state, size_t need)
{
	talk->state = state;
	talk->need = need;
}

void
proxy_talk_start(struct proxy_talk *talk, const struct proxy *proxy, const struct url *target)
{
	memset(talk, 0, offsetof(struct proxy_talk, head));
	talk->http_status = 0;
	talk->auth_failed = false;
	talk->detail[0] = '\0';
	talk->proxy = proxy;
	talk->target = target;
	if (proxy->kind == PROXY_HTTP) {
		start_http(talk);
		return;
	}
	put_u8(talk, SOCKS_VERSION);
	put_u8(talk, proxy->auth ? 2 : 1);
	put_u8(talk, SOCKS_NO_AUTH);
	if (proxy->auth)
		put_u8(talk, SOCKS_PASSWORD);
	want(talk, PROXY_SOCKS_METHOD, 2);
}

/* Names the schemes of a 407 in one line. */
static void
tell_schemes(struct proxy_talk *talk)
{
	const char *value, *sep = "";
	unsigned pos = 0;
	char list[64] = "";

	while ((value = http_header_next(&talk->head, "Proxy-Authenticate", &pos)) != NULL) {
		size_t n = strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"), used = strlen(list);

		if (n == 0 || used + n + 3 > sizeof(list))
			continue;
		snprintf(list + used, sizeof(list) - used, "%s%.*s", sep, (int)n, value);
		sep = ", ";
	}
	if (list[0] == '\0')
		snprintf(list, sizeof(list), "nothing");
	if (strcasestr(list, "Basic") == NULL)
		snprintf(talk->detail, sizeof(talk->detail),
		    "the proxy wants authentication and offers %s; only Basic is supported", list);
	else if (talk->proxy->auth)
		refuse(talk, "the proxy refused the user or password: check them in the proxy's address");
	else
		refuse(talk, "the proxy wants a user and a password: put them into the proxy's address");
}

static int
feed_http(struct proxy_talk *talk, const uint8_t *data, size_t len, size_t *ret_used)
{
	int r = http_feed(&talk->head, data, len, ret_used);

	if (r == 0)
		return 0;
	if (r < 0)
		return refuse(talk, r == -EMSGSIZE ? "the proxy's answer is too long" : "the proxy's answer is not HTTP");
	/* Any 2xx opens the tunnel and has no body, whatever Content-Length says (RFC 9110 9.3.6). */
	if (talk->head.status / 100 == 2) {
		talk->state = PROXY_DONE;
		return 0;
	}
	talk->http_status = (int)talk->head.status;
	talk->auth_failed = talk->http_status == 407;
	if (talk->auth_failed)
		tell_schemes(talk);
	else
		snprintf(talk->detail, sizeof(talk->detail), "the proxy answered %d to CONNECT", talk->http_status);
	return -EPROTO;
}

static void
send_password(struct proxy_talk *talk)
{
	const struct proxy *proxy = talk->proxy;

	put_u8(talk, 1);
	put_u8(talk, (unsigned)strlen(proxy->user));
	put(talk, proxy->user, strlen(proxy->user));
	put_u8(talk, (unsigned)strlen(proxy->password));
	put(talk, proxy->password, strlen(proxy->password));
	want(talk, PROXY_SOCKS_AUTH, 2);
}

static void
send_connect(struct proxy_talk *talk)
{
	const struct url *target = talk->target;
	uint8_t raw[16];
	const uint8_t head[3] = { SOCKS_VERSION, 1, 0 };

	put(talk, head, sizeof(head));
	if (target->ip) {
		/* url_parse() wrote it, so it is an address. */
		(void)inet_pton(target->ip6 ? AF_INET6 : AF_INET, target->host, raw);
		put_u8(talk, target->ip6 ? 4 : 1);
		put(talk, raw, target->ip6 ? 16 : 4);
	} else {
		put_u8(talk, 3);
		put_u8(talk, (unsigned)strlen(target->host));
		put(talk, target->host, strlen(target->host));
	}
	put_u8(talk, target->port >> 8);
	put_u8(talk, target->port & 0xff);
	/* Up to the first byte of the address, which for a name is its length. */
	want(talk, PROXY_SOCKS_REPLY, 5);
}

static int
socks_method(struct proxy_talk *talk)
{
	unsigned method = talk->in[1];

	if (talk->in[0] != SOCKS_VERSION)
		return refuse(talk, "the proxy does not speak SOCKS5");
	if (method == SOCKS_NO_AUTH) {
		send_connect(talk);
		return 0;
	}
	if (method == SOCKS_PASSWORD && talk->proxy->auth) {
		send_password(talk);
		return 0;
	}
	talk->auth_failed = method == 0xff;
	return refuse(talk, method != 0xff ? "the proxy chose a method nobody offered" : talk->proxy->auth ?
	    "the proxy accepts neither no authentication nor user and password" :
	    "the proxy wants authentication: put user and password into the proxy's address");
}

static int
socks_auth(struct proxy_talk *talk)
{
	if (talk->in[0] != 1)
		return refuse(talk, "the proxy's answer to the password is malformed");
	if (talk->in[1] != 0) {
		talk->auth_failed = true;
		return refuse(talk, "the proxy refused the user or password: check them in the proxy's address");
	}
	send_connect(talk);
	return 0;
}

static int
socks_reply(struct proxy_talk *talk)
{
	static const char *const why[] = {
		"", "general failure", "not allowed by its rules", "network unreachable", "host unreachable",
		"connection refused by the hub", "time to live expired", "command not supported",
		"address type not supported",
	};
	unsigned code = talk->in[1], type = talk->in[3];
	size_t address = type == 1 ? 4 : type == 4 ? 16 : type == 3 ? 1u + talk->in[4] : 0;

	if (talk->in[0] != SOCKS_VERSION || talk->in[2] != 0)
		return refuse(talk, "the proxy's reply is malformed");
	if (code != 0) {
		snprintf(talk->detail, sizeof(talk->detail), "the proxy replied %u: %s", code,
		    code < sizeof(why) / sizeof(why[0]) ? why[code] : "unassigned code");
		return -EPROTO;
	}
	if (address == 0)
		return refuse(talk, "the proxy's reply is malformed");
	talk->state = PROXY_SOCKS_ADDRESS;
	talk->need = 4 + address + 2 - 5;
	return 0;
}

static int
feed_socks(struct proxy_talk *talk, const uint8_t *data, size_t len, size_t *ret_used)
{
	size_t n = talk->need - talk->in_len;

	n = len < n ? len : n;
	memcpy(talk->in + talk->in_len, data, n);
	talk->in_len += n;
	*ret_used = n;
	if (talk->in_len < talk->need)
		return 0;
	talk->in_len = 0;
	switch (talk->state) {
	case PROXY_SOCKS_METHOD:
		return socks_method(talk);
	case PROXY_SOCKS_AUTH:
		return socks_auth(talk);
	case PROXY_SOCKS_REPLY:
		return socks_reply(talk);
	case PROXY_SOCKS_ADDRESS:
	case PROXY_HTTP_HEAD:
	case PROXY_DONE:
		break;
	}
	talk->state = PROXY_DONE;
	return 0;
}

int
proxy_talk_feed(struct proxy_talk *talk, const uint8_t *data, size_t len)
{
	while (len > 0) {
		size_t used = 0;
		int r;

		if (talk->state == PROXY_DONE || talk->out_len > 0)
			return refuse(talk, "the proxy sent more than its answer");
		r = talk->proxy->kind == PROXY_HTTP ? feed_http(talk, data, len, &used) : feed_socks(talk, data, len, &used);
		if (r < 0)
			return r;
		data += used;
		len -= used;
	}
	return talk->state == PROXY_DONE ? 1 : 0;
}

void
proxy_talk_eof(struct proxy_talk *talk)
{
	refuse(talk, talk->state == PROXY_HTTP_HEAD && talk->head.len == 0 && talk->in_len == 0 ?
	    "the proxy closed the connection without an answer" : "the proxy closed the connection in the middle of its answer");
}
