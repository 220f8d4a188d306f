/* eventlog_parse: the daemons' own files, which another version or a power cut may have left. What is taken is bounded and one line. */
#include <assert.h>
#include <string.h>

#include "common/eventlog.h"
#include "proto/ipc/ipc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ctl_event e;

	if (eventlog_parse((const char *)data, size, &e) < 0)
		return 0;
	assert(e.seq > 0 && e.seq < UINT64_MAX && e.at >= 0 && e.kind[0] != '\0');
	assert(ipc_str_ok(e.kind, sizeof(e.kind)) && ipc_str_ok(e.subject, sizeof(e.subject)) && ipc_str_ok(e.text, sizeof(e.text)));
	assert(strpbrk(e.text, "\n\r\033") == NULL && strchr(e.kind, ' ') == NULL && strchr(e.subject, ' ') == NULL);
	return 0;
}
