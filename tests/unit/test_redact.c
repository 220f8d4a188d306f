/*
 * The automaton against a naive search, and the spellings of values one by one (B43). Where the fault could occur: spelling.c (a
 * spelling too few), redact.c (a border between two reads, overlapping values, the skip table, what is held back).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"
#include "workerd/redact.h"
#include "workerd/spelling.h"

#define OUT_MAX	(1u << 16)

struct plan {
	const struct redact *r;
	struct redact_scan scan;
	uint8_t out[OUT_MAX];
	size_t n;
};

static struct redact *
make(const char *const *values, size_t n)
{
	struct redact_value v[16];
	struct redact *r;
	size_t dropped = 9;

	for (size_t i = 0; i < n; i++)
		v[i] = (struct redact_value){ (const uint8_t *)values[i], strlen(values[i]) };
	assert_int_equal(redact_new(v, n, &r, &dropped), 0);
	assert_int_equal(dropped, 0);
	return r;
}

/* Feeds text in pieces of step bytes; resume: the reader is killed after each and goes on from what it noted. */
static void
feed(struct plan *p, const char *text, size_t len, size_t step, size_t room, bool resume)
{
	size_t have = 0;

	while (have < len) {
		uint64_t before;

		have = have + step < len ? have + step : len;
		do {
			size_t size = room < OUT_MAX - p->n ? room : OUT_MAX - p->n;
			ssize_t got;

			before = p->scan.out;
			got = redact_run(p->r, &p->scan, (const uint8_t *)text + p->scan.from, have - p->scan.from, p->out + p->n, size);
			assert_true(got >= 0 && (size_t)got <= size);
			p->n += (size_t)got;
			if (resume) {
				struct redact_scan again = { .from = p->scan.from, .at = p->scan.from, .out = p->scan.out, .masked = p->scan.masked };

				redact_scan_done(&p->scan);
				p->scan = again;
			}
		} while (p->scan.out != before);
	}
	for (ssize_t got = 1; got > 0; p->n += (size_t)got) {
		got = redact_run(p->r, &p->scan, (const uint8_t *)text + p->scan.from, len - p->scan.from, p->out + p->n, OUT_MAX - p->n);
		assert_true(got >= 0);
		p->n += (size_t)got;
		got = redact_flush(p->r, &p->scan, (const uint8_t *)text + p->scan.from, true, p->out + p->n, OUT_MAX - p->n);
		assert_true(got >= 0);
	}
	assert_true(redact_is_idle(&p->scan));
	redact_scan_done(&p->scan);
}

static void
expect(const struct redact *r, const char *text, const char *want)
{
	static const size_t rooms[] = { OUT_MAX, REDACT_MARK_LEN, 64 };
	static struct plan p;

	for (size_t step = 1; step <= strlen(text); step++)
		for (unsigned k = 0; k < 6; k++) {
			p = (struct plan){ .r = r };
			feed(&p, text, strlen(text), step, rooms[k % 3], k >= 3);
			p.out[p.n] = '\0';
			assert_string_equal((char *)p.out, want);
		}
}

static void
values_and_borders(void **state)
{
	static const char *const values[] = { "hunter2-long", "abcdef", "abcdefghij", "cdefghXYZ" };
	struct redact *r = make(values, 4);

	expect(r, "nothing here", "nothing here");
	expect(r, "is hunter2-long.", "is [redacted].");
	expect(r, "hunter2-lonhunter2-long", "hunter2-lon[redacted]");
	expect(r, "hunter2-longhunter2-long", "[redacted][redacted]");
	expect(r, "xabcdefx abcdefghij abcdefghi", "x[redacted]x [redacted] [redacted]ghi");
	expect(r, "abcdefghXYZ.", "[redacted].");		/* two that overlap */
	expect(r, "ends with hunter", "ends with hunter");	/* a beginning too short to tell anything */
	expect(r, "ends with hunter2-lon", "ends with [redacted]");
	redact_free(r);
}

/* Every spelling of a value with everything in it, in the middle of ordinary text. */
static void
every_spelling(void **state)
{
	static const char value[] = "s3cret 'q\"u\\o/te' <tag>&\n\tline two=\xc3\xa9\x01 end\n";
	static const char *const values[] = { value };
	struct redact *r = make(values, 1);
	size_t room = spelling_room(sizeof(value));
	uint8_t *buf = malloc(room);
	static struct plan p;
	char text[2048];

	assert_non_null(buf);
	for (unsigned which = 0; which < SPELLINGS; which++) {
		size_t n = spelling_make(which, (const uint8_t *)value, sizeof(value) - 2, buf), len = 7;

		assert_true(n >= REDACT_MIN && n <= room && n < 1000);
		memcpy(text, "before ", 7);
		memcpy(text + len, buf, n);
		len += n;
		memcpy(text + len, " after", 6);
		len += 6;
		p = (struct plan){ .r = r };
		feed(&p, text, len, 5, OUT_MAX, false);
		p.out[p.n] = '\0';
		if (strcmp((char *)p.out, "before [redacted] after") != 0)
			fail_msg("spelling %u: %s", which, (char *)p.out);
	}
	free(buf);
	redact_free(r);
}

static void
known_spellings(void **state)
{
	static const struct { unsigned which; const char *value, *want; } rows[] = {
		{ 1, "a\nb", "a\r\nb" }, { 2, "a\r\nb", "a\nb" }, { 3, "a\nb", "ab" }, { 4, "a\nb", "a b" }, { 5, "a\"\n\x01", "a\\\"\\n\\u0001" },
		{ 6, "a/b", "a\\/b" }, { 7, "<&>", "\\u003c\\u0026\\u003e" }, { 8, "\xc3\xa9\xf0\x9f\x98\x80", "\\u00e9\\ud83d\\ude00" },
		{ 9, "\x01\xff'", "\\x01\\xff'" }, { 10, "\x01\xff", "\\001\\377" }, { 11, "'\"", "\\'\"" }, { 12, "a\"", "a\\\\\\\"" },
		{ 13, "a b/\xc3\xa9", "a%20b%2F%C3%A9" }, { 14, "a/b", "a%2fb" }, { 15, "a b", "a+b" }, { 16, "a b/", "a+b%2f" },
		{ 17, "a/b c", "a/b%20c" }, { 18, "\xff/", "%ff/" }, { 19, "(a b)!", "(a%20b)!" }, { 20, "it's", "it'\\''s" },
		{ 21, "a b$", "a\\ b\\$" }, { 22, "abc", "YWJj" }, { 23, "abc", "FiY" }, { 24, "abc", "hYm" }, { 25, "\xff\xef\xff", "_-__" },
		{ 29, "\x01\xab", "01ab" }, { 30, "\x01\xab", "01AB" }, { 38, "\xc3\xa9", "\\\\u00e9" },
	};
	uint8_t buf[4096];

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		size_t n = spelling_make(rows[i].which, (const uint8_t *)rows[i].value, strlen(rows[i].value), buf);

		buf[n] = '\0';
		assert_string_equal((char *)buf, rows[i].want);
	}
}

/*
 * What other programs print of one value, taken from them and not from spelling.c: the writers of JSON of PHP, Gson, .NET, Flask and Go,
 * one that has only \\u; forms as URLSearchParams, PHP and .NET send them, encodeURI(), PathEscape() of Go, and every byte.
 */
static void
as_others_print_it(void **state)
{
	static const char value[] = "tok/Ab+c~e*f=g&j!k<Z\xc3\xa4\"w'(7)";
	static const char *const values[] = { value };
	static const char *const printed[] = {
		"tok\\/Ab+c~e*f=g&j!k<Z\\u00e4\\\"w'(7)", "tok/Ab+c~e*f\\u003dg\\u0026j!k\\u003cZ\xc3\xa4\\\"w\\u0027(7)",
		"tok/Ab\\u002Bc~e*f=g\\u0026j!k\\u003CZ\\u00E4\\u0022w\\u0027(7)", "tok/Ab+c~e*f=g\\u0026j!k\\u003cZ\\u00e4\\\"w\\u0027(7)",
		"tok/Ab+c~e*f=g\\u0026j!k\\u003cZ\\u00e4\\\"w'(7)", "tok/Ab+c~e*f=g&j!k<Z\\u00E4\\\"w'(7)",
		"\\u0074\\u006f\\u006b\\u002f\\u0041\\u0062\\u002b\\u0063\\u007e\\u0065\\u002a\\u0066\\u003d\\u0067\\u0026\\u006a\\u0021\\u006b\\u003c"
		"\\u005a\\u00e4\\u0022\\u0077\\u0027\\u0028\\u0037\\u0029",
		"tok%2FAb%2Bc%7Ee*f%3Dg%26j%21k%3CZ%C3%A4%22w%27%287%29", "tok%2FAb%2Bc%7Ee%2Af%3Dg%26j%21k%3CZ%C3%A4%22w%27%287%29",
		"tok%2fAb%2bc%7ee*f%3dg%26j!k%3cZ%c3%a4%22w%27(7)", "tok/Ab+c~e*f=g&j!k%3CZ%C3%A4%22w'(7)",
		"tok%2FAb+c~e%2Af=g&j%21k%3CZ%C3%A4%22w%27%287%29",
		"%74%6F%6B%2F%41%62%2B%63%7E%65%2A%66%3D%67%26%6A%21%6B%3C%5A%C3%A4%22%77%27%28%37%29",
		"%74%6f%6b%2f%41%62%2b%63%7e%65%2a%66%3d%67%26%6a%21%6b%3c%5a%c3%a4%22%77%27%28%37%29",
	};
	struct redact *r = make(values, 1);

	for (size_t i = 0; i < sizeof(printed) / sizeof(printed[0]); i++) {
		static struct plan p;

		p = (struct plan){ .r = r };
		feed(&p, printed[i], strlen(printed[i]), 5, OUT_MAX, false);
		p.out[p.n] = '\0';
		assert_string_equal((char *)p.out, REDACT_MARK);
	}
	redact_free(r);
}

/* Something stands before it and behind it, as in a file of settings: it may be broken at any group of a line. */
static void
in_lines_of_base64(void **state)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	static const char *const values[] = { "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "short1", "a value that is longer than a line of 76 characters "
	    "is when it is printed, which is what makes it break twice; and it goes on for a while" };
	struct redact *r = make(values, 3);
	static struct plan p;

	for (size_t before = 0; before < 180; before++) {
		size_t width = before % 2 == 0 ? 76 : 64, len = strlen(values[before % 3]), from, to, n = 0, at;
		char text[1024], raw[512];

		memset(raw, 'p', sizeof(raw));
		memcpy(raw + before, values[before % 3], len);
		for (size_t i = 0; i < (before + len + 30) / 3 * 4; i++) {
			uint32_t bits = (uint32_t)(uint8_t)raw[i / 4 * 3] << 16 | (uint32_t)(uint8_t)raw[i / 4 * 3 + 1] << 8 | (uint8_t)raw[i / 4 * 3 + 2];

			if (i > 0 && i % width == 0)
				text[n++] = '\n';
			text[n++] = alphabet[bits >> (18 - 6 * (i % 4)) & 63];
		}
		from = (8 * before + 5) / 6;		/* the characters that are of the value alone */
		to = 8 * (before + len) / 6 - 1;
		from += from / width;
		to += to / width;
		p = (struct plan){ .r = r };
		feed(&p, text, n, 11, OUT_MAX, false);
		at = (size_t)((uint8_t *)memmem(p.out, p.n, REDACT_MARK, REDACT_MARK_LEN) - p.out);
		if (p.n != n - (to - from + 1) + REDACT_MARK_LEN || at != from)
			fail_msg("behind %zu bytes, in lines of %zu: %.*s", before, width, (int)p.n, (char *)p.out);
	}
	redact_free(r);
}

/* What `base64` and `openssl base64` print of a long value has newlines in it. */
static void
wrapped_base64(void **state)
{
	static char value[301];
	static const char *const values[] = { value };
	uint8_t buf[8192];
	struct redact *r;
	static struct plan p;

	for (size_t i = 0; i < 300; i++)
		value[i] = (char)('!' + i * 7 % 90);
	r = make(values, 1);
	for (unsigned which = 28; which <= 31; which += 3) {
		size_t n = spelling_make(which, (const uint8_t *)value, 300, buf);

		assert_ptr_equal(memchr(buf, '\n', n), buf + (which == 28 ? 76 : 64));
		p = (struct plan){ .r = r };
		feed(&p, (const char *)buf, n, 7, OUT_MAX, false);
		assert_int_equal(p.n, REDACT_MARK_LEN);
	}
	redact_free(r);
}

static void
lines_of_a_key(void **state)
{
	static const char *const values[] = { "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nEFAASCBKcwggSjAgEAAoIBAQ==\n-----END KEY-----\n" };
	struct redact *r = make(values, 1);

	expect(r, "  MIIEvQIBADANBgkqhkiG9w0BAQ\n -----BEGIN KEY-----", "  [redacted]\n [redacted]");
	expect(r, "-----BEGIN CERTIFICATE-----\nx", "-----BEGIN CERTIFICATE-----\nx");
	redact_free(r);
}

/* The writer pauses inside a value: little of it may be shown, and the rest is still masked; much of it is not. */
static void
silence(void **state)
{
	static const char *const values[] = { "hunter2-long" };
	struct redact *r = make(values, 1);
	struct redact_scan s = { 0 };
	uint8_t out[64];
	const uint8_t *text = (const uint8_t *)"say hunter2-long.";

	assert_int_equal(redact_run(r, &s, text, 8, out, sizeof(out)), 4);	/* "hunt" is held */
	assert_false(redact_is_idle(&s));
	assert_int_equal(redact_flush(r, &s, text + s.from, false, out, sizeof(out)), 4);
	assert_memory_equal(out, "hunt", 4);
	assert_true(redact_is_idle(&s));
	assert_int_equal(redact_run(r, &s, text + s.from, 17 - s.from, out, sizeof(out)), REDACT_MARK_LEN + 1);
	assert_memory_equal(out, REDACT_MARK ".", REDACT_MARK_LEN + 1);
	redact_scan_done(&s);
	assert_int_equal(redact_run(r, &s, text, 15, out, sizeof(out)), 4);
	assert_int_equal(redact_flush(r, &s, text + s.from, false, out, sizeof(out)), 0);	/* 11 of 12 bytes */
	assert_int_equal(redact_run(r, &s, text + s.from, 17 - s.from, out, sizeof(out)), REDACT_MARK_LEN + 1);
	redact_scan_done(&s);
	redact_free(r);
}

/* ---- against a naive search ---- */

static size_t
naive(const struct redact_value *v, size_t n, const uint8_t *text, size_t len, uint8_t *out)
{
	static uint8_t hit[4096], begins[4096], buf[8192];
	size_t at = 0, reach = 0;

	memset(hit, 0, sizeof(hit));
	memset(begins, 0, sizeof(begins));
	for (size_t i = 0; i < len; i++) {
		size_t longest = 0;

		for (size_t k = 0; k < n; k++)
			for (unsigned w = 0; w < SPELLINGS; w++) {
				size_t m = spelling_make(w, v[k].data, v[k].len, buf);

				if (m >= REDACT_MIN && m <= len - i && m > longest && memcmp(text + i, buf, m) == 0)
					longest = m;
			}
		if (longest == 0)
			continue;
		begins[i] = i >= reach;
		reach = i + longest > reach ? i + longest : reach;
		memset(hit + i, 1, longest);
	}
	for (size_t i = 0; i < len; i++)
		if (begins[i]) {
			memcpy(out + at, REDACT_MARK, REDACT_MARK_LEN);
			at += REDACT_MARK_LEN;
		} else if (!hit[i]) {
			out[at++] = text[i];
		}
	return at;
}

static void
as_a_naive_search(void **state)
{
	static uint8_t text[600], want[OUT_MAX];
	static struct plan p;
	char values[4][16];
	unsigned seed = 1;

	for (unsigned round = 0; round < 400; round++) {
		struct redact_value v[4];
		struct redact *r;
		size_t dropped, len, n;

		srand(seed++);
		for (unsigned i = 0; i < 4; i++) {
			size_t m = 6 + (size_t)rand() % 6;

			for (size_t k = 0; k < m; k++)
				values[i][k] = (char)('a' + rand() % 2);
			v[i] = (struct redact_value){ (uint8_t *)values[i], m };
		}
		len = (size_t)rand() % sizeof(text);
		for (size_t i = 0; i < len; i++)
			text[i] = (uint8_t)(rand() % 12 == 0 ? 'x' : 'a' + rand() % 2);
		if (len > 0)
			text[len - 1] = '.';	/* nothing is held at the end */
		assert_int_equal(redact_new(v, 4, &r, &dropped), 0);
		n = naive(v, 4, text, len, want);
		p = (struct plan){ .r = r };
		feed(&p, (char *)text, len, 1 + (size_t)rand() % 40, (size_t)rand() % 2 == 0 ? OUT_MAX : 12, round % 2 == 0);
		if (p.n != n || memcmp(p.out, want, n) != 0)
			fail_msg("round %u: %zu bytes, not %zu", round, p.n, n);
		redact_free(r);
	}
}

/* Half a megabyte of secrets: all of it is known as it is, and what is left out is told. */
static void
large_values(void **state)
{
	size_t size = 250000, dropped;
	uint8_t *data = malloc(2 * size), *out = malloc(size);
	struct redact_value v[2] = { { data, size }, { data + size, size } };
	struct redact_scan s = { 0 };
	struct redact *r;
	unsigned x = 7;

	assert_true(data != NULL && out != NULL);
	for (size_t i = 0; i < 2 * size; i++)
		data[i] = (uint8_t)('!' + (x = x * 1103515245u + 12345u) / 65536 % 90);
	assert_int_equal(redact_new(v, 2, &r, &dropped), 0);
	assert_true(dropped > 0);
	assert_int_equal(redact_run(r, &s, data + size, size, out, size), 0);
	assert_int_equal(redact_flush(r, &s, data + size, true, out, size), REDACT_MARK_LEN);
	redact_scan_done(&s);
	redact_free(r);
	free(data);
	free(out);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_and_borders), cmocka_unit_test(every_spelling), cmocka_unit_test(known_spellings),
		cmocka_unit_test(as_others_print_it), cmocka_unit_test(in_lines_of_base64), cmocka_unit_test(wrapped_base64), cmocka_unit_test(lines_of_a_key), cmocka_unit_test(silence),
		cmocka_unit_test(as_a_naive_search), cmocka_unit_test(large_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
