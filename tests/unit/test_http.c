#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/http.h"
#include "tests/unit/unit.h"

static struct http_head head;

/* Feeds text in pieces of step bytes; the result, and how many bytes were taken. */
static int
feed(enum http_kind kind, const char *text, size_t step, size_t *ret_used)
{
	size_t len = strlen(text), used = 0;
	int r = 0;

	http_init(&head, kind);
	while (r == 0 && used < len) {
		size_t n = len - used < step ? len - used : step, k;
		char *exact = malloc(n);

		assert_non_null(exact);
		memcpy(exact, text + used, n);
		r = http_feed(&head, exact, n, &k);
		free(exact);
		used += k;
	}
	*ret_used = used;
	return r;
}

static void
requests(void **state)
{
	static const char text[] = "GET /api?a=b%20c HTTP/1.1\r\nHost: hub.example:8443\r\nX-A:\t one , two \t\r\n"
	    "x-a: three\r\nEmpty:\r\n\r\nrest";

	for (size_t step = 1; step < sizeof(text); step++) {
		size_t used;

		assert_int_equal(feed(HTTP_REQUEST, text, step, &used), 1);
		assert_int_equal(used, sizeof(text) - 1 - strlen("rest"));
		assert_string_equal(head.method, "GET");
		assert_string_equal(head.target, "/api?a=b%20c");
		assert_int_equal(head.minor, 1);
		assert_string_equal(http_header(&head, "HOST"), "hub.example:8443");
		assert_string_equal(http_header(&head, "x-a"), "one , two");
		assert_string_equal(http_header(&head, "empty"), "");
		assert_null(http_header(&head, "x"));
		assert_int_equal(http_header_count(&head, "X-A"), 2);
		assert_true(http_has_token(&head, "X-A", "TWO"));
		assert_true(http_has_token(&head, "X-A", "three"));
		assert_false(http_has_token(&head, "X-A", "on"));
		assert_false(http_has_token(&head, "X-A", "one , two"));
		assert_true(head.content_length == -1);
	}
}

static void
responses(void **state)
{
	size_t used;

	assert_int_equal(feed(HTTP_RESPONSE, "HTTP/1.0 407 Proxy \xc3\xa9\r\nContent-Length: 12\r\n\r\n", 3, &used), 1);
	assert_int_equal(head.status, 407);
	assert_string_equal(head.reason, "Proxy \xc3\xa9");
	assert_true(head.content_length == 12);
	assert_int_equal(feed(HTTP_RESPONSE, "HTTP/1.1 204\r\n\r\n", 99, &used), 1);
	assert_string_equal(head.reason, "");
	assert_int_equal(feed(HTTP_RESPONSE, "HTTP/1.1 200 \r\nTransfer-Encoding: Chunked\r\n\r\n", 99, &used), 1);
	assert_true(head.chunked);
	/* A complete head takes nothing more. */
	assert_int_equal(http_feed(&head, "x", 1, &used), 1);
	assert_int_equal(used, 0);
}

static void
refused(void **state)
{
	static const struct { enum http_kind kind; const char *text; } t[] = {
		{ HTTP_REQUEST, "GET / HTTP/1.1\nHost: a\n\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\rHost: a\r\r" },
		{ HTTP_REQUEST, "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\n\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\r\n\r\n" },
		{ HTTP_REQUEST, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/2.0\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.2\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / http/1.1\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET /\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, " / HTTP/1.1\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "G(T / HTTP/1.1\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET /\xc3\xa9 HTTP/1.1\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\n Host: a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost : a\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nnocolon\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nX: \x01\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nX: \x7f\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n" },
		{ HTTP_REQUEST, "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" },
		{ HTTP_RESPONSE, "HTTP/1.1 20 OK\r\n\r\n" },
		{ HTTP_RESPONSE, "HTTP/1.1 2000 OK\r\n\r\n" },
		{ HTTP_RESPONSE, "HTTP/1.1 099 OK\r\n\r\n" },
		{ HTTP_RESPONSE, "HTTP/1.1  200 OK\r\n\r\n" },
		{ HTTP_RESPONSE, "HTTP/1.1\r\n\r\n" },
		{ HTTP_RESPONSE, "<html>\r\n\r\n" },
		{ HTTP_RESPONSE, "HTTP/1.1 101 A\r\nUpgrade: a\r\nUpgrade: b\r\n\r\n" },
	};

	for (size_t i = 0; i < COUNT(t); i++)
		for (size_t step = 1; step < 90; step += 13) {
			size_t used, again;

			if (feed(t[i].kind, t[i].text, step, &used) != -EBADMSG)
				fail_msg("taken: %s", t[i].text);
			/* An error stays. */
			assert_int_equal(http_feed(&head, "\r\n\r\n", 4, &again), -EBADMSG);
			assert_int_equal(again, 0);
		}
	size_t used;

	http_init(&head, HTTP_REQUEST);
	assert_int_equal(http_feed(&head, "GET /\0 HTTP/1.1\r\n", 17, &used), -EBADMSG);
}

static void
limits(void **state)
{
	static char text[HTTP_HEAD_MAX + 64];
	size_t used, n = 0;
	int k = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\nX: ");

	memset(text + k, 'x', sizeof(text) - 1 - (size_t)k);
	assert_int_equal(feed(HTTP_REQUEST, text, 999, &used), -EMSGSIZE);
	assert_int_equal(used, HTTP_HEAD_MAX + 1);
	/* The longest head that fits. */
	memcpy(text + HTTP_HEAD_MAX - 4, "\r\n\r\n", 5);
	assert_int_equal(feed(HTTP_REQUEST, text, 999, &used), 1);
	assert_int_equal(used, HTTP_HEAD_MAX);

	for (unsigned count = HTTP_HEADERS_MAX; count <= HTTP_HEADERS_MAX + 1; count++) {
		n = (size_t)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\n");
		for (unsigned i = 0; i < count; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "H%u: v\r\n", i);
		snprintf(text + n, sizeof(text) - n, "\r\n");
		assert_int_equal(feed(HTTP_RESPONSE, text, 77, &used), count == HTTP_HEADERS_MAX ? 1 : -EMSGSIZE);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(requests), cmocka_unit_test(responses), cmocka_unit_test(refused),
		cmocka_unit_test(limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
