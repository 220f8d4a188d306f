/*
 * The gate of edgehub proxy: what a browser sends, in pieces by the first byte, never makes more requests for the device than the strict parser
 * sees in what comes out, each of them for the one target. However it is cut, the same comes out, up to where it is refused.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/svcgate.h"
#include "proto/hub/svcroute.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX	(1u << 20)

static const struct svcgate_conf conf = { .hosts = { "127.0.0.1:8080", "localhost:8080" }, .target = "http://localhost:80" };

static unsigned
run(const uint8_t *data, size_t size, size_t step, uint8_t *out, size_t *ret_len)
{
	static struct svcgate g;
	char piece[SVCHEAD_MAX];
	const char *why = NULL;
	unsigned status = 0;
	size_t at = 0;

	svcgate_init(&g, &conf);
	*ret_len = 0;
	while (status == 0 && at < size && *ret_len < MAX - SVCHEAD_MAX) {
		size_t n = size - at < step ? size - at : step, used, len;

		status = svcgate_take(&g, data + at, n, &used, piece, &len, &why);
		if (used > n || len > SVCHEAD_MAX || (status == 0 && used == 0) || (status != 0 && why == NULL))
			abort();
		memcpy(out + *ret_len, piece, len);
		*ret_len += len;
		at += used;
	}
	return status;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t a[MAX], b[MAX];
	static struct http_head head;
	size_t la, lb, used;

	if (size < 1 || size > 65536)
		return 0;
	unsigned status = run(data + 1, size - 1, data[0] + 1u, a, &la);

	if (run(data + 1, size - 1, size, b, &lb) != status || (status == 0 && la != lb) || memcmp(a, b, la < lb ? la : lb) != 0)
		abort();
	http_init(&head, HTTP_REQUEST);
	if (la > 0 && http_feed(&head, a, la, &used) == 1 && (strncmp(head.target, "/svc/", 5) != 0 ||
	    strcmp(http_header(&head, SVC_TARGET_HEADER), "http://localhost:80") != 0))
		abort();
	return 0;
}
