/* The answer of a mirror: what is taken for a file is one that fits what was asked for, and within the bound. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/httpget.h"

#define MAX	(1u << 28)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct http_head head;
	uint64_t from = size > 0 ? data[0] : 0;
	struct httpget g;
	size_t used;

	if (size == 0)
		return 0;
	http_init(&head, HTTP_RESPONSE);
	if (http_feed(&head, data + 1, size - 1, &used) != 1)
		return 0;
	httpget_judge(&head, from, MAX, &g);
	if (g.what == HTTPGET_BODY && (g.total == 0 || g.total > MAX || g.from >= g.total || (g.from != 0 && g.from != from)))
		abort();
	if (g.what != HTTPGET_BODY && (g.code == NULL || g.detail == NULL))
		abort();
	if (memchr(g.etag, '\0', sizeof(g.etag)) == NULL || (g.etag[0] != '\0' && g.etag[0] != '"'))
		abort();
	return 0;
}
