/* The specification of a workload: what START carries from connectd to workerd, and workerd gives workinit. */
#ifndef EDGEWARD_PROTO_SPEC_H
#define EDGEWARD_PROTO_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/device.h"
#include "proto/ipc/firewall.h"
#include "proto/ipc/names.h"

#define WORK_ARGV_MAX	4096		/* strings */
#define WORK_ENV_MAX	4096
#define WORK_SPEC_MAX	(1u << 20)	/* bytes of an encoded spec */
#define WORK_DIR_SIZE	1024

struct work_str {		/* a view into the encoded spec, not NUL-terminated, holds no NUL */
	const char *s;
	size_t len;
};

/* The network of a workload. What a hub asks for is one of the first three; what workinit is told is no DEFAULT. */
enum work_network {
	WORK_NETWORK_DEFAULT,	/* what the device's policy says */
	WORK_NETWORK_NONE,
	WORK_NETWORK_FILTERED,	/* what struct work_net says, and nothing else */
	WORK_NETWORK_HOST,
};

/* What happens to output when memory and spool are full: the start's choice, or what [work] overflow of the device says. */
enum work_overflow {
	WORK_OVERFLOW_DEVICE,
	WORK_OVERFLOW_WAIT,		/* as long as a session is up, and for overflow-wait after it */
	WORK_OVERFLOW_WAIT_FOREVER,
	WORK_OVERFLOW_DROP,		/* the oldest bytes go at once */
	WORK_OVERFLOWS
};
#define WORK_OVERFLOW_LABEL	"edgeward.overflow"	/* of a start: one of the words of work_overflow_parse() */

#define WORK_TIMEOUT_LABEL	"edgeward.timeout"	/* of a start: the seconds its timeout_minutes was rounded up from */

#define WORK_COMMAND_SIZE	208	/* of a command line that is shown, with its NUL */

struct work_net {
	struct firewall rules;
	bool bounded;
	struct firewall bound;	/* the rules must be inside of it */
};

/*
 * A decoded spec. Strings are views into the encoded bytes. Limits of 0 mean none. env_given distinguishes "no
 * environment was sent" (the device's default) from an empty list.
 */
struct work_spec {
	char handle[HANDLE_SIZE];
	char work_dir[WORK_DIR_SIZE];	/* as the hub sent it: relative, absolute or "" */
	uint32_t timeout_s;		/* 0 = none */
	uint32_t asked_s;		/* of it, what was asked for: the hub ends the run itself then, more gently; 0 = all of it */
	bool env_given;
	uint32_t cpu_millis;
	uint64_t memory_bytes, disk_bytes;
	uint32_t pids;
	struct work_str secrets;	/* items of secrets.h, secrets_ok(); may hold NULs; empty = none */
	uint32_t argc, envc;
	struct work_str *argv, *env;	/* allocated by the caller: WORK_ARGV_MAX and WORK_ENV_MAX entries */
	char devices[DEVICE_LIST_SIZE];	/* ids of forwarded devices it leases; "" = none */
	struct work_str job;		/* an encoded work_job (job.h), or empty; not for workinit */
	uint8_t network;		/* enum work_network */
	uint8_t overflow;		/* enum work_overflow */
	bool contained;			/* set by workerd alone: its limits and network are the engine's to keep */
	struct work_net *net;		/* allocated by the caller, valid with WORK_NETWORK_FILTERED; NULL: such a spec is refused */
};

/* "wait", "wait-forever", "drop"; -EINVAL for anything else. */
int work_overflow_parse(const char *word);
const char *work_overflow_name(enum work_overflow overflow);	/* "" of DEVICE */

/* Encodes into buf. Returns 0 and the length, -ENOSPC, or -EINVAL when the spec breaks a limit. */
int work_spec_encode(const struct work_spec *spec, void *buf, size_t size, size_t *ret_len);

/*
 * Decodes and bounds. spec->argv and spec->env must point to WORK_ARGV_MAX and WORK_ENV_MAX entries.
 * Returns 0 or -EBADMSG; never reads beyond len. Refuses: a bad handle, argc 0, an empty argv[0], an env entry without
 * '=' or with an empty name, NUL anywhere, trailing bytes.
 */
int work_spec_decode(struct work_spec *spec, const void *data, size_t len);

/*
 * argv or env of a decoded spec as the NULL-terminated list that execve wants; list has n + 1 entries. Writes a NUL behind
 * each string, into the decoded bytes (over the length of the next one) and one byte beyond them, so the buffer must have
 * that byte. Once only, after decoding.
 */
void work_spec_strings(const struct work_str *from, uint32_t n, char *data, char **list);

#endif
