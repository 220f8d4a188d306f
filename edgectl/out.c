/* What edgectl prints. Nothing a daemon sent reaches a terminal or a JSON string without having been made harmless. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "edgectl/edgectl.h"

#define SLOTS		4
#define SLOT_SIZE	1100

static char *
next_slot(void)
{
	static char slots[SLOTS][SLOT_SIZE];
	static unsigned at;

	return slots[at++ % SLOTS];
}

/* Length of the UTF-8 sequence at s, shortest form, no surrogate (RFC 3629 section 4); 0 = none. */
static size_t
utf8_len(const unsigned char *s)
{
	size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;

	if (s[0] < 0xc2 || s[0] > 0xf4 || (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	return n;
}

const char *
out_safe(const char *s)
{
	char *buf = next_slot();
	size_t o = 0;

	while (*s != '\0' && o + 5 < SLOT_SIZE) {
		const unsigned char *u = (const unsigned char *)s;
		size_t n = *u < 0x80 ? 1 : utf8_len(u);

		/* U+0080..U+009F are control characters, too: c2 80..c2 9f. */
		if (n == 0 || *u < 0x20 || *u == 0x7f || (*u == 0xc2 && u[1] < 0xa0)) {
			buf[o++] = '?';
			s += n == 2 ? 2 : 1;
			continue;
		}
		memcpy(buf + o, s, n);
		o += n;
		s += n;
	}
	buf[o] = '\0';
	return buf;
}

const char *
out_span(int64_t s)
{
	char *buf = next_slot();

	if (s < 0)
		s = 0;
	if (s < 120)
		snprintf(buf, SLOT_SIZE, "%" PRId64 " s", s);
	else if (s < 7200)
		snprintf(buf, SLOT_SIZE, "%" PRId64 " min", s / 60);
	else if (s < 2 * 86400)
		snprintf(buf, SLOT_SIZE, "%" PRId64 " h %" PRId64 " min", s / 3600, s / 60 % 60);
	else
		snprintf(buf, SLOT_SIZE, "%" PRId64 " d %" PRId64 " h", s / 86400, s / 3600 % 24);
	return buf;
}

const char *
out_bytes(uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	char *buf = next_slot();
	double v = (double)bytes;
	unsigned u = 0;

	while (v >= 1024 && u + 1 < sizeof(units) / sizeof(units[0])) {
		v /= 1024;
		u++;
	}
	snprintf(buf, SLOT_SIZE, u == 0 ? "%.0f %s" : "%.1f %s", v, units[u]);
	return buf;
}

const char *
out_time(int64_t ns)
{
	time_t s = (time_t)(ns / 1000000000);
	char *buf = next_slot(), date[32];
	struct tm tm;

	if (gmtime_r(&s, &tm) == NULL || strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm) == 0)
		date[0] = '\0';
	snprintf(buf, SLOT_SIZE, "%s.%03dZ", date, (int)(ns / 1000000 % 1000));
	return buf;
}

const char *
out_mark(enum out_mark mark)
{
	static const char *const codes[] = { [OUT_PLAIN] = "\033[0m", [OUT_BAD] = "\033[1;31m", [OUT_GOOD] = "\033[32m", [OUT_HEAD] = "\033[1m" };
	const char *no = getenv("NO_COLOR");

	return isatty(STDOUT_FILENO) && (no == NULL || no[0] == '\0') ? codes[mark] : "";
}

/* Columns on a terminal: continuation bytes take none. Wide characters are not looked after. */
static size_t
columns(const char *s)
{
	size_t n = 0;

	for (; *s != '\0'; s++)
		n += ((unsigned char)*s & 0xc0) != 0x80;
	return n;
}

void
out_table(const char *const *cells, size_t nrows, size_t ncols)
{
	for (size_t row = 0; row < nrows; row++) {
		fputs(row == 0 ? out_mark(OUT_HEAD) : "", stdout);
		for (size_t col = 0; col < ncols; col++) {
			const char *text = out_safe(cells[row * ncols + col]);
			size_t width = 0;

			for (size_t i = 0; i < nrows; i++) {
				size_t w = columns(cells[i * ncols + col]);

				width = w > width ? w : width;
			}
			fputs(text, stdout);
			for (size_t i = columns(text); col + 1 < ncols && i < width + 2; i++)
				putchar(' ');
		}
		fputs(row == 0 ? out_mark(OUT_PLAIN) : "", stdout);
		putchar('\n');
	}
}

static void
print(void *ctx, const char *s, size_t len)
{
	fwrite(s, 1, len, stdout);
}

/* The generator refuses only what cannot happen here: a document out of order, or text that is not UTF-8. */
static void
must(yajl_gen_status status)
{
	if (status != yajl_gen_status_ok)
		abort();
}

yajl_gen
json_begin(void)
{
	yajl_gen g = yajl_gen_alloc(NULL);

	if (g == NULL)
		abort();
	yajl_gen_config(g, yajl_gen_beautify, 1);
	yajl_gen_config(g, yajl_gen_indent_string, "  ");
	yajl_gen_config(g, yajl_gen_validate_utf8, 1);
	yajl_gen_config(g, yajl_gen_print_callback, print, NULL);
	json_open(g, NULL, '{');
	return g;
}

void
json_end(yajl_gen g)
{
	json_close(g, '}');
	yajl_gen_free(g);
}

static void
put_key(yajl_gen g, const char *key)
{
	if (key != NULL)
		must(yajl_gen_string(g, (const unsigned char *)key, strlen(key)));
}

void
json_open(yajl_gen g, const char *key, char bracket)
{
	put_key(g, key);
	must(bracket == '{' ? yajl_gen_map_open(g) : yajl_gen_array_open(g));
}

void
json_close(yajl_gen g, char bracket)
{
	must(bracket == '}' ? yajl_gen_map_close(g) : yajl_gen_array_close(g));
}

void
json_str(yajl_gen g, const char *key, const char *value)
{
	const char *safe = out_safe(value);

	put_key(g, key);
	must(yajl_gen_string(g, (const unsigned char *)safe, strlen(safe)));
}

void
json_int(yajl_gen g, const char *key, int64_t value)
{
	put_key(g, key);
	must(yajl_gen_integer(g, value));
}

void
json_uint(yajl_gen g, const char *key, uint64_t value)
{
	char buf[24];
	int n = snprintf(buf, sizeof(buf), "%" PRIu64, value);

	put_key(g, key);
	must(yajl_gen_number(g, buf, (size_t)n));
}

void
json_bool(yajl_gen g, const char *key, bool value)
{
	put_key(g, key);
	must(yajl_gen_bool(g, value));
}

void
json_null(yajl_gen g, const char *key)
{
	put_key(g, key);
	must(yajl_gen_null(g));
}

void
json_time(yajl_gen g, const char *key, int64_t ns)
{
	if (ns == 0)
		json_null(g, key);
	else
		json_str(g, key, out_time(ns));
}
