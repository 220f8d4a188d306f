#include "connectd/pin.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "proto/hub/base64.h"

#define PREFIX		"sha256:"
#define SEPARATORS	", \t\r\n"

static int
fail(char err[PIN_ERR_SIZE], const char *why)
{
	snprintf(err, PIN_ERR_SIZE, "pin: %s", why);
	return -EINVAL;
}

static int
take_one(const char *s, size_t len, struct pinset *pins, char err[PIN_ERR_SIZE])
{
	uint8_t raw[PIN_DIGEST + 16];
	const char *colon = memchr(s, ':', len);
	size_t n;

	if (colon != NULL) {
		if ((size_t)(colon - s) != strlen(PREFIX) - 1 || strncasecmp(s, PREFIX, strlen(PREFIX)) != 0)
			return fail(err, "only sha256 is known");
		len -= strlen(PREFIX);
		s = colon + 1;
	}
	if (len > BASE64_LEN(PIN_DIGEST) || base64_decode(raw, sizeof(raw), s, len, &n) < 0 || n != PIN_DIGEST)
		return fail(err, "not the base64 of 32 bytes");
	if (pins->n == PINS_MAX)
		return fail(err, "more than 16 pins");
	memcpy(pins->digest[pins->n++], raw, PIN_DIGEST);
	return 0;
}

int
pin_parse(const char *text, struct pinset *ret_pins, char err[PIN_ERR_SIZE])
{
	struct pinset pins = { .n = 0 };
	const char *s = text;

	while (*(s += strspn(s, SEPARATORS)) != '\0') {
		size_t len = strcspn(s, SEPARATORS);
		int r = take_one(s, len, &pins, err);

		if (r < 0)
			return r;
		s += len;
	}
	if (pins.n == 0 && *text != '\0')
		return fail(err, "the text is not empty but has no pin");
	*ret_pins = pins;
	return 0;
}

bool
pin_match(const struct pinset *pins, const uint8_t digest[PIN_DIGEST])
{
	for (unsigned i = 0; i < pins->n; i++)
		if (memcmp(pins->digest[i], digest, PIN_DIGEST) == 0)
			return true;
	return pins->n == 0;
}

const char *
pin_format(const uint8_t digest[PIN_DIGEST], char buf[PIN_TEXT_SIZE])
{
	memcpy(buf, PREFIX, sizeof(PREFIX));
	base64_encode(buf + strlen(PREFIX), digest, PIN_DIGEST);
	return buf;
}
