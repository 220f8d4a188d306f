/*
 * What TLS verifies, by whole connections: chain, name, pins, and dates at the time that connectd takes for now.
 *
 * B26, B28: a clock that cannot be right. Where the kind can occur: the one place that gives OpenSSL a time is
 * tls_start(); the floor it takes is the caller's (saved time, build time), the maximum of both and the clock is made in
 * tls_check_time().
 */
#include <errno.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "connectd/pin.h"
#include "connectd/tls.h"
#include "tests/unit/netrig.h"
#include "tests/unit/unit.h"

static struct netrig rig;

/* One attempt; the code it ended with, "" when it opened. */
static const char *
attempt(SSL_CTX *tls, const char *host, const char *pins, int64_t floor_s)
{
	static char code[32];

	rig.hub.tls = tls;
	netrig_prepare(&rig, "wss", host);
	rig.params.pins = pins;
	rig.params.min_wall_ns = floor_s * 1000000000;
	assert_int_equal(netrig_start(&rig), 0);
	for (unsigned i = 0; i < 5000 && rig.opened + rig.ended == 0; i++)
		loop_turn(rig.loop, 5);
	snprintf(code, sizeof(code), "%s", rig.ended > 0 ? rig.end.code : "");
	assert_int_equal(rig.opened + rig.ended, 1);
	if (rig.ended > 0) {
		assert_int_equal(rig.end.cause, HUBCONN_TLS_FAILED);
		assert_true(rig.end.answered);
		assert_true(strlen(rig.end.detail) > 20);
	}
	netrig_cancel(&rig);
	return code;
}

static void
trust_and_names(void **state)
{
	int64_t now = time(NULL);
	static const struct { const char *san, *host; bool stranger; const char *want; } t[] = {
		{ "DNS:localhost", "localhost", false, "" }, { "DNS:localhost", "LOCALHOST", false, "" },
		{ "DNS:hub.localhost", "localhost", false, "tls-name" }, { "DNS:localhost", "127.0.0.1", false, "tls-name" },
		{ "IP:127.0.0.1", "127.0.0.1", false, "" }, { "IP:127.0.0.2", "127.0.0.1", false, "tls-name" },
		/* An address is never matched by a name that looks like it. */
		{ "DNS:127.0.0.1", "127.0.0.1", false, "tls-name" },
		{ "DNS:*.x.localhost", "a.x.localhost", false, "" }, { "DNS:*.x.localhost", "a.b.x.localhost", false, "tls-name" },
		{ "DNS:a*.x.localhost", "ab.x.localhost", false, "tls-name" }, { "DNS:localhost", "localhost", true, "tls-untrusted" },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		SSL_CTX *tls = testca_server(t[i].stranger ? NULL : rig.ca, t[i].san, now - 60, now + 60, NULL);
		const char *code = attempt(tls, t[i].host, "", 0);

		if (strcmp(code, t[i].want) != 0)
			fail_msg("%s for %s: \"%s\"", t[i].san, t[i].host, code);
		SSL_CTX_free(tls);
	}
}

static void
pins(void **state)
{
	char good[PIN_TEXT_SIZE], both[2 * PIN_TEXT_SIZE + 8];
	static const char bad[] = "sha256:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

	pin_format(rig.pin, good);
	snprintf(both, sizeof(both), "%s, %s", bad, good);
	assert_string_equal(attempt(rig.tls, "localhost", good, 0), "");
	assert_string_equal(attempt(rig.tls, "localhost", both, 0), "");
	assert_string_equal(attempt(rig.tls, "localhost", bad, 0), "tls-pin");
	/* The sentence shows the key that was seen, so that an operator can compare. */
	assert_non_null(strstr(rig.end.detail, good));
	/* A pin never makes up for a chain or a name. */
	assert_string_equal(attempt(rig.stranger, "localhost", good, 0), "tls-untrusted");
	assert_string_equal(attempt(rig.tls, "a.localhost", good, 0), "tls-name");
}

#define DAY	86400
#define Y2024	1704067200LL
#define Y2025	1735689600LL
#define Y2026	1767225600LL
#define Y2099	4070908800LL

static void
test_b28_time_for_certificates(void **state)
{
	/* floor: the later of saved and build time. */
	static const struct { int64_t clock, floor, from, to; const char *want; } t[] = {
		{ Y2025, Y2024, Y2024, Y2026, "" },
		{ 1, Y2025, Y2024, Y2026, "" },				/* 1970, saved time inside */
		{ 1, 1, Y2024, Y2026, "tls-not-yet-valid" },		/* 1970 and nothing better known */
		{ 1, Y2025, Y2024, Y2025 - DAY, "tls-expired" },	/* expired before the saved time, whatever the clock says */
		{ 1, Y2024, Y2025, Y2026, "tls-not-yet-valid" },
		{ Y2099, Y2025, Y2024, Y2026, "tls-expired" },
		{ Y2025 - DAY, Y2025, Y2025 - 60, Y2026, "" },		/* the clock went back a day */
		{ Y2026 + DAY, Y2024, Y2024, Y2026, "tls-expired" },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		SSL_CTX *tls = testca_server(rig.ca, "DNS:localhost", t[i].from, t[i].to, NULL);
		const char *code;

		netrig_set_wall(t[i].clock);
		code = attempt(tls, "localhost", "", t[i].floor);
		if (strcmp(code, t[i].want) != 0)
			fail_msg("row %zu: \"%s\"", i, code);
		/* B26: the sentence says which day this device believes in. */
		if (code[0] != '\0')
			assert_non_null(strstr(rig.end.detail, "check its clock"));
		SSL_CTX_free(tls);
	}
	netrig_set_wall(0);
	assert_true(tls_check_time(5000000000, 3000000000) == 5);
	assert_true(tls_check_time(3000000000, 5000000000) == 5);
}

static void
old_protocols(void **state)
{
	int64_t now = time(NULL);
	static const struct { int max; const char *ciphers; const char *want; } t[] = {
		{ TLS1_3_VERSION, NULL, "" }, { TLS1_2_VERSION, NULL, "" }, { TLS1_1_VERSION, NULL, "tls" },
		{ TLS1_2_VERSION, "ECDHE-ECDSA-AES128-SHA256", "tls" },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		SSL_CTX *tls = testca_server(rig.ca, "DNS:localhost", now - 60, now + 60, NULL);

		SSL_CTX_set_min_proto_version(tls, 0);
		SSL_CTX_set_max_proto_version(tls, t[i].max);
		SSL_CTX_set_security_level(tls, 0);
		if (t[i].ciphers != NULL)
			SSL_CTX_set_cipher_list(tls, t[i].ciphers);
		if (strcmp(attempt(tls, "localhost", "", 0), t[i].want) != 0)
			fail_msg("row %zu: %s", i, rig.end.detail);
		SSL_CTX_free(tls);
	}
}

static void
trust_files(void **state)
{
	struct tls_trust *trust;
	char err[200], path[] = "/tmp/edgeward-test-junk.XXXXXX";
	int fd = mkstemp(path);

	assert_true(fd >= 0 && write(fd, "junk\n", 5) == 5);
	close(fd);
	assert_int_equal(tls_trust_new("", &trust, err), 0);
	tls_trust_free(trust);
	assert_int_equal(tls_trust_new(rig.ca_file, &trust, err), 0);
	tls_trust_free(trust);
	assert_int_equal(tls_trust_new("/nonexistent/ca.pem", &trust, err), -EINVAL);
	assert_non_null(strstr(err, "cannot be read: No such file"));
	assert_int_equal(tls_trust_new(path, &trust, err), -EINVAL);
	assert_non_null(strstr(err, "no certificate"));
	unlink(path);
}

/* The system's trust is a hashed directory, looked up when it is needed: a root that arrives later counts. */
static void
system_directory(void **state)
{
	char dir[] = "/tmp/edgeward-test-roots.XXXXXX", path[96];
	struct netenv *saved = rig.env;
	char err[200];
	FILE *f;
	X509 *root;

	f = fopen(rig.ca_file, "r");
	assert_non_null(f);
	root = PEM_read_X509(f, NULL, NULL, NULL);
	fclose(f);
	assert_non_null(root);
	assert_non_null(mkdtemp(dir));
	setenv("SSL_CERT_DIR", dir, 1);
	unsetenv("SSL_CERT_FILE");
	/* Something hashed is in it, so that no bundle is loaded instead. */
	snprintf(path, sizeof(path), "%s/00000000.0", dir);
	f = fopen(path, "w");
	assert_true(f != NULL && fclose(f) == 0);
	assert_int_equal(netenv_new(rig.loop, "", &rig.env, err), 0);
	assert_string_equal(attempt(rig.tls, "localhost", "", 0), "tls-untrusted");
	unlink(path);
	snprintf(path, sizeof(path), "%s/%08lx.0", dir, X509_subject_name_hash(root));
	f = fopen(path, "w");
	assert_true(f != NULL && PEM_write_X509(f, root) == 1 && fclose(f) == 0);
	assert_string_equal(attempt(rig.tls, "localhost", "", 0), "");
	netenv_free(rig.env);
	rig.env = saved;
	unlink(path);
	rmdir(dir);
	unsetenv("SSL_CERT_DIR");
	X509_free(root);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trust_and_names), cmocka_unit_test(pins), cmocka_unit_test(test_b28_time_for_certificates),
		cmocka_unit_test(old_protocols), cmocka_unit_test(trust_files), cmocka_unit_test(system_directory),
	};

	return netrig_run(&rig, NULL, tests, COUNT(tests));
}
