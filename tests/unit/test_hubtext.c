/* base64, RFC 3339 and UTF-8. B36: the validator agrees with a table-driven reference on every input it is given. */
#include <errno.h>
#include <string.h>

#include "proto/hub/base64.h"
#include "proto/hub/rfc3339.h"
#include "proto/hub/utf8.h"
#include "tests/unit/unit.h"

static void
base64(void **state)
{
	static const struct { const char *plain, *enc; } t[] = {
		{ "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" }, { "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "\xff\xfe\xfd", "//79" },
	};
	static const char *const bad[] = { "A", "A===", "Zg=", "Zh==", "Zm9v====", "Z g=", "+_aa", "Zg==Zg==", "====", "\xff\xff\xff\xff" };
	char enc[64];
	uint8_t dec[64];
	size_t n;

	for (size_t i = 0; i < COUNT(t); i++) {
		size_t len = strlen(t[i].plain);

		assert_int_equal(base64_encode(enc, t[i].plain, len), strlen(t[i].enc));
		assert_string_equal(enc, t[i].enc);
		assert_int_equal(base64_decode(dec, sizeof(dec), enc, strlen(enc), &n), 0);
		assert_int_equal(n, len);
		assert_memory_equal(dec, t[i].plain, len);
		base64url_encode(enc, t[i].plain, len);
		assert_null(strpbrk(enc, "+/="));
		assert_int_equal(base64_decode(dec, sizeof(dec), enc, strlen(enc), &n), 0);
		assert_int_equal(n, len);
	}
	for (size_t i = 0; i < COUNT(bad); i++)
		if (base64_decode(dec, sizeof(dec), bad[i], strlen(bad[i]), &n) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
	assert_int_equal(base64_decode(dec, 2, "Zm9v", 4, &n), -ENOSPC);
}

static void
rfc3339(void **state)
{
	static const struct { const char *s; int64_t ns; } good[] = {
		{ "1970-01-01T00:00:01Z", 1000000000 }, { "0001-01-01T00:00:00Z", 0 },
		{ "2026-10-05T08:00:00.123456789Z", 1791187200123456789 }, { "2026-10-05T10:00:00.5+02:00", 1791187200500000000 },
		{ "1969-12-31T23:59:59.9Z", -100000000 }, { "2024-02-29t00:00:00z", 1709164800000000000 },
		{ "9999-12-31T23:59:59Z", 0 },
	};
	static const char *const bad[] = { "", "2026", "2026-13-01T00:00:00Z", "2026-01-01 00:00:00Z", "2026-01-01T00:00:00",
		"2026-01-01T24:00:00Z", "2026-01-01T00:00:00.Z", "2026-01-01T00:00:00Zx", "2026-01-00T00:00:00Z", "2026-01-01T00:00:00+2:00" };
	char buf[RFC3339_SIZE];
	int64_t ns;

	for (size_t i = 0; i < COUNT(good); i++) {
		assert_int_equal(rfc3339_parse(good[i].s, &ns), 0);
		if (ns != good[i].ns)
			fail_msg("%s: %lld", good[i].s, (long long)ns);
		if (ns != 0) {
			assert_int_equal(rfc3339_parse(rfc3339_format(ns, buf), &ns), 0);
			assert_true(ns == good[i].ns);
		}
	}
	assert_string_equal(rfc3339_format(0, buf), "0001-01-01T00:00:00Z");
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(rfc3339_parse(bad[i], &ns), -EINVAL);
	for (ns = INT64_MIN; ns < INT64_MAX - 86400000000001 * 7919; ns += 86400000000001 * 7919) {
		int64_t again = 1;

		assert_int_equal(rfc3339_parse(rfc3339_format(ns, buf), &again), 0);
		assert_true(again == ns || again == 0);
	}
}

/* The table of RFC 3629, section 4, by ranges: the reference. Length of a valid sequence at s, else 0. */
static size_t
reference(const uint8_t *s, size_t len)
{
	static const struct { uint8_t n, r[8]; } t[] = {
		{ 1, { 0x00, 0x7f } }, { 2, { 0xc2, 0xdf, 0x80, 0xbf } }, { 3, { 0xe0, 0xe0, 0xa0, 0xbf, 0x80, 0xbf } },
		{ 3, { 0xe1, 0xec, 0x80, 0xbf, 0x80, 0xbf } }, { 3, { 0xed, 0xed, 0x80, 0x9f, 0x80, 0xbf } },
		{ 3, { 0xee, 0xef, 0x80, 0xbf, 0x80, 0xbf } }, { 4, { 0xf0, 0xf0, 0x90, 0xbf, 0x80, 0xbf, 0x80, 0xbf } },
		{ 4, { 0xf1, 0xf3, 0x80, 0xbf, 0x80, 0xbf, 0x80, 0xbf } }, { 4, { 0xf4, 0xf4, 0x80, 0x8f, 0x80, 0xbf, 0x80, 0xbf } },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		size_t k = 0;

		while (k < t[i].n && k < len && s[k] >= t[i].r[2 * k] && s[k] <= t[i].r[2 * k + 1])
			k++;
		if (k == t[i].n)
			return k;
	}
	return 0;
}

static void
compare(const uint8_t *s, size_t len)
{
	uint8_t copy[8], want[8];
	size_t i = 0, partial;

	memcpy(copy, s, len);
	memcpy(want, s, len);
	while (i < len) {
		size_t n = reference(s + i, len - i);

		if (n == 0)
			want[i++] = '?';
		i += n;
	}
	utf8_sanitize(copy, len);
	assert_memory_equal(copy, want, len);
	for (i = 0; i < len && reference(s + i, len - i) > 0; i += reference(s + i, len - i))
		;
	assert_int_equal(utf8_valid_prefix(s, len, &partial), i);
	/* a partial sequence is one that some bytes can complete */
	if (partial > 0)
		assert_int_equal(i + partial, len);
}

static void
b36_utf8_agrees_with_reference(void **state)
{
	static const uint8_t edge[] = { 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff };
	uint8_t s[4];

	for (unsigned a = 0; a < 256; a++) {
		s[0] = (uint8_t)a;
		compare(s, 1);
		for (unsigned b = 0; b < 256; b++) {
			s[1] = (uint8_t)b;
			compare(s, 2);
		}
	}
	for (unsigned i = 0; i < COUNT(edge) * COUNT(edge) * COUNT(edge) * COUNT(edge); i++) {
		s[0] = edge[i % COUNT(edge)];
		s[1] = edge[i / COUNT(edge) % COUNT(edge)];
		s[2] = edge[i / COUNT(edge) / COUNT(edge) % COUNT(edge)];
		s[3] = edge[i / COUNT(edge) / COUNT(edge) / COUNT(edge)];
		compare(s, 3);
		compare(s, 4);
	}
}

static void
b36_partial_sequences(void **state)
{
	static const struct { const char *s; size_t valid, partial; } t[] = {
		{ "abc", 3, 0 }, { "a\xc3", 1, 1 }, { "a\xe2\x82", 1, 2 }, { "a\xf0\x9f\x98", 1, 3 }, { "a\xf0\x8f", 1, 0 },
		{ "a\xed\xa0", 1, 0 }, { "\xff", 0, 0 }, { "12345678\xc3", 8, 1 }, { "", 0, 0 },
	};

	for (size_t i = 0; i < COUNT(t); i++) {
		size_t partial;

		assert_int_equal(utf8_valid_prefix((const uint8_t *)t[i].s, strlen(t[i].s), &partial), t[i].valid);
		assert_int_equal(partial, t[i].partial);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(base64),
		cmocka_unit_test(rfc3339),
		cmocka_unit_test(b36_utf8_agrees_with_reference),
		cmocka_unit_test(b36_partial_sequences),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
