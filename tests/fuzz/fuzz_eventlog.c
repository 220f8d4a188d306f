/* eventlog_parse, eventkeep: the daemons' own files, which another version or a power cut may have left. What is taken is bounded and one line. */
#include <assert.h>
#include <string.h>

#include "common/eventkeep.h"
#include "common/eventlog.h"
#include "proto/ipc/ipc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char out[2048];
	struct ctl_event e;
	size_t max = size > 0 ? 8u * data[0] : 0, len, again;

	assert(eventkeep((const char *)data, size, out, max, &len) == 0 && len <= max && len <= size);
	assert(len == 0 || out[len - 1] == '\n');
	/* What was kept fits, so all of it stays. */
	assert(eventkeep(out, len, out, len, &again) == 0 && again == len);
	if (eventlog_parse((const char *)data, size, &e) < 0)
		return 0;
	assert(e.seq > 0 && e.seq < UINT64_MAX && e.at >= 0 && e.kind[0] != '\0');
	assert(ipc_str_ok(e.kind, sizeof(e.kind)) && ipc_str_ok(e.subject, sizeof(e.subject)) && ipc_str_ok(e.text, sizeof(e.text)));
	assert(strpbrk(e.text, "\n\r\033") == NULL && strchr(e.kind, ' ') == NULL && strchr(e.subject, ' ') == NULL);
	return 0;
}
