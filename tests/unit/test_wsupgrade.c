#include <errno.h>
#include <openssl/sha.h>
#include <string.h>

#include "proto/hub/wsupgrade.h"
#include "tests/unit/unit.h"

#define KEY	"dGhlIHNhbXBsZSBub25jZQ=="	/* the example of RFC 6455 section 1.3 */
#define ACCEPT	"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

static struct http_head head;

static void
sha1(const void *data, size_t len, uint8_t ret_digest[20])
{
	SHA1(data, len, ret_digest);
}

static void
parse(enum http_kind kind, const char *text)
{
	size_t used;

	http_init(&head, kind);
	assert_int_equal(http_feed(&head, text, strlen(text), &used), 1);
}

static void
accept_and_key(void **state)
{
	char accept[WSUPGRADE_ACCEPT_SIZE];

	wsupgrade_accept(KEY, sha1, accept);
	assert_string_equal(accept, ACCEPT);
	assert_true(wsupgrade_key_ok(KEY));
	assert_false(wsupgrade_key_ok(""));
	assert_false(wsupgrade_key_ok("dGhlIHNhbXBsZSBub25jZR=="));
	assert_false(wsupgrade_key_ok("dGhlIHNhbXBsZSBub25jZQAA"));
	assert_false(wsupgrade_key_ok("dGhlIHNhbXBsZSBub25j-Q=="));
	assert_false(wsupgrade_key_ok(KEY "="));
}

static void
requests(void **state)
{
	static const struct { int want; const char *text; } t[] = {
		{ 0, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
		    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " KEY "\r\n\r\n" },
		{ 405, "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " KEY "\r\n\r\n" },
		{ 426, "GET / HTTP/1.1\r\nHost: a\r\n\r\n" },
		{ 426, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		    "Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: " KEY "\r\n\r\n" },
		{ 400, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		    "Sec-WebSocket-Key: " KEY "\r\n\r\n" },
		{ 400, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n\r\n" },
		{ 400, "GET / HTTP/1.0\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " KEY "\r\n\r\n" },
		{ 400, "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 3\r\n"
		    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " KEY "\r\n\r\n" },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		parse(HTTP_REQUEST, t[i].text);
		assert_int_equal(wsupgrade_check_request(&head), t[i].want);
	}
}

#define GOOD	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"

static void
responses(void **state)
{
	static const struct { const char *text, *offered; int want; bool selected; } t[] = {
		{ GOOD "Sec-WebSocket-Accept: " ACCEPT "\r\n\r\n", NULL, 0, false },
		{ GOOD "Sec-WebSocket-Accept: " ACCEPT "\r\n\r\n", "edgeward.1", 0, false },
		{ GOOD "Sec-WebSocket-Accept: " ACCEPT "\r\nSec-WebSocket-Protocol: edgeward.1\r\n\r\n", "edgeward.1", 0, true },
		{ GOOD "Sec-WebSocket-Accept: " ACCEPT "\r\nSec-WebSocket-Protocol: edgeward.1\r\n\r\n", NULL, -EBADMSG, false },
		{ GOOD "Sec-WebSocket-Accept: " ACCEPT "\r\nSec-WebSocket-Protocol: other\r\n\r\n", "edgeward.1", -EBADMSG, false },
		{ GOOD "\r\n", NULL, -EBADMSG, false },
		{ GOOD "Sec-WebSocket-Accept: " KEY "\r\n\r\n", NULL, -EBADMSG, false },
		{ GOOD "Sec-WebSocket-Accept: " ACCEPT "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", NULL,
		    -EBADMSG, false },
		{ "HTTP/1.1 200 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " ACCEPT "\r\n\r\n",
		    NULL, -EBADMSG, false },
		{ "HTTP/1.1 101 A\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " ACCEPT "\r\n\r\n", NULL, -EBADMSG, false },
		{ "HTTP/1.1 101 A\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " ACCEPT "\r\n\r\n", NULL, -EBADMSG, false },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		bool selected = false;

		parse(HTTP_RESPONSE, t[i].text);
		assert_int_equal(wsupgrade_check_response(&head, KEY, sha1, t[i].offered, &selected), t[i].want);
		assert_int_equal(selected, t[i].selected);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(accept_and_key), cmocka_unit_test(requests), cmocka_unit_test(responses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
