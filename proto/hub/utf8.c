#include "proto/hub/utf8.h"

#include <string.h>

struct lead {
	uint8_t len;		/* of the whole sequence, 0 = no lead byte */
	uint8_t lo, hi;		/* range of the second byte */
};

static struct lead
lead_of(uint8_t c)
{
	if (c >= 0xc2 && c <= 0xdf)
		return (struct lead){ 2, 0x80, 0xbf };
	if (c >= 0xe0 && c <= 0xef)
		return (struct lead){ 3, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf };
	if (c >= 0xf0 && c <= 0xf4)
		return (struct lead){ 4, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf };
	return (struct lead){ 0 };
}

/* Bytes of the sequence at s: > 0 valid, 0 invalid, < 0 a good beginning of -n bytes that the end cuts off. */
static int
sequence(const uint8_t *s, size_t len)
{
	struct lead l = lead_of(s[0]);

	if (s[0] < 0x80)
		return 1;
	if (l.len == 0)
		return 0;
	for (size_t i = 1; i < l.len; i++) {
		if (i == len)
			return -(int)len;
		if (i == 1 ? s[1] < l.lo || s[1] > l.hi : (s[i] & 0xc0) != 0x80)
			return 0;
	}
	return l.len;
}

/* Bytes of plain ASCII at the front, a word at a time: most output is nothing else. */
static size_t
ascii_run(const uint8_t *s, size_t len)
{
	size_t i = 0;
	uint64_t w;

	for (; len - i >= sizeof(w); i += sizeof(w)) {
		memcpy(&w, s + i, sizeof(w));
		if ((w & 0x8080808080808080ull) != 0)
			break;
	}
	while (i < len && s[i] < 0x80)
		i++;
	return i;
}

size_t
utf8_valid_prefix(const uint8_t *s, size_t len, size_t *ret_partial)
{
	size_t i = 0;
	int n = 0;

	while (i < len) {
		i += ascii_run(s + i, len - i);
		if (i == len)
			break;
		n = sequence(s + i, len - i);
		if (n <= 0)
			break;
		i += (size_t)n;
	}
	if (ret_partial != NULL)
		*ret_partial = i < len && n < 0 ? (size_t)-n : 0;
	return i;
}

void
utf8_sanitize(uint8_t *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		i += utf8_valid_prefix(s + i, len - i, NULL);
		if (i < len)
			s[i++] = '?';
	}
}
