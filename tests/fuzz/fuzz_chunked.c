/*
 * Chunked bodies: the first byte picks strict or lenient and the size of the pieces. However it is cut, the content and the end are the same; content
 * coded anew and read again is the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/chunked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX	65536u

static int
decode(bool lenient, const uint8_t *data, size_t size, size_t step, uint8_t *out, size_t *ret_len, size_t *ret_used)
{
	struct chunked c;
	int r = 0;

	chunked_init(&c, lenient);
	*ret_len = *ret_used = 0;
	while (r == 0 && *ret_used < size) {
		size_t n = size - *ret_used < step ? size - *ret_used : step, used, len;
		const uint8_t *content;

		r = chunked_take(&c, data + *ret_used, n, &used, &content, &len);
		if (used > n || len > used || (len > 0 && (content < data + *ret_used || content + len > data + *ret_used + used)))
			abort();
		if (r == 0 && used == 0)
			abort();
		memcpy(out + *ret_len, content, len);
		*ret_len += len;
		*ret_used += used;
	}
	return r;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t a[MAX], b[MAX], coded[MAX + 64];
	char head[CHUNKED_HEAD + 1];
	size_t la, lb, ua, ub, n;

	if (size < 1 || size > MAX)
		return 0;
	bool lenient = (data[0] & 1) != 0;
	int r = decode(lenient, data + 1, size - 1, (data[0] >> 1) + 1u, a, &la, &ua);

	if (decode(lenient, data + 1, size - 1, size, b, &lb, &ub) != r || ua != ub || la != lb || memcmp(a, b, la) != 0)
		abort();
	/* What the strict one takes, the lenient one takes the same way. */
	if (!lenient && r == 1 && (decode(true, data + 1, size - 1, size, b, &lb, &ub) != 1 || ub != ua || lb != la))
		abort();
	if (r != 1 || la == 0)
		return 0;
	n = chunked_put_size(head, la);
	memcpy(coded, head, n);
	memcpy(coded + n, a, la);
	memcpy(coded + n + la, "\r\n" CHUNKED_LAST, 7);
	if (decode(false, coded, n + la + 7, size, b, &lb, &ub) != 1 || ub != n + la + 7 || lb != la || memcmp(a, b, la) != 0)
		abort();
	return 0;
}
