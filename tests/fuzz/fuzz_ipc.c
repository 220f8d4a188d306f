/* ipc_check and ipc_rule_find over a record as it comes from the socket; and the message checks of each channel. */
#include <stdint.h>
#include <string.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/launch.h"
#include "proto/ipc/work.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, sizeof(struct ipc_hello), sizeof(struct ipc_hello), NULL },
	{ WORK_EV_WORKLOAD, IPC_ST_OPEN, 0, 0, sizeof(struct work_workload), sizeof(struct work_workload), NULL },
	{ WORK_EV_OUTPUT, IPC_ST_OPEN, 0, 0, sizeof(struct work_output) + 1, IPC_MAX_WORK, NULL },
	{ LAUNCH_REQ_START, IPC_ST_OPEN, 4, 4, sizeof(struct launch_start), sizeof(struct launch_start), NULL },
	{ LAUNCH_EV_HELD, IPC_ST_OPEN, 4, 4, sizeof(struct launch_held), sizeof(struct launch_held), NULL },
};

static void
check_body(const struct ipc_hdr *hdr, const uint8_t *body)
{
	static const struct launch_ready ready = { .pool_first = 60000, .pool_count = 64 };
	union {
		struct work_workload workload;
		struct launch_start start;
		struct launch_held held;
	} u;

	if (hdr->len > sizeof(u))
		return;
	memset(&u, 0, sizeof(u));
	memcpy(&u, body, hdr->len);
	if (hdr->type == WORK_EV_WORKLOAD)
		work_workload_ok(&u.workload);
	else if (hdr->type == LAUNCH_REQ_START)
		launch_start_ok(&u.start, &ready);
	else if (hdr->type == LAUNCH_EV_HELD)
		launch_held_ok(&u.held, &ready);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct ipc_hdr hdr = { 0 };

	memcpy(&hdr, data, size < sizeof(hdr) ? size : sizeof(hdr));
	if (ipc_check(&hdr, size, IPC_MAX_WORK, hdr.nfds) < 0)
		return 0;
	for (unsigned state = IPC_ST_HELLO; state <= IPC_ST_OPEN; state <<= 1)
		if (ipc_rule_find(rules, sizeof(rules) / sizeof(rules[0]), state, &hdr) != NULL)
			check_body(&hdr, data + sizeof(hdr));
	return 0;
}
