/* credential.json: whatever parses is usable as a header and is written and read again as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/cred.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cred cred, again;
	char buf[6 * sizeof(cred) + 512];
	size_t len;

	if (size > CRED_FILE_MAX || cred_parse(data, size, &cred) < 0)
		return 0;
	if (!cred_token_ok(cred.credential) || cred_format(&cred, buf, sizeof(buf), &len) < 0 ||
	    cred_parse((const uint8_t *)buf, len, &again) < 0)
		abort();
	/* What is written is escaped and checked over all fields; bytes behind the strings are zero on both sides. */
	if (memcmp(&cred, &again, sizeof(cred)) != 0)
		abort();
	return 0;
}
