#include "proto/hub/wsupgrade.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "proto/hub/base64.h"

#define GUID	"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"	/* RFC 6455 section 1.3 */
#define KEY_LEN	(WSUPGRADE_KEY_SIZE - 1)

void
wsupgrade_accept(const char *key, wsupgrade_sha1 sha1, char ret_accept[WSUPGRADE_ACCEPT_SIZE])
{
	char text[KEY_LEN + sizeof(GUID)];
	uint8_t digest[20];

	memcpy(text, key, KEY_LEN);
	memcpy(text + KEY_LEN, GUID, sizeof(GUID));
	sha1(text, sizeof(text) - 1, digest);
	base64_encode(ret_accept, digest, sizeof(digest));
}

bool
wsupgrade_key_ok(const char *key)
{
	uint8_t raw[KEY_LEN];
	char again[WSUPGRADE_KEY_SIZE];
	size_t len;

	if (strlen(key) != KEY_LEN || base64_decode(raw, sizeof(raw), key, KEY_LEN, &len) < 0 || len != 16)
		return false;
	base64_encode(again, raw, len);
	return strcmp(again, key) == 0;
}

int
wsupgrade_check_request(const struct http_head *head)
{
	const char *key = http_header(head, "Sec-WebSocket-Key");

	if (strcmp(head->method, "GET") != 0)
		return 405;
	if (!http_has_token(head, "Upgrade", "websocket") || !http_has_token(head, "Connection", "upgrade"))
		return 426;
	if (http_header_count(head, "Sec-WebSocket-Version") != 1)
		return 400;
	if (strcmp(http_header(head, "Sec-WebSocket-Version"), "13") != 0)
		return 426;
	if (head->minor != 1 || key == NULL || !wsupgrade_key_ok(key))
		return 400;
	return head->content_length > 0 || head->chunked ? 400 : 0;
}

int
wsupgrade_check_response(const struct http_head *head, const char *key, wsupgrade_sha1 sha1, const char *offered,
    bool *ret_selected)
{
	const char *upgrade = http_header(head, "Upgrade"), *accept = http_header(head, "Sec-WebSocket-Accept");
	const char *selected = http_header(head, "Sec-WebSocket-Protocol");
	char want[WSUPGRADE_ACCEPT_SIZE];

	if (head->status != 101 || head->minor != 1 || upgrade == NULL || strcasecmp(upgrade, "websocket") != 0 ||
	    !http_has_token(head, "Connection", "upgrade"))
		return -EBADMSG;
	wsupgrade_accept(key, sha1, want);
	if (accept == NULL || strcmp(accept, want) != 0)
		return -EBADMSG;
	if (http_header(head, "Sec-WebSocket-Extensions") != NULL || head->content_length > 0 || head->chunked)
		return -EBADMSG;
	if (http_header_count(head, "Sec-WebSocket-Protocol") > 1 ||
	    (selected != NULL && (offered == NULL || strcmp(selected, offered) != 0)))
		return -EBADMSG;
	*ret_selected = selected != NULL;
	return 0;
}
