#include "connectd/upgrade.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "common/parse.h"
#include "connectd/tls.h"
#include "proto/hub/base64.h"
#include "proto/hub/limits.h"
#include "version.h"

#define RETRY_AFTER_MAX_S	86400u

static int
make_key(char key[WSUPGRADE_KEY_SIZE])
{
	uint8_t raw[16];

	if (getrandom(raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
		return -EIO;
	base64_encode(key, raw, sizeof(raw));
	return 0;
}

bool
upgrade_bearer_ok(const char *bearer)
{
	for (const char *p = bearer; *p != '\0'; p++)
		if (*p <= ' ' || *p > '~')
			return false;
	return strlen(bearer) <= UPGRADE_BEARER_MAX;
}

int
upgrade_start(struct upgrade *up, const struct url *url, const char *bearer, bool offer_edgeward1, struct outq *out)
{
	char authority[URL_AUTHORITY_SIZE], *room;
	size_t size = URL_PATH_SIZE + 2 * URL_AUTHORITY_SIZE + UPGRADE_BEARER_MAX + 512;
	int n;

	if (make_key(up->key) < 0)
		return -EIO;
	room = (char *)outq_room(out, size);
	if (room == NULL)
		return -ENOMEM;
	url_authority(url, false, authority);
	n = snprintf(room, size, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
	    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n%s%s%s%sUser-Agent: edgeward/%s\r\n\r\n",
	    url->path, authority, up->key, offer_edgeward1 ? "Sec-WebSocket-Protocol: " HUB_SUBPROTOCOL "\r\n" : "",
	    bearer[0] != '\0' ? "Authorization: Bearer " : "", bearer, bearer[0] != '\0' ? "\r\n" : "", EDGEWARD_VERSION);
	outq_commit(out, (size_t)n);
	up->offered = offer_edgeward1;
	http_init(&up->head, HTTP_RESPONSE);
	return 0;
}

/* Seconds only: the form with a date would need a clock we may not have. */
static int64_t
retry_after(const struct http_head *head)
{
	const char *value = http_header(head, "Retry-After");
	uint32_t s;

	if (value == NULL || parse_u32(value, 0, RETRY_AFTER_MAX_S, &s) < 0)
		return -1;
	return (int64_t)s * 1000;
}

static const struct {
	unsigned from, to;
	const char *code, *means;
} answers[] = {
	{ 401, 401, "http-401", "the hub does not accept this device's credential" },
	{ 403, 403, "http-403", "the hub forbids this device to connect" },
	{ 300, 399, "http-bad", "the hub's address leads elsewhere, and redirects are not followed: correct the url" },
	{ 404, 404, "http-bad", "there is no hub under this path: check the path of the url" },
	{ 426, 426, "http-bad", "the hub wants another WebSocket version" },
	{ 429, 429, "http-bad", "the hub wants fewer attempts" },
	{ 500, 599, "http-5xx", "the hub, or what stands before it, is not available" },
	{ 100, 999, "http-bad", "this is no answer of a hub" },
};

static int
refused(const struct http_head *head, struct hubconn_end *end)
{
	size_t i = 0;

	while (head->status < answers[i].from || head->status > answers[i].to)
		i++;
	hubend_set(end, HUBCONN_HTTP_FAILED, HUBCONN_UPGRADING, answers[i].code, "HTTP %u: %s", head->status, answers[i].means);
	end->http_status = (int)head->status;
	end->retry_after_ms = retry_after(head);
	end->answered = true;
	return -EPROTO;
}

static int
bad(struct hubconn_end *end, int status, const char *why)
{
	hubend_set(end, HUBCONN_HTTP_FAILED, HUBCONN_UPGRADING, "http-bad", "%s", why);
	end->http_status = status;
	end->answered = true;
	return -EPROTO;
}

int
upgrade_feed(struct upgrade *up, const uint8_t *data, size_t len, size_t *ret_used, bool *ret_edgeward1,
    struct hubconn_end *end)
{
	int r = http_feed(&up->head, data, len, ret_used);

	if (r == 0)
		return 0;
	if (r < 0)
		return bad(end, 0, r == -EMSGSIZE ? "the hub's answer is too long for HTTP" :
		    "the hub's answer is not HTTP: is this the right port?");
	if (up->head.status != 101)
		return refused(&up->head, end);
	if (wsupgrade_check_response(&up->head, up->key, tls_sha1, up->offered ? HUB_SUBPROTOCOL : NULL, ret_edgeward1) < 0)
		return bad(end, 101, "the hub's upgrade breaks RFC 6455 (accept key, extension or subprotocol)");
	return 1;
}

void
upgrade_eof(const struct upgrade *up, struct hubconn_end *end)
{
	bad(end, 0, up->head.len == 0 ? "the hub closed the connection without an HTTP answer" :
	    "the hub closed the connection in the middle of its HTTP answer");
	end->answered = up->head.len > 0;
}
