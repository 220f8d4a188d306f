#include "workerd/spelling.h"

#include <assert.h>
#include <string.h>

static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
static const char std[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

struct text {
	const uint8_t *p;
	size_t len;
	uint8_t *dst;
	size_t n;
};

static void
put(struct text *t, uint8_t c)
{
	t->dst[t->n++] = c;
}

static void
puts_to(struct text *t, const char *s)
{
	for (; *s != '\0'; s++)
		put(t, (uint8_t)*s);
}

static bool
is_word(uint8_t c)
{
	return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* ---- lines ---- */

/* Every end of line becomes end. */
static void
lines(struct text *t, const char *end)
{
	for (size_t i = 0; i < t->len; i++) {
		if (t->p[i] == '\r' && i + 1 < t->len && t->p[i + 1] == '\n')
			continue;
		if (t->p[i] == '\n')
			puts_to(t, end);
		else
			put(t, t->p[i]);
	}
}

/* ---- escapes ---- */

#define ESC_SLASH	0x01u	/* '/' too */
#define ESC_UPPER	0x02u	/* digits of \u */
#define ESC_ASCII	0x04u	/* nothing above 0x7f, as Python does */
#define ESC_C		0x08u	/* not JSON's \u: \xHH */
#define ESC_OCTAL	0x10u	/* \ooo */
#define ESC_SINGLE	0x20u	/* the single quote, not the double one */
#define ESC_ALL		0x40u	/* every character as \u */

/* One character of UTF-8 and its length; 0 if it is none. */
static uint32_t
character(const uint8_t *p, size_t len, size_t *ret_n)
{
	size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : p[0] >= 0xc0 ? 2 : 1;
	uint32_t v = n == 1 ? p[0] : p[0] & (0xffu >> (n + 1));

	*ret_n = 1;
	if (n > len || (n == 1 && p[0] >= 0x80))
		return 0;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3f);
	}
	*ret_n = n;
	return v;
}

static void
put_u(struct text *t, uint32_t v, unsigned how)
{
	puts_to(t, "\\u");
	for (int shift = 12; shift >= 0; shift -= 4)
		put(t, (uint8_t)((how & ESC_UPPER) != 0 ? upper : lower)[v >> shift & 15]);
}

static void
put_code(struct text *t, uint8_t c, unsigned how)
{
	if ((how & ESC_OCTAL) != 0) {
		put(t, '\\');
		put(t, (uint8_t)('0' + (c >> 6)));
		put(t, (uint8_t)('0' + (c >> 3 & 7)));
		put(t, (uint8_t)('0' + (c & 7)));
	} else if ((how & ESC_C) != 0) {
		puts_to(t, "\\x");
		put(t, (uint8_t)lower[c >> 4]);
		put(t, (uint8_t)lower[c & 15]);
	} else {
		put_u(t, c, how);
	}
}

static void
put_wide(struct text *t, size_t *i, unsigned how)
{
	size_t n;
	uint32_t v = character(t->p + *i, t->len - *i, &n);

	*i += n - 1;
	if (v > 0xffff) {
		put_u(t, 0xd800 + ((v - 0x10000) >> 10), how);
		put_u(t, 0xdc00 + (v & 0x3ff), how);
	} else {
		put_u(t, v != 0 ? v : 0xfffd, how);
	}
}

/* coded: what of ASCII is written as \u beside the control characters. */
static void
escape(struct text *t, unsigned how, const char *coded)
{
	static const char short_of[] = { ['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r' };
	uint8_t quote = (how & ESC_SINGLE) != 0 ? '\'' : '"';

	for (size_t i = 0; i < t->len; i++) {
		uint8_t c = t->p[i];

		if (c != '\0' && c < 0x80 && ((how & ESC_ALL) != 0 || strchr(coded, c) != NULL)) {
			put_u(t, c, how);
		} else if (c == '\\' || c == quote || (c == '/' && (how & ESC_SLASH) != 0)) {
			put(t, '\\');
			put(t, c);
		} else if (c < sizeof(short_of) && short_of[c] != '\0') {
			put(t, '\\');
			put(t, (uint8_t)short_of[c]);
		} else if (c < 0x20 || (c == 0x7f && (how & (ESC_C | ESC_OCTAL)) != 0)) {
			put_code(t, c, how);
		} else if (c >= 0x80 && (how & (ESC_C | ESC_OCTAL)) != 0) {
			put_code(t, c, how);
		} else if (c >= 0x80 && (how & ESC_ASCII) != 0) {
			put_wide(t, &i, how);
		} else {
			put(t, c);
		}
	}
}

/* ---- URLs, shells ---- */

static void
percent(struct text *t, const char *safe, bool plus, const char *digits)
{
	for (size_t i = 0; i < t->len; i++) {
		uint8_t c = t->p[i];

		if (is_word(c) || (c != '\0' && strchr(safe, c) != NULL)) {
			put(t, c);
		} else if (c == ' ' && plus) {
			put(t, '+');
		} else {
			put(t, '%');
			put(t, (uint8_t)digits[c >> 4]);
			put(t, (uint8_t)digits[c & 15]);
		}
	}
}

static void
shell(struct text *t, bool backslash)
{
	for (size_t i = 0; i < t->len; i++) {
		uint8_t c = t->p[i];

		if (!backslash && c == '\'') {
			puts_to(t, "'\\''");
			continue;
		}
		if (backslash && !is_word(c) && c < 0x80 && c != '\0' && strchr(",._+:@%/-", c) == NULL)
			put(t, '\\');
		put(t, c);
	}
}

/* ---- base64, hex ---- */

/* The characters that depend on the value alone when skip bytes stand before it; wrap: of a line, 0 = none, of which the first has begin. */
static void
base64(struct text *t, size_t skip, const char *alphabet, size_t wrap, size_t begin)
{
	size_t first = (8 * skip + 5) / 6, end = 8 * (skip + t->len) / 6;

	for (size_t i = first; i < end; i++) {
		uint32_t bits = 0;

		for (size_t b = 6 * i; b < 6 * i + 6; b++)
			bits = bits << 1 | (t->p[b / 8 - skip] >> (7 - b % 8) & 1);
		if (wrap != 0 && i > first && (i - first) % wrap == begin % wrap)
			put(t, '\n');
		put(t, (uint8_t)alphabet[bits]);
	}
}

/* Every byte, with before in front of it. */
static void
hex(struct text *t, const char *before, const char *digits)
{
	for (size_t i = 0; i < t->len; i++) {
		puts_to(t, before);
		put(t, (uint8_t)digits[t->p[i] >> 4]);
		put(t, (uint8_t)digits[t->p[i] & 15]);
	}
}

/* As JSON inside of JSON. The first result lies at the end of the room and is read from there. */
static void
twice(struct text *t, unsigned how)
{
	struct text inner = { t->p, t->len, t->dst + 12 * t->len, 0 };

	escape(&inner, how, "");
	t->p = inner.dst;
	t->len = inner.n;
	escape(t, 0, "");
}

/* ---- all of them ---- */

enum form { AS_IS, LINES, ESCAPE, TWICE, PERCENT, SHELL, BASE64, HEX };

static const struct {
	enum form form;
	const char *chars;	/* LINES: their end; ESCAPE: coded; PERCENT: left as they are; BASE64: the alphabet; HEX: before each byte */
	const char *digits;	/* PERCENT, HEX */
	unsigned how;		/* ESCAPE, TWICE: flags; PERCENT: a space is '+'; SHELL: backslashes; BASE64: bytes before it in its group */
	size_t wrap;		/* BASE64 */
} rows[] = {
	{ .form = AS_IS }, { LINES, .chars = "\r\n" }, { LINES, .chars = "\n" }, { LINES, .chars = "" }, { LINES, .chars = " " },
	{ ESCAPE, .chars = "" }, { ESCAPE, .chars = "", .how = ESC_SLASH }, { ESCAPE, .chars = "<>&" }, { ESCAPE, .chars = "", .how = ESC_ASCII },
	{ ESCAPE, .chars = "", .how = ESC_C }, { ESCAPE, .chars = "", .how = ESC_OCTAL }, { ESCAPE, .chars = "", .how = ESC_C | ESC_SINGLE },
	{ TWICE },
	{ PERCENT, "-_.~", upper }, { PERCENT, "-_.~", lower }, { PERCENT, "-_.~", upper, true }, { PERCENT, "-_.~", lower, true },
	{ PERCENT, "-_.~/", upper }, { PERCENT, "-_.~/", lower }, { PERCENT, "-_.~!'()*", upper },
	{ SHELL }, { SHELL, .how = true },
	{ BASE64, std, .how = 0 }, { BASE64, std, .how = 1 }, { BASE64, std, .how = 2 },
	{ BASE64, url, .how = 0 }, { BASE64, url, .how = 1 }, { BASE64, url, .how = 2 }, { BASE64, std, .wrap = 76 },
	{ HEX, "", lower }, { HEX, "", upper },
	{ BASE64, std, .wrap = 64 },
	/* what writers of JSON escape beside what they must: PHP, Gson, .NET, templates, and digits in the other case */
	{ ESCAPE, .chars = "", .how = ESC_SLASH | ESC_ASCII }, { ESCAPE, .chars = "<>&='" },
	{ ESCAPE, .chars = "\"'<>&+`", .how = ESC_ASCII | ESC_UPPER }, { ESCAPE, .chars = "<>&'", .how = ESC_ASCII },
	{ ESCAPE, .chars = "<>&", .how = ESC_ASCII }, { ESCAPE, .chars = "", .how = ESC_ASCII | ESC_UPPER }, { TWICE, .how = ESC_ASCII },
	{ ESCAPE, .chars = "", .how = ESC_ALL | ESC_ASCII }, { ESCAPE, .chars = "", .how = ESC_ALL | ESC_ASCII | ESC_UPPER },
	/* forms of browsers and Java, PHP, .NET; a whole address; a part of its path; everything */
	{ PERCENT, "*-._", upper, true }, { PERCENT, "-_.", upper, true }, { PERCENT, "-_.!*()", lower, true },
	{ PERCENT, ";,/?:@&=+$-_.!~*'()#", upper }, { PERCENT, "$&+:=@-_.~", upper },
	{ HEX, "%", upper }, { HEX, "%", lower },
};
static_assert(sizeof(rows) / sizeof(rows[0]) == SPELLINGS, "a row for each");

size_t
spelling_room(size_t len)
{
	return 18 * len + 64;
}

size_t
spelling_make(unsigned which, const uint8_t *value, size_t len, uint8_t *dst)
{
	struct text t = { value, len, dst, 0 };

	if (which >= SPELLINGS || (len > SPELLING_VALUE_MAX && which > 2))
		return 0;
	switch (rows[which].form) {
	case AS_IS: memcpy(dst, value, len); return len;
	case LINES: lines(&t, rows[which].chars); break;
	case ESCAPE: escape(&t, rows[which].how, rows[which].chars); break;
	case TWICE: twice(&t, rows[which].how); break;
	case PERCENT: percent(&t, rows[which].chars, rows[which].how, rows[which].digits); break;
	case SHELL: shell(&t, rows[which].how); break;
	case BASE64: base64(&t, rows[which].how, rows[which].chars, rows[which].wrap, 0); break;
	case HEX: hex(&t, rows[which].chars, rows[which].digits); break;
	}
	return t.n;
}

size_t
spelling_wrapped(const uint8_t *value, size_t len, unsigned which, uint8_t *dst)
{
	static const size_t widths[] = { 76, 64 };
	struct text t = { value, len, dst, 0 };
	size_t skip = which % 3, wrap = widths[which / 3 % 2], first = (8 * skip + 5) / 6;
	/* A line has whole groups of four characters, so of four columns one is possible. */
	size_t begin = 4 * (which / 6 + 1) - first % 4;

	if (begin >= wrap || begin >= 8 * (skip + len) / 6 - first)
		return 0;
	base64(&t, skip, std, wrap, begin);
	return t.n;
}
