/*
 * B21: every answer a proxy can give ends in a connection or in one sentence with a stable meaning, without the secret.
 * Where it can occur: connectd/proxytalk.c alone; the code of the status is made from it in dial.c.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/proxy.h"
#include "tests/unit/unit.h"

#define CANARY	"c4n4ry"

static void
parsing(void **state)
{
	static const struct { const char *text; enum proxy_kind kind; const char *host; uint16_t port; const char *user, *password; } t[] = {
		{ "http://proxy.example", PROXY_HTTP, "proxy.example", 8080, NULL, NULL },
		{ "HTTP://Proxy:3128/", PROXY_HTTP, "proxy", 3128, NULL, NULL },
		{ "socks5://[::1]:9", PROXY_SOCKS5, "::1", 9, NULL, NULL },
		{ "socks5h://10.0.0.1", PROXY_SOCKS5, "10.0.0.1", 1080, NULL, NULL },
		{ "http://u@p", PROXY_HTTP, "p", 8080, "u", "" },
		{ "http://u:p%40ss:w%2fd@p:1", PROXY_HTTP, "p", 1, "u", "p@ss:w/d" },
		{ "socks5://a%3Ab:c@p", PROXY_SOCKS5, "p", 1080, "a:b", "c" },
	};
	static const char *const bad[] = {
		"", "proxy:3128", "https://proxy", "ftp://p", "http://", "http://u:p@", "http://p/path", "http://p?x", "http://:p@h",
		"http://%zz@h", "http://a%00b@h", "http://a%0ab:" CANARY "@h", "http://a%3Ab:" CANARY "@h", "http://h:99999",
		"http://u:" CANARY "@h h",
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct proxy p;
		char err[URL_ERR_SIZE];

		if (proxy_parse(t[i].text, &p, err) < 0)
			fail_msg("%s: %s", t[i].text, err);
		assert_int_equal(p.kind, t[i].kind);
		assert_string_equal(p.host, t[i].host);
		assert_int_equal(p.port, t[i].port);
		assert_int_equal(p.auth, t[i].user != NULL);
		assert_string_equal(p.user, t[i].user != NULL ? t[i].user : "");
		assert_string_equal(p.password, t[i].user != NULL ? t[i].password : "");
	}
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct proxy p;
		char err[URL_ERR_SIZE] = "";

		if (proxy_parse(bad[i], &p, err) != -EINVAL || err[0] == '\0')
			fail_msg("taken: %s", bad[i]);
		assert_null(strstr(err, CANARY));
	}
	char longer[400] = "http://user:", err[URL_ERR_SIZE];
	struct proxy p;

	memset(longer + 12, 'x', 200);
	strcpy(longer + 212, "@h");
	assert_int_equal(proxy_parse(longer, &p, err), -EINVAL);
}

static struct url
url_of(const char *text)
{
	struct url url;
	char err[URL_ERR_SIZE];

	assert_int_equal(url_parse(text, &url, err), 0);
	return url;
}

static void
exceptions(void **state)
{
	static const struct { const char *list, *url; bool want; } t[] = {
		{ "", "wss://hub.example/", false }, { "*", "wss://hub.example/", true }, { "example", "wss://hub.example/", true },
		{ "hub.example", "wss://hub.example/", true }, { ".example", "wss://hub.example/", true },
		{ "HUB.Example", "wss://hub.example/", true }, { "ub.example", "wss://hub.example/", false },
		{ "x.hub.example", "wss://hub.example/", false }, { "a, hub.example ,b", "wss://hub.example/", true },
		{ "a b\thub.example", "wss://hub.example/", true }, { "hub.example:443", "wss://hub.example/", true },
		{ "hub.example:8443", "wss://hub.example/", false }, { "10.0.0.0/8", "wss://10.255.0.1/", true },
		{ "10.0.0.0/8", "wss://11.0.0.1/", false }, { "10.0.0.0/9", "wss://10.128.0.1/", false },
		{ "10.0.0.1", "wss://10.0.0.1/", true }, { "0.0.0.1", "wss://10.0.0.1/", false },
		{ "0.0.0.0/0", "wss://10.0.0.1/", true }, { "2001:db8::/32", "wss://[2001:db8:1::5]/", true },
		{ "2001:db8::1", "wss://[2001:db8::1]/", true }, { "[2001:db8::1]:443", "wss://[2001:db8::1]/", true },
		{ "2001:db8::/32", "wss://10.0.0.1/", false }, { "10.0.0.0/33", "wss://10.0.0.1/", false },
		{ ",,, ,", "wss://hub.example/", false },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct url url = url_of(t[i].url);

		if (proxy_exempt(t[i].list, &url) != t[i].want)
			fail_msg("%s / %s", t[i].list, t[i].url);
	}
}

static void
choosing(void **state)
{
	static const struct { const char *conf, *no, *https, *http, *all, *env_no, *url, *host; } t[] = {
		{ "", "", "", "", "", "", "wss://h.x/", NULL },
		{ "", "", "http://a", "http://b", "http://c", "", "wss://h.x/", "a" },
		{ "", "", "http://a", "http://b", "http://c", "", "ws://h.x/", "b" },
		{ "", "", "", "", "socks5://c", "", "wss://h.x/", "c" },
		{ "", "", "http://a", "", "", "h.x", "wss://h.x/", NULL },
		{ "", "h.x", "http://a", "", "", "", "wss://h.x/", NULL },
		{ "", "", "http://a", "", "", "", "wss://127.0.0.1/", NULL },
		{ "", "", "http://a", "", "", "", "wss://localhost/", NULL },
		{ "none", "", "http://a", "", "", "", "wss://h.x/", NULL },
		{ "http://z", "", "http://a", "", "", "h.x", "wss://h.x/", "z" },
		{ "http://z", "h.x", "http://a", "", "", "", "wss://h.x/", NULL },
		{ "http://z", "", "", "", "", "", "wss://127.0.0.1/", "z" },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct url url = url_of(t[i].url);
		struct proxy_env env;
		struct proxy p;
		char err[URL_ERR_SIZE];

		snprintf(env.https, sizeof(env.https), "%s", t[i].https);
		snprintf(env.http, sizeof(env.http), "%s", t[i].http);
		snprintf(env.all, sizeof(env.all), "%s", t[i].all);
		snprintf(env.no, sizeof(env.no), "%s", t[i].env_no);
		assert_int_equal(proxy_choose(t[i].conf, t[i].no, &env, &url, &p, err), 0);
		assert_int_equal(p.kind == PROXY_NONE, t[i].host == NULL);
		if (t[i].host != NULL)
			assert_string_equal(p.host, t[i].host);
	}
	struct proxy_env env = { .https = "https://not-supported" };
	struct url url = url_of("wss://h.x/");
	struct proxy p;
	char err[URL_ERR_SIZE];

	assert_int_equal(proxy_choose("", "", &env, &url, &p, err), -EINVAL);
	assert_int_equal(proxy_choose("ftp://x", "*", &env, &url, &p, err), -EINVAL);
}

static void
environment(void **state)
{
	struct proxy_env env;

	setenv("https_proxy", "http://a", 1);
	setenv("HTTPS_PROXY", "http://b", 1);
	setenv("HTTP_PROXY", "http://evil", 1);
	unsetenv("http_proxy");
	setenv("ALL_PROXY", "http://c", 1);
	setenv("all_proxy", "", 1);
	setenv("NO_PROXY", "x", 1);
	unsetenv("no_proxy");
	assert_int_equal(proxy_env_read(&env), 0);
	assert_string_equal(env.https, "http://a");
	assert_string_equal(env.http, "");
	assert_string_equal(env.all, "http://c");
	assert_string_equal(env.no, "x");
}

static struct proxy_talk talk;

/* Plays the proxy: each answer is given once something was said. Returns the last result. */
static int
play(const char *proxy_text, const char *url_text, const char *const *answers, const size_t *lens, size_t n, size_t step)
{
	static struct proxy proxy;
	static struct url url;
	char err[URL_ERR_SIZE];
	int r = 0;

	assert_int_equal(proxy_parse(proxy_text, &proxy, err), 0);
	url = url_of(url_text);
	proxy_talk_start(&talk, &proxy, &url);
	for (size_t i = 0; i < n && r == 0; i++) {
		assert_true(talk.out_len > 0);
		talk.out_len = 0;
		for (size_t k = 0; k < lens[i] && r == 0; k += step) {
			size_t len = lens[i] - k < step ? lens[i] - k : step;

			r = proxy_talk_feed(&talk, (const uint8_t *)answers[i] + k, len);
		}
	}
	assert_null(strstr(talk.detail, CANARY));
	return r;
}

static void
test_b21_http(void **state)
{
	static const struct { const char *proxy, *answer; int want, status; bool auth; const char *says; } t[] = {
		{ "http://p", "HTTP/1.1 200 OK\r\n\r\n", 1, 0, false, "" },
		{ "http://p", "HTTP/1.0 200 Connection established\r\nContent-Length: 5\r\n\r\n", 1, 0, false, "" },
		{ "http://p", "HTTP/1.1 299 fine\r\n\r\n", 1, 0, false, "" },
		{ "http://p", "HTTP/1.1 200 OK\r\n\r\nextra", -EPROTO, 0, false, "more than its answer" },
		{ "http://p", "HTTP/1.1 403 Forbidden\r\n\r\n", -EPROTO, 403, false, "403" },
		{ "http://p", "HTTP/1.1 502 Bad\r\n\r\n", -EPROTO, 502, false, "502" },
		{ "http://p", "HTTP/1.1 302 Login\r\nLocation: http://portal\r\n\r\n", -EPROTO, 302, false, "302" },
		{ "http://p", "HTTP/1.1 100 Continue\r\n\r\n", -EPROTO, 100, false, "100" },
		{ "http://p", "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"r\"\r\n\r\n", -EPROTO, 407, true, "wants a user" },
		{ "http://u:" CANARY "@p", "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"r\"\r\n\r\n", -EPROTO, 407, true,
		    "refused the user" },
		{ "http://u:" CANARY "@p", "HTTP/1.1 407 x\r\nProxy-Authenticate: Negotiate\r\n\r\n", -EPROTO, 407, true,
		    "Negotiate; only Basic" },
		{ "http://p", "HTTP/1.1 407 x\r\nProxy-Authenticate: NTLM\r\nProxy-Authenticate: Digest x=1\r\n"
		    "Proxy-Authenticate: Basic\r\n\r\n", -EPROTO, 407, true, "wants a user" },
		{ "http://p", "HTTP/1.1 407 x\r\n\r\n", -EPROTO, 407, true, "nothing" },
		{ "http://p", "SSH-2.0\r\n", -EPROTO, 0, false, "not HTTP" },
		{ "http://p", "\x05\x00", -EPROTO, 0, false, "not HTTP" },
	};

	for (size_t i = 0; i < COUNT(t); i++)
		for (size_t step = 1; step < 60; step += 29) {
			size_t len = strlen(t[i].answer);

			/* What comes later than the answer cannot be told from the hub's own first words. */
			if (strstr(t[i].says, "more than") != NULL)
				step = 99;
			int r;

			r = play(t[i].proxy, "wss://hub.example/", &t[i].answer, &len, 1, step);

			if (r != t[i].want || strstr(talk.detail, t[i].says) == NULL)
				fail_msg("row %zu: %d, %s", i, r, talk.detail);
			assert_int_equal(talk.http_status, t[i].status);
			assert_int_equal(talk.auth_failed, t[i].auth);
		}
}

static void
test_b21_http_request(void **state)
{
	struct proxy proxy;
	struct url url = url_of("wss://[2001:db8::1]/secret-path");
	char err[URL_ERR_SIZE];

	assert_int_equal(proxy_parse("http://Aladdin:open%20sesame@p", &proxy, err), 0);
	proxy_talk_start(&talk, &proxy, &url);
	talk.out[talk.out_len] = '\0';
	/* The example of RFC 7617. */
	assert_string_equal((char *)talk.out, "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n"
	    "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n");
	proxy_talk_eof(&talk);
	assert_non_null(strstr(talk.detail, "without an answer"));
	assert_int_equal(proxy_talk_feed(&talk, (const uint8_t *)"H", 1), -EPROTO);
}

/* The longest of everything still fits. */
static void
longest(void **state)
{
	char text[800], user[127 * 3 + 1] = "", host[254];
	struct proxy proxy;
	struct url url;
	char err[URL_ERR_SIZE];

	for (unsigned i = 0; i < 127; i++)
		strcat(user, "%41");
	for (unsigned i = 0; i < 253; i++)
		host[i] = i % 50 == 49 ? '.' : 'h';
	host[253] = '\0';
	for (unsigned kind = 0; kind < 2; kind++) {
		snprintf(text, sizeof(text), "%s%s@p", kind ? "socks5://" : "http://", user);
		assert_int_equal(proxy_parse(text, &proxy, err), 0);
		memset(proxy.password, 'B', PROXY_SECRET_SIZE - 1);
		snprintf(text, sizeof(text), "wss://%s:65535/", host);
		url = url_of(text);
		proxy_talk_start(&talk, &proxy, &url);
		talk.out_len = 0;
		if (kind == 1) {
			assert_int_equal(proxy_talk_feed(&talk, (const uint8_t *)"\x05\x02", 2), 0);
			assert_int_equal(talk.out_len, 3 + 127 + 127);
			talk.out_len = 0;
			assert_int_equal(proxy_talk_feed(&talk, (const uint8_t *)"\x01\x00", 2), 0);
			assert_int_equal(talk.out_len, 4 + 1 + 253 + 2);
		}
	}
}

static void
test_b21_socks(void **state)
{
	static const struct { const char *proxy, *url, *a[3]; size_t len[3]; size_t n; int want; bool auth; const char *says; } t[] = {
		{ "socks5://p", "wss://h.x/", { "\5\0", "\5\0\0\1\1\2\3\4\0\1" }, { 2, 10 }, 2, 1, false, "" },
		{ "socks5://p", "wss://10.0.0.1/", { "\5\0", "\5\0\0\4" "0123456789abcdef\0\1" }, { 2, 22 }, 2, 1, false, "" },
		{ "socks5://p", "wss://[::1]/", { "\5\0", "\5\0\0\3\2hi\0\1" }, { 2, 9 }, 2, 1, false, "" },
		{ "socks5://u:" CANARY "@p", "wss://h.x/", { "\5\2", "\1\0", "\5\0\0\1\1\2\3\4\0\1" }, { 2, 2, 10 }, 3, 1, false, "" },
		{ "socks5://u:" CANARY "@p", "wss://h.x/", { "\5\0", "\5\0\0\1\1\2\3\4\0\1" }, { 2, 10 }, 2, 1, false, "" },
		{ "socks5://u:" CANARY "@p", "wss://h.x/", { "\5\2", "\1\1" }, { 2, 2 }, 2, -EPROTO, true, "refused the user" },
		{ "socks5://u:" CANARY "@p", "wss://h.x/", { "\5\2", "\5\0" }, { 2, 2 }, 2, -EPROTO, false, "malformed" },
		{ "socks5://p", "wss://h.x/", { "\5\377" }, { 2 }, 1, -EPROTO, true, "wants authentication" },
		{ "socks5://u:p@p", "wss://h.x/", { "\5\377" }, { 2 }, 1, -EPROTO, true, "neither" },
		{ "socks5://p", "wss://h.x/", { "\5\2" }, { 2 }, 1, -EPROTO, false, "nobody offered" },
		{ "socks5://p", "wss://h.x/", { "\4\0" }, { 2 }, 1, -EPROTO, false, "not speak SOCKS5" },
		{ "socks5://p", "wss://h.x/", { "HTTP/1.1 400" }, { 12 }, 1, -EPROTO, false, "not speak SOCKS5" },
		{ "socks5://p", "wss://h.x/", { "\5\0", "\5\0\0\2\1\2\3\4\0\1" }, { 2, 10 }, 2, -EPROTO, false, "malformed" },
		{ "socks5://p", "wss://h.x/", { "\5\0", "\5\0\1\1\1\2\3\4\0\1" }, { 2, 10 }, 2, -EPROTO, false, "malformed" },
		{ "socks5://p", "wss://h.x/", { "\5\0", "\5\0\0\1\1\2\3\4\0\1X" }, { 2, 11 }, 2, -EPROTO, false, "more than" },
		{ "socks5://p", "wss://h.x/", { "\5\0", "\5\11\0\1\0\0\0\0\0\0" }, { 2, 10 }, 2, -EPROTO, false, "unassigned" },
	};
	static const char *const says[] = { "general", "rules", "network", "host", "refused", "time", "command", "type" };

	for (size_t i = 0; i < COUNT(t); i++)
		for (size_t step = strstr(t[i].says, "more than") != NULL ? 29 : 1; step < 30; step += 28) {
			int r = play(t[i].proxy, t[i].url, t[i].a, t[i].len, t[i].n, step);

			if (r != t[i].want || strstr(talk.detail, t[i].says) == NULL)
				fail_msg("row %zu: %d, %s", i, r, talk.detail);
			assert_int_equal(talk.auth_failed, t[i].auth);
		}
	for (unsigned code = 1; code <= 8; code++) {
		char reply[10] = { 5, (char)code, 0, 1 };
		const char *a[2] = { "\5\0", reply };
		const size_t len[2] = { 2, 10 };

		assert_int_equal(play("socks5://p", "wss://h.x/", a, len, 2, 99), -EPROTO);
		assert_non_null(strstr(talk.detail, says[code - 1]));
	}
	/* Cut after each byte: never through, and the sentence says where it stood. */
	for (size_t cut = 0; cut < 10; cut++) {
		const size_t len[2] = { 2, cut };

		assert_int_equal(play("socks5://p", "wss://h.x/", t[0].a, len, 2, 99), 0);
		proxy_talk_eof(&talk);
		assert_non_null(strstr(talk.detail, "closed the connection"));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parsing), cmocka_unit_test(exceptions), cmocka_unit_test(choosing),
		cmocka_unit_test(environment), cmocka_unit_test(longest), cmocka_unit_test(test_b21_http),
		cmocka_unit_test(test_b21_http_request), cmocka_unit_test(test_b21_socks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
