#include "proto/hub/base64.h"

#include <errno.h>
#include <stdbool.h>

static const char std[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static size_t
encode(char *dst, const void *src, size_t len, const char *alphabet, bool pad)
{
	const uint8_t *s = src;
	char *d = dst;

	for (size_t i = 0; i < len; i += 3) {
		size_t n = len - i < 3 ? len - i : 3;
		uint32_t v = (uint32_t)s[i] << 16 | (n > 1 ? (uint32_t)s[i + 1] << 8 : 0) | (n > 2 ? s[i + 2] : 0);

		for (size_t k = 0; k < n + 1; k++)
			*d++ = alphabet[v >> (18 - 6 * k) & 63];
		for (size_t k = n + 1; pad && k < 4; k++)
			*d++ = '=';
	}
	*d = '\0';
	return (size_t)(d - dst);
}

size_t
base64_encode(char *dst, const void *src, size_t len)
{
	return encode(dst, src, len, std, true);
}

size_t
base64url_encode(char *dst, const void *src, size_t len)
{
	return encode(dst, src, len, url, false);
}

/* Value of a character and which alphabet it commits to: bit 0 standard, bit 1 URL. -1 = neither. */
static int
value(char c, unsigned *alphabets)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	*alphabets |= c == '+' || c == '/' ? 1 : 2;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

int
base64_decode(void *dst, size_t size, const char *src, size_t len, size_t *ret_len)
{
	uint8_t *d = dst;
	unsigned alphabets = 0, bits = 0;
	uint32_t acc = 0;
	size_t n = 0, chars = len;

	while (chars > 0 && len - chars < 2 && src[chars - 1] == '=')
		chars--;
	if (chars % 4 == 1 || (len != chars && len % 4 != 0))
		return -EINVAL;
	for (size_t i = 0; i < chars; i++) {
		int v = value(src[i], &alphabets);

		if (v < 0 || alphabets == 3)
			return -EINVAL;
		acc = acc << 6 | (uint32_t)v;
		bits += 6;
		if (bits < 8)
			continue;
		bits -= 8;
		if (n == size)
			return -ENOSPC;
		d[n++] = (uint8_t)(acc >> bits);
	}
	if ((acc & ((1u << bits) - 1)) != 0)
		return -EINVAL;
	*ret_len = n;
	return 0;
}
