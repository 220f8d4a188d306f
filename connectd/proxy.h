/*
 * The way through a proxy: which one (configuration, environment, exceptions), and what is said to it before the
 * connection belongs to us. HTTP CONNECT with Basic authentication, SOCKS5 with none or user and password (RFC 1928,
 * 1929). The proxy resolves the hub's name; nothing leaks into the local DNS.
 */
#ifndef EDGEWARD_CONNECTD_PROXY_H
#define EDGEWARD_CONNECTD_PROXY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "connectd/url.h"
#include "proto/hub/http.h"

#define PROXY_SECRET_SIZE	128
#define PROXY_ENV_SIZE		512
#define PROXY_DETAIL_SIZE	160

enum proxy_kind { PROXY_NONE, PROXY_HTTP, PROXY_SOCKS5 };

struct proxy {
	enum proxy_kind kind;
	bool ip, ip6;
	uint16_t port;
	bool auth;			/* user and password are given */
	char host[URL_HOST_SIZE];
	char user[PROXY_SECRET_SIZE], password[PROXY_SECRET_SIZE];
};

/* The environment as it was at start. */
struct proxy_env {
	char https[PROXY_ENV_SIZE], http[PROXY_ENV_SIZE], all[PROXY_ENV_SIZE], no[PROXY_ENV_SIZE];
};

/* http_proxy counts in lower case only: in upper case a CGI server sets it from a header. -EINVAL when one is too long. */
int proxy_env_read(struct proxy_env *ret_env);

/* "http://[user[:password]@]host[:port]" (8080), "socks5://" or "socks5h://" (1080). -EINVAL with err filled, no secret. */
int proxy_parse(const char *text, struct proxy *ret_proxy, char err[URL_ERR_SIZE]);

/*
 * conf: a URL, "none", or "" for the environment; no_proxy of the configuration is used with either, the environment's
 * with the environment only. A loopback hub never goes through the environment's proxy.
 */
int proxy_choose(const char *conf, const char *no_proxy, const struct proxy_env *env, const struct url *target,
    struct proxy *ret_proxy, char err[URL_ERR_SIZE]);

/*
 * Elements separated by comma or white space: "*", a name (that host and all beneath it, a leading dot is ignored), an
 * address, an address/prefix; names and addresses may carry a port.
 */
bool proxy_exempt(const char *no_proxy, const struct url *target);

enum proxy_state {
	PROXY_HTTP_HEAD, PROXY_SOCKS_METHOD, PROXY_SOCKS_AUTH, PROXY_SOCKS_REPLY, PROXY_SOCKS_ADDRESS, PROXY_DONE,
};

/* One conversation. Bytes to be sent appear in out; the caller sends them and sets out_len to 0. Wipe it afterwards. */
struct proxy_talk {
	const struct proxy *proxy;
	const struct url *target;
	enum proxy_state state;
	uint8_t out[1024];
	size_t out_len;
	uint8_t in[262];		/* SOCKS: what has come of the reply in hand */
	size_t in_len, need;
	struct http_head head;
	int http_status;		/* of a refusal, else 0 */
	bool auth_failed;		/* refusal because of missing or wrong authentication */
	char detail[PROXY_DETAIL_SIZE];	/* of a refusal: printable ASCII, no secret */
};

/* proxy and target stay valid while the talk lasts. */
void proxy_talk_start(struct proxy_talk *talk, const struct proxy *proxy, const struct url *target);

/* 1 = the connection is through; 0 = more is needed (look at out_len); -EPROTO = refused, detail says why. */
int proxy_talk_feed(struct proxy_talk *talk, const uint8_t *data, size_t len);

/* The peer closed: fills detail. */
void proxy_talk_eof(struct proxy_talk *talk);

#endif
