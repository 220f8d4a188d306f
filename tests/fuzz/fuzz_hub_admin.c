/* Records on edgehub's admin socket: header, dispatch check, the start request and the fixed structs. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hub/admin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
start(const uint8_t *data, size_t size)
{
	struct admin_start s;
	const char *why;
	size_t len;

	if (admin_start_decode(&s, data, size, &why) < 0)
		return;
	for (uint32_t n = 0; n < s.argc + s.envc; n++)	/* secrets and devices may follow */
		if (admin_start_next(&s, &len) == NULL)
			__builtin_trap();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct admin_token_req token;
	struct admin_runs_req runs;
	struct admin_follow follow;
	struct admin_signal sig;
	struct admin_text text;
	struct ipc_hdr hdr;

	if (size < sizeof(hdr))
		return 0;
	memcpy(&hdr, data, sizeof(hdr));
	(void)ipc_check(&hdr, size, ADMIN_MAX, 0);
	data += sizeof(hdr);
	size -= sizeof(hdr);
	start(data, size);
	if (size == sizeof(token))
		(void)admin_token_req_ok(memcpy(&token, data, size));
	if (size == sizeof(runs))
		(void)admin_runs_req_ok(memcpy(&runs, data, size));
	if (size == sizeof(follow) && admin_follow_ok(memcpy(&follow, data, size)) &&
	    strlen(follow.handle) >= sizeof(follow.handle))
		__builtin_trap();
	if (size == sizeof(sig) && admin_signal_ok(memcpy(&sig, data, size)) && strlen(sig.signal) >= sizeof(sig.signal))
		__builtin_trap();
	if (size == sizeof(text))
		(void)admin_text_ok(memcpy(&text, data, size));
	return 0;
}
