/* An encoded job from any bytes: what is taken has no problem and comes out of the encoder as it went in. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ipc/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct work_job job;
	uint8_t *again = malloc(size + 1);
	size_t len = 0;

	if (again == NULL)
		return 0;
	if (job_decode(&job, data, size) == 0) {
		if (job_problem(&job) != NULL || job_encode(&job, again, size, &len) < 0 || len != size || memcmp(again, data, len) != 0)
			abort();
		if (job.back != JOB_BACK_NONE && job_base(&job).len != 40)
			abort();
	}
	free(again);
	return 0;
}
