/* login.defs and subuid, which privaccount reads as root: the first byte chooses. What is found free is in no range. */
#include <assert.h>
#include <stdint.h>

#include "common/idranges.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct idranges set;
	uint32_t first, count, from;

	if (size < 1)
		return 0;
	idranges_init(&set);
	(data[0] % 2 == 0 ? idranges_login_defs : idranges_subid)(&set, (const char *)data + 1, size - 1);
	assert(set.n <= IDRANGES_MAX);
	count = 1u + data[0];
	from = (uint32_t)data[0] << 20;
	if (idranges_next(&set, from, count, &first) < 0)
		return 0;
	assert(first >= from && first + (count - 1) >= first);
	for (unsigned i = 0; i < set.n; i++)
		assert(first > set.r[i].last || first + (count - 1) < set.r[i].first);
	return 0;
}
