/* audit_check and audit_compose: lines of the audit record as edgectl reads them, and that what is composed is accepted. */
#include <stdlib.h>
#include <string.h>

#include "common/audit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct audit_head head = audit_first, next = audit_first;
	char line[AUDIT_LINE], text[AUDIT_LINE];
	const uint8_t *p = data, *end = data + size, *nl;
	int n;

	for (; p < end && (nl = memchr(p, '\n', (size_t)(end - p))) != NULL; p = nl + 1)
		if (audit_check(&head, (const char *)p, (size_t)(nl - p)) < 0)
			break;
	if (size >= sizeof(text))
		return 0;
	memcpy(text, data, size);
	text[size] = '\0';
	head = audit_first;
	n = audit_compose(&next, "1.000", text, line);
	if (n > 0 && strncmp(text, "continues ", 10) != 0 && (audit_check(&head, line, (size_t)n - 1) < 0 || head.seq != 1))
		abort();
	return 0;
}
