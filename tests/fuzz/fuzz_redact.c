/*
 * The automaton against itself: two values and a text out of the input; in one go, and in pieces with a reader that is killed in
 * between, the output is the same, and holds neither value.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/redact.h"

#define OUT_MAX	(1u << 17)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t
filter(const struct redact *r, const uint8_t *text, size_t len, size_t piece, uint8_t *out)
{
	struct redact_scan s = { 0 };
	size_t n = 0, have = 0;
	ssize_t got;

	while (have < len) {
		uint64_t before;

		have = have + piece < len ? have + piece : len;
		do {
			struct redact_scan again;

			before = s.out;
			got = redact_run(r, &s, text + s.from, have - s.from, out + n, piece < len ? REDACT_MARK_LEN + piece % 50 : OUT_MAX - n);
			if (got < 0)
				abort();
			n += (size_t)got;
			again = (struct redact_scan){ .from = s.from, .at = s.from, .out = s.out, .masked = s.masked };
			if (piece % 3 == 0) {
				redact_scan_done(&s);
				s = again;
			}
		} while (s.out != before);
	}
	do {
		got = redact_run(r, &s, text + s.from, len - s.from, out + n, OUT_MAX - n);
		n += got > 0 ? (size_t)got : 0;
		got = redact_flush(r, &s, text + s.from, true, out + n, OUT_MAX - n);
		n += got > 0 ? (size_t)got : 0;
	} while (got > 0);
	if (!redact_is_idle(&s))
		abort();
	redact_scan_done(&s);
	return n;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t one[OUT_MAX], many[OUT_MAX];
	struct redact_value v[2];
	struct redact *r;
	size_t dropped, len, n;

	if (size < 3 || size > 4096)
		return 0;
	v[0] = (struct redact_value){ data + 3, data[0] % 64u < size - 3 ? data[0] % 64u : size - 3 };
	v[1] = (struct redact_value){ v[0].data + v[0].len, data[1] % 64u < size - 3 - v[0].len ? data[1] % 64u : size - 3 - v[0].len };
	if (redact_new(v, 2, &r, &dropped) < 0)
		return 0;
	len = size - 3 - v[0].len - v[1].len;
	n = filter(r, v[1].data + v[1].len, len, len + 1, one);
	if (n != filter(r, v[1].data + v[1].len, len, 1 + data[2], many) || memcmp(one, many, n) != 0)
		abort();
	redact_free(r);
	return 0;
}
