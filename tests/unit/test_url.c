#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "connectd/url.h"
#include "tests/unit/unit.h"

static void
accepted(void **state)
{
	static const struct { const char *text, *host; uint16_t port; const char *path, *authority; bool tls, ip, loopback; } t[] = {
		{ "wss://hub.example/api/executors/connect", "hub.example", 443, "/api/executors/connect", "hub.example",
		    true, false, false },
		{ "HTTPS://Hub.Example:8443", "hub.example", 8443, "/", "hub.example:8443", true, false, false },
		{ "ws://127.0.0.1:80/x?y=%41", "127.0.0.1", 80, "/x?y=%41", "127.0.0.1", false, true, true },
		{ "http://[::1]:9/", "::1", 9, "/", "[::1]:9", false, true, true },
		{ "wss://[2001:DB8:0:0::1]?q", "2001:db8::1", 443, "/?q", "[2001:db8::1]", true, true, false },
		{ "ws://a.localhost/", "a.localhost", 80, "/", "a.localhost", false, false, true },
		{ "ws://localhost", "localhost", 80, "/", "localhost", false, false, true },
		{ "ws://notlocalhost/", "notlocalhost", 80, "/", "notlocalhost", false, false, false },
		{ "ws://localhost.evil/", "localhost.evil", 80, "/", "localhost.evil", false, false, false },
		{ "ws://127.0.0.1.evil/", "127.0.0.1.evil", 80, "/", "127.0.0.1.evil", false, false, false },
		{ "ws://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1", 80, "/", "[::ffff:127.0.0.1]", false, true, false },
		{ "wss://a_b-c.d1:65535/", "a_b-c.d1", 65535, "/", "a_b-c.d1:65535", true, false, false },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		struct url url;
		char err[URL_ERR_SIZE], authority[URL_AUTHORITY_SIZE];

		if (url_parse(t[i].text, &url, err) < 0)
			fail_msg("%s: %s", t[i].text, err);
		url_authority(&url, false, authority);
		assert_string_equal(url.host, t[i].host);
		assert_string_equal(url.path, t[i].path);
		assert_string_equal(authority, t[i].authority);
		assert_int_equal(url.port, t[i].port);
		assert_int_equal(url.tls, t[i].tls);
		assert_int_equal(url.ip, t[i].ip);
		assert_int_equal(url_is_loopback(&url), t[i].loopback);
	}
}

static void
refused(void **state)
{
	static const char *const t[] = {
		"", "hub.example", "ftp://a/", "wss:/a", "wss://", "wss:///x", "wss://:443/", "wss://user@hub/",
		"wss://user:secret@hub/", "wss://hub:0/", "wss://hub:65536/", "wss://hub:/", "wss://hub:44x/",
		"wss://hub:+1/", "wss://hub/#frag", "wss://hub#frag", "wss://a b/", "wss://hub/a b", "wss://hub/%4",
		"wss://hub/%zz", "wss://hub/\x01", "wss://hub/\xc3\xa9", ("wss://h\xc3\xbc" "b/"), "wss://[::1", "wss://[::1]x/",
		"wss://[1.2.3.4]/", "wss://[fe80::1%eth0]/", "wss://::1/", "wss://127.1/", "wss://1/", "wss://0x7f.1/",
		"wss://1.2.3.400/", "wss://01.2.3.4/", "wss://a..b/", "wss://.a/", "wss://a./", "wss://-a/", "wss://a-/",
		"wss://hub/\"", "wss://hub\\evil/", " wss://hub/", "wss://hub:443:443/",
		"wss://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/",
	};
	char big[3000];

	for (size_t i = 0; i < COUNT(t); i++) {
		struct url url;
		char err[URL_ERR_SIZE] = "";

		if (url_parse(t[i], &url, err) != -EINVAL || err[0] == '\0')
			fail_msg("taken: %s", t[i]);
		assert_null(strstr(err, "secret"));
	}
	for (int path = 0; path < 2; path++) {
		struct url url;
		char err[URL_ERR_SIZE];
		int n = snprintf(big, sizeof(big), path ? "wss://hub/" : "wss://");

		for (size_t i = (size_t)n; i < sizeof(big) - 1; i++)
			big[i] = path || i % 50 != 0 ? 'a' : '.';
		big[sizeof(big) - 1] = '\0';
		assert_int_equal(url_parse(big, &url, err), -EINVAL);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(accepted), cmocka_unit_test(refused) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
