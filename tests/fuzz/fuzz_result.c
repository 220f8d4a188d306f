/* The trailer that collect.sh writes, from any bytes: what is taken is bounded and of its one form. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "workerd/result.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char text[RESULT_TRAILER];
	struct result_trailer t;

	/* Filled up as printf does it, so that short inputs get past the length. */
	memset(text, ' ', sizeof(text));
	memcpy(text, data, size < sizeof(text) ? size : sizeof(text));
	if (size < sizeof(text))
		text[sizeof(text) - 1] = '\n';
	if (result_parse(text, sizeof(text), &t) < 0)
		return 0;
	if (strlen(t.head) != 0 && strlen(t.head) != 40)
		abort();
	if (memchr(t.project, '\0', sizeof(t.project)) == NULL || memchr(t.data, '\0', sizeof(t.data)) == NULL ||
	    memchr(t.skip, '\0', sizeof(t.skip)) == NULL)
		abort();
	return 0;
}
