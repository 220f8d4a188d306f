/*
 * HTTP heads: first byte picks request or response and the size of the pieces. However it is cut, the result is the
 * same; a complete head can be asked anything.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/wsupgrade.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
no_sha1(const void *data, size_t len, uint8_t ret_digest[20])
{
	memset(ret_digest, (int)len & 0xff, 20);
}

static int
feed(struct http_head *head, enum http_kind kind, const uint8_t *data, size_t size, size_t step, size_t *ret_used)
{
	int r = 0;

	http_init(head, kind);
	*ret_used = 0;
	while (r == 0 && *ret_used < size) {
		size_t n = size - *ret_used < step ? size - *ret_used : step, used;

		r = http_feed(head, data + *ret_used, n, &used);
		*ret_used += used;
	}
	return r;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http_head head;
	bool selected;
	size_t used, used2;

	if (size < 1)
		return 0;
	enum http_kind kind = (data[0] & 1) != 0 ? HTTP_REQUEST : HTTP_RESPONSE;
	int r = feed(&head, kind, data + 1, size - 1, (data[0] >> 1) + 1u, &used);

	if (r == 1) {
		for (unsigned i = 0; i < head.nfields; i++)
			if (http_header_count(&head, head.buf + head.field[i].name) == 0)
				abort();
		http_has_token(&head, "Connection", "upgrade");
		if (kind == HTTP_REQUEST)
			wsupgrade_check_request(&head);
		else
			wsupgrade_check_response(&head, "dGhlIHNhbXBsZSBub25jZQ==", no_sha1, "edgeward.1", &selected);
	}
	if (feed(&head, kind, data + 1, size - 1, size, &used2) != r || used != used2)
		abort();
	return 0;
}
