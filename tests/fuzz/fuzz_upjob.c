/* connectd's memory of an upgrade, as it may lie on a disk: what parses is written back to the same bytes. Also targets. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/upjob.h"
#include "proto/release/version.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[128], buf[2048];
	size_t n = size < sizeof(text) ? size : sizeof(text) - 1;
	struct uptarget target;
	struct upjob job;
	int len;

	memcpy(text, data, n);
	text[n] = '\0';
	if (uptarget_parse(text, &target) == 0 && (target.name[0] == '\0' || strpbrk(target.name, "/%?# \n") != NULL))
		abort();
	(void)release_version_cmp(text, text + n / 2);
	if (release_version_cmp(text, text) != 0)
		abort();
	if (upjob_parse(data, size, &job) < 0)
		return 0;
	len = upjob_write(&job, buf, sizeof(buf));
	if (len < 0 || (size_t)len != size || memcmp(buf, data, size) != 0)
		abort();
	return 0;
}
