/*
 * From an HTTP request to a device's WebSocket: path, origin, upgrade headers, then who it is. The origin comes before
 * the token, so a browser page cannot even spend one. All refusals of a token look the same.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/log.h"
#include "hub/session.h"
#include "proto/hub/limits.h"
#include "proto/hub/wsupgrade.h"

static void
respond(struct conn *conn, unsigned status, const char *text, const char *body)
{
	char buf[768];
	int n = snprintf(buf, sizeof(buf), "HTTP/1.1 %u %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
	    "Connection: close\r\n%s\r\n%s", status, text, strlen(body),
	    status == 426 ? "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" : "", body);

	conn->hub->count.refused++;
	conn_send_raw(conn, buf, (size_t)n);
	conn->drop_after_flush = true;
	if (conn->state == CONN_HTTP)
		conn->state = CONN_REFUSED;
}

/* Host part of "scheme://host:port" or "host:port" into buf, lower case; false when it is neither. */
static bool
host_of(const char *s, char *buf, size_t size, const char **ret_rest)
{
	const char *p = strstr(s, "://");
	size_t len;

	if (p != NULL)
		s = p + 3;
	len = s[0] == '[' ? strcspn(s, "]") + 1 : strcspn(s, ":/?#@");
	if (len == 0 || len >= size || (s[0] == '[' && s[len - 1] != ']'))
		return false;
	for (size_t i = 0; i < len; i++)
		buf[i] = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] - 'A' + 'a') : s[i];
	buf[len] = '\0';
	*ret_rest = s + len;
	return true;
}

static bool
is_loopback(const char *host)
{
	size_t len = strlen(host);
	struct in_addr in;

	if (strcmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0)
		return true;
	if (len > 10 && strcmp(host + len - 10, ".localhost") == 0)
		return true;
	return inet_pton(AF_INET, host, &in) == 1 && ntohl(in.s_addr) >> 24 == 127;
}

static bool
origin_ok(const struct conn *conn, const char *origin)
{
	const char *host_header = http_header(conn->head, "Host"), *rest;
	char host[256], own[256];

	if ((strncasecmp(origin, "https://", 8) != 0 && strncasecmp(origin, "http://", 7) != 0) ||
	    !host_of(origin, host, sizeof(host), &rest))
		return false;
	if (rest[0] == ':')
		rest += 1 + strspn(rest + 1, "0123456789");
	if (rest[0] != '\0')
		return false;
	if (is_loopback(host))
		return true;
	if (host_header != NULL && host_of(host_header, own, sizeof(own), &rest) && strcmp(own, host) == 0)
		return true;
	for (unsigned i = 0; i < conn->hub->nhosts; i++)
		if (strcasecmp(conn->hub->hosts[i], host) == 0)
			return true;
	return false;
}

static void
refuse_origin(struct conn *conn, const char *origin)
{
	char clean[128], body[400];
	size_t n = 0;

	for (; *origin != '\0' && n < sizeof(clean) - 1; origin++)
		if (*origin > 0x20 && *origin < 0x7f && *origin != '"' && *origin != '\\')
			clean[n++] = *origin;
	clean[n] = '\0';
	snprintf(body, sizeof(body), "{\"error\":\"origin %s is not allowed; agents send no Origin, a browser page must be "
	    "served under the hub's own name (edgehub serve -n NAME)\"}", clean);
	respond(conn, 403, "Forbidden", body);
}

/* The device a bearer stands for. -EKEYREJECTED for all that is not one. */
static int
authenticate(struct conn *conn, const char *bearer, struct store_device *d, struct token *ret_token)
{
	struct hub *hub = conn->hub;
	struct token token;
	int r = token_parse(hub->key, bearer, strlen(bearer), &token);

	*d = (struct store_device){ 0 };
	if (r < 0)
		return -EKEYREJECTED;
	*ret_token = token;
	if (token.kind == TOKEN_ENROLL)
		return store_token_redeem(hub->store, &token, monotime_wall_ns(), d->name);
	r = store_device_get(hub->store, token.id, d);
	if (r == -ENOENT || (r == 0 && (d->revoked || !token_hash_equal(d->hash, token.hash))))
		return -EKEYREJECTED;
	return r;
}

static void
sha1(const void *data, size_t len, uint8_t digest[20])
{
	SHA1(data, len, digest);
}

static int
accept_upgrade(struct conn *conn, const struct store_device *d, const struct token *token)
{
	bool edgeward = !conn->hub->cloop_only && http_has_token(conn->head, "Sec-WebSocket-Protocol", HUB_SUBPROTOCOL);
	char accept[WSUPGRADE_ACCEPT_SIZE], buf[512];
	int n, r;

	wsupgrade_accept(http_header(conn->head, "Sec-WebSocket-Key"), sha1, accept);
	n = snprintf(buf, sizeof(buf), "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	    "Sec-WebSocket-Accept: %s\r\n%s\r\n", accept,
	    edgeward ? "Sec-WebSocket-Protocol: " HUB_SUBPROTOCOL "\r\n" : "");
	r = ws_open(conn);
	if (r == 0)
		r = session_new(conn, d->id, d->name, token->kind == TOKEN_ENROLL ? token->id : NULL, edgeward);
	if (r < 0) {
		ws_done(conn);
		return r;
	}
	conn_send_raw(conn, buf, (size_t)n);
	if (conn->state != CONN_DEAD)
		conn->state = CONN_OPEN;
	conn_deadline(conn, HUB_HANDSHAKE_MS);
	return 0;
}

static void
admit(struct conn *conn)
{
	const char *auth = http_header(conn->head, "Authorization");
	struct store_device d;
	struct token token = { 0 };
	int r;

	if (auth == NULL || strncmp(auth, "Bearer ", 7) != 0) {
		respond(conn, 401, "Unauthorized", "{\"error\":\"missing bearer token\"}");
		return;
	}
	auth += 7;
	auth += strspn(auth, " \t");
	r = authenticate(conn, auth, &d, &token);
	if (r == -EKEYREJECTED) {
		log_info("%s: token or credential refused", conn->peer);
		respond(conn, 401, "Unauthorized", "{\"error\":\"unauthorized\"}");
		return;
	}
	if (r == 0)
		r = accept_upgrade(conn, &d, &token);
	if (r < 0) {
		log_error("%s: cannot admit: %s", conn->peer, strerror(-r));
		respond(conn, 500, "Internal Server Error", "{\"error\":\"executor unavailable\"}");
	}
}

/* True if the target is our path, with or without a query. */
static bool
path_ok(const char *target)
{
	size_t len = strlen(HUB_PATH);

	return strncmp(target, HUB_PATH, len) == 0 && (target[len] == '\0' || target[len] == '?');
}

void
upgrade_handle(struct conn *conn)
{
	const char *origin;
	int status;

	if (conn->head->err != 0) {
		respond(conn, conn->head->err == -EMSGSIZE ? 431 : 400, "Bad Request", "{\"error\":\"bad request\"}");
		return;
	}
	if (!path_ok(conn->head->target)) {
		respond(conn, 404, "Not Found", "{\"error\":\"not found; agents connect to " HUB_PATH "\"}");
		return;
	}
	origin = http_header(conn->head, "Origin");
	if (origin != NULL && !origin_ok(conn, origin)) {
		refuse_origin(conn, origin);
		return;
	}
	status = wsupgrade_check_request(conn->head);
	if (status != 0) {
		respond(conn, (unsigned)status, status == 405 ? "Method Not Allowed" : status == 426 ? "Upgrade Required" :
		    "Bad Request", "{\"error\":\"a WebSocket upgrade is needed here\"}");
		return;
	}
	admit(conn);
	if (conn->state == CONN_OPEN) {
		OPENSSL_cleanse(conn->head, sizeof(*conn->head));
		free(conn->head);
		conn->head = NULL;
	}
}
