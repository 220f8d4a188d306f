/* A release as a mirror or a hub may send it, in pieces: nothing that no key of this device has signed gets past its head. */
#include <stdint.h>
#include <stdlib.h>

#include "connectd/relcheck.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct relcheck rc;
	size_t step = size > 0 ? 1u + data[0] % 64u : 1;
	int r = 0;

	if (relcheck_init(&rc, "/nonexistent") < 0)
		return 0;
	for (size_t at = 1; r == 0 && at < size; at += step)
		r = relcheck_feed(&rc, data + at, at + step < size ? step : size - at);
	if (rc.known || (r < 0 && (rc.why.code[0] == '\0' || rc.why.detail[0] == '\0')) || relcheck_end(&rc) == 0)
		abort();
	relcheck_done(&rc);
	return 0;
}
