#include "proto/ipc/harness.h"

#include <string.h>

#include "proto/ipc/ipc.h"

bool
harness_name_ok(const char *name)
{
	size_t len = strlen(name);

	return len > 0 && len <= 64 &&
	    strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

bool
harness_done_ok(const struct harness_done *done)
{
	if (done->installed > 1 || done->present > 1 || !ipc_text_ok(done->path, sizeof(done->path)) ||
	    !ipc_text_ok(done->version, sizeof(done->version)) || !ipc_str_ok(done->reason, sizeof(done->reason)))
		return false;
	for (const char *p = done->reason; *p != '\0'; p++)
		if ((*p < ' ' || *p > '~') && *p != '\n')
			return false;
	return true;
}
