/* edgeward.1 binary frames; what parses encodes to the same bytes. Also base64 and RFC 3339 over the same input. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/base64.h"
#include "proto/hub/rfc3339.h"
#include "proto/hub/stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
text(const uint8_t *data, size_t size)
{
	uint8_t dec[300];
	char s[256], buf[RFC3339_SIZE];
	size_t n = size < sizeof(s) ? size : sizeof(s) - 1;
	int64_t ns;

	memcpy(s, data, n);
	s[n] = '\0';
	base64_decode(dec, sizeof(dec), s, n, &n);
	if (rfc3339_parse(s, &ns) == 0)
		rfc3339_format(ns, buf);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t out[STREAM_HEADER + 4 + STREAM_REASON_MAX];
	struct stream_frame f;

	if (size > 0)
		text(data, size);
	if (stream_parse(&f, data, size) < 0 || f.type == STREAM_DATA)
		return 0;
	if (stream_put(out, &f) != size || memcmp(out, data, size) != 0)
		abort();
	return 0;
}
