#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/hub/httpget.h"
#include "tests/unit/unit.h"

#define MAX	1000u

static struct httpget g;

static enum httpget_what
answer(uint64_t from, const char *text)
{
	static struct http_head head;
	size_t used;

	http_init(&head, HTTP_RESPONSE);
	assert_int_equal(http_feed(&head, text, strlen(text), &used), 1);
	httpget_judge(&head, from, MAX, &g);
	return g.what;
}

static void
content_range(void **state)
{
	static const char *const bad[] = { "", "bytes", "bytes ", "bytes 1-2", "bytes 1-2/*", "bytes */5", "bytes 3-2/5", "bytes 1-5/5", "bytes 1-2/3 ",
		"bytes 1 -2/3", "bytes -2/3", "bytes +1-2/3", "bytes 1-2/99999999999999999999", "octets 1-2/3", "bytes 1--2/3" };
	uint64_t from, last, total;

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(httpget_content_range(bad[i], &from, &last, &total), -EBADMSG);
	assert_int_equal(httpget_content_range("bytes 5-9/10", &from, &last, &total), 0);
	assert_true(from == 5 && last == 9 && total == 10);
	assert_int_equal(httpget_content_range("bytes 0-9223372036854775806/9223372036854775807", &from, &last, &total), 0);
}

static void
a_whole_file(void **state)
{
	assert_int_equal(answer(0, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: \"x\"\r\n\r\n"), HTTPGET_BODY);
	assert_true(g.from == 0 && g.total == 10);
	assert_string_equal(g.etag, "\"x\"");
	/* Range ignored, or the file is another one: all of it. */
	assert_int_equal(answer(5, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nETag: W/\"x\"\r\n\r\n"), HTTPGET_BODY);
	assert_true(g.from == 0);
	assert_string_equal(g.etag, "");
}

static void
the_rest_of_one(void **state)
{
	assert_int_equal(answer(5, "HTTP/1.1 206 P\r\nContent-Length: 5\r\nContent-Range: bytes 5-9/10\r\n\r\n"), HTTPGET_BODY);
	assert_true(g.from == 5 && g.total == 10);
	assert_int_equal(answer(5, "HTTP/1.1 206 P\r\nContent-Length: 5\r\n\r\n"), HTTPGET_AGAIN);
	assert_int_equal(answer(5, "HTTP/1.1 206 P\r\nContent-Length: 6\r\nContent-Range: bytes 4-9/10\r\n\r\n"), HTTPGET_AGAIN);
	assert_int_equal(answer(5, "HTTP/1.1 206 P\r\nContent-Length: 4\r\nContent-Range: bytes 5-8/10\r\n\r\n"), HTTPGET_AGAIN);
	assert_int_equal(answer(5, "HTTP/1.1 206 P\r\nContent-Length: 9\r\nContent-Range: bytes 5-9/10\r\n\r\n"), HTTPGET_AGAIN);
	/* Not asked for. */
	assert_int_equal(answer(0, "HTTP/1.1 206 P\r\nContent-Length: 10\r\nContent-Range: bytes 0-9/10\r\n\r\n"), HTTPGET_FINAL);
}

static void
what_is_none(void **state)
{
	static const struct { const char *head; enum httpget_what what; } t[] = {
		{ "200 OK\r\n", HTTPGET_FINAL }, { "200 OK\r\nContent-Length: 0\r\n", HTTPGET_FINAL },
		{ "200 OK\r\nContent-Length: 1001\r\n", HTTPGET_FINAL }, { "200 OK\r\nTransfer-Encoding: chunked\r\n", HTTPGET_FINAL },
		{ "200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n", HTTPGET_FINAL }, { "301 M\r\nContent-Length: 0\r\n", HTTPGET_FINAL },
		{ "404 N\r\n", HTTPGET_FINAL }, { "403 N\r\n", HTTPGET_FINAL }, { "100 C\r\n", HTTPGET_FINAL }, { "416 R\r\n", HTTPGET_AGAIN },
		{ "429 S\r\nRetry-After: 7\r\n", HTTPGET_AGAIN }, { "503 S\r\nRetry-After: Wed, 21 Oct 2026\r\n", HTTPGET_AGAIN },
	};
	char text[256];

	for (size_t i = 0; i < COUNT(t); i++) {
		snprintf(text, sizeof(text), "HTTP/1.1 %s\r\n", t[i].head);
		assert_int_equal(answer(0, text), t[i].what);
		assert_true(g.code != NULL && g.detail != NULL);
		assert_int_equal(g.retry_after_ms, i == 10 ? 7000 : -1);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(content_range), cmocka_unit_test(a_whole_file), cmocka_unit_test(the_rest_of_one), cmocka_unit_test(what_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
