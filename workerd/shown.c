#include "workerd/shown.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"

/* The arguments, with a blank between two. */
static uint8_t *
join(const struct work_str *argv, uint32_t argc, size_t *ret_len)
{
	size_t len = 0;
	uint8_t *text;

	for (uint32_t i = 0; i < argc; i++)
		len += argv[i].len + (i > 0);
	text = malloc(len + 1);
	if (text == NULL)
		return NULL;
	*ret_len = len;
	len = 0;
	for (uint32_t i = 0; i < argc; i++) {
		if (i > 0)
			text[len++] = ' ';
		memcpy(text + len, argv[i].s, argv[i].len);
		len += argv[i].len;
	}
	return text;
}

/* The whole goes through the automaton, so that a value that is longer than what is shown does not show its beginning. -ENOMEM. */
static ssize_t
mask(const struct redact *redact, const uint8_t *in, size_t len, uint8_t *dst, size_t size)
{
	struct redact_scan scan = { 0 };
	size_t out = 0;
	ssize_t n;

	do {
		n = redact_run(redact, &scan, in + scan.from, len - (size_t)scan.from, dst + out, size - out);
		out += n > 0 ? (size_t)n : 0;
	} while (n > 0 && out < size);
	while (n >= 0 && out < size && (n = redact_flush(redact, &scan, in + scan.from, true, dst + out, size - out)) > 0)
		out += (size_t)n;
	redact_scan_done(&scan);
	return n < 0 ? n : (ssize_t)out;
}

static size_t
width(uint8_t c)
{
	return c >= ' ' && c <= '~' ? 1 : 4;
}

static void
escape(const uint8_t *in, size_t len, char *buf, size_t size)
{
	size_t all = 0, out = 0, room = size - 1;

	for (size_t i = 0; i < len && all <= room; i++)
		all += width(in[i]);
	if (all > room)
		room -= 3;
	for (size_t i = 0; i < len && out + width(in[i]) <= room; i++)
		out += (size_t)snprintf(buf + out, size - out, width(in[i]) == 1 ? "%c" : "\\x%02x", in[i]);
	snprintf(buf + out, size - out, "%s", all > size - 1 ? "..." : "");
}

void
shown_command(const struct work_str *argv, uint32_t argc, const struct redact *redact, char *buf, size_t size)
{
	_cleanup_free_ uint8_t *text = NULL, *masked = NULL;
	size_t len = 0, room = size + REDACT_MARK_LEN;
	ssize_t n;

	snprintf(buf, size, "?");
	text = join(argv, argc, &len);
	if (text == NULL)
		return;
	if (redact == NULL) {
		escape(text, len, buf, size);
		return;
	}
	masked = malloc(room);
	n = masked != NULL ? mask(redact, text, len, masked, room) : -1;
	if (n >= 0)
		escape(masked, (size_t)n, buf, size);
	explicit_bzero(text, len);
}
