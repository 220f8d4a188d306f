/* Tokens and cloopenroll1. bundles: what is accepted can be used, what is refused says why without quoting the input. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/cred.h"
#include "connectd/enroll.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct enroll e;
	char err[ENROLL_ERR] = "";
	int r = enroll_parse((const char *)data, size, INT64_C(1790000000) * 1000000000, &e, err);

	if (r == 0 && (!cred_token_ok(e.token) || (e.server[0] != '\0' && strstr(e.server, "://") == NULL)))
		abort();
	if (r != 0 && (err[0] == '\0' || strlen(err) >= ENROLL_ERR))
		abort();
	return 0;
}
