/* The admin request that starts a run, as it is encoded; its type stands in admin.h. */
#ifndef EDGEWARD_HUB_ADMINSTART_H
#define EDGEWARD_HUB_ADMINSTART_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hub/egress.h"
#include "hub/runinfo.h"
#include "proto/ipc/device.h"
#include "proto/ipc/spec.h"
#include "proto/ipc/wire.h"

/* What a run may use; 0 = as much as the device gives. The device refuses what it cannot hold it to. */
struct admin_limits {
	int64_t timeout_ms;
	uint32_t cpu_millis;		/* thousandths of a processor */
	uint32_t memory_mb;
	uint32_t pids;
	uint32_t disk_mb;		/* of a container alone */
	uint8_t overflow;		/* enum work_overflow */
};

struct admin_start {
	char handle[HANDLE_SIZE];
	char device[DEVICE_NAME_SIZE];
	char work_dir[1024];
	struct admin_limits limits;
	bool env_given;
	uint32_t argc, envc;
	const uint8_t *job;		/* encoded work_job (proto/ipc/job.h) */
	size_t job_len;			/* 0 = none */
	struct wire_r args;		/* argc strings, then envc */
	const uint8_t *secrets;		/* items of secrets.h, or NULL: files, and variables that are in env */
	size_t nsecrets;
	char devices[DEVICE_LIST_SIZE];	/* ids of what is forwarded to the device, and the run is to have */
	struct run_network net;
};

/* Checks a whole request: lengths, counts, UTF-8 without NUL (JSON carries nothing else), argv[0] not empty, env of the form K=V, a
 * good handle. On -EBADMSG *ret_why is a sentence. */
int admin_start_decode(struct admin_start *ret_start, const void *data, size_t len, const char **ret_why);

/* The next string of start->args, in order; NULL at the end. Not NUL-terminated. */
const char *admin_start_next(struct admin_start *start, size_t *ret_len);

/* Encodes; argv and env are NULL-terminated, env NULL = none given; job of job_len bytes, 0 = none. -ENOSPC. */
int admin_start_encode(void *buf, size_t size, size_t *ret_len, const char *handle, const char *device,
    const char *work_dir, const struct admin_limits *limits, const void *job, size_t job_len, char *const argv[], char *const env[]);

/* Appends secrets, devices and the network (fw: of FILTERED) to an encoded request of *len bytes; nothing, if there are none. -ENOSPC. */
int admin_start_more(void *buf, size_t size, size_t *len, const void *items, size_t nitems, const char *devices, enum work_network network,
    const struct firewall *fw);

#endif
