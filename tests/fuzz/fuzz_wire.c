/* wire cursor and work_spec: decode never reads beyond the end, and what decodes encodes to the same bytes again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ipc/work.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];
	static struct work_net net;
	static uint8_t again[WORK_SPEC_MAX];
	struct work_spec spec = { .argv = argv, .env = env, .net = &net };
	size_t len;

	if (work_spec_decode(&spec, data, size) < 0)
		return 0;
	if (size <= sizeof(again) &&
	    (work_spec_encode(&spec, again, sizeof(again), &len) != 0 || len != size || memcmp(again, data, size) != 0))
		abort();
	return 0;
}
