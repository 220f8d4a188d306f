/* edgeward.conf from any bytes: a result or one line of error, never both. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct conf conf;
	char err[CONF_ERR_SIZE];
	int r = conf_parse(&conf, "fuzz", (const char *)data, size, err);

	if ((r == 0) != (err[0] == '\0') || strchr(err, '\n') != NULL)
		abort();
	return 0;
}
