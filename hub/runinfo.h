/* What is known about one run (a workload on a device): the row of the store and what the CLI prints. Data only. */
#ifndef EDGEWARD_HUB_RUNINFO_H
#define EDGEWARD_HUB_RUNINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/names.h"

#define DEVICE_ID_SIZE		17	/* 16 characters of base64url */
#define DEVICE_NAME_SIZE	64

/* Values are stored in the database and sent to the CLI: never renumber. */
enum run_state {
	RUN_PENDING = 1,	/* stored here, the device has not answered yet */
	RUN_RUNNING = 2,
	RUN_EXITED = 3,		/* from here on final */
	RUN_KILLED = 4,
	RUN_FAILED = 5,		/* the device says it failed */
	RUN_REFUSED = 6,	/* the device did not start it */
	RUN_LOST = 7,		/* the device does not hold it any more and never reported an end */
};

enum run_verify {
	RUN_UNVERIFIED = 0,	/* not finished, or the device gave no digest (plain cloop) */
	RUN_VERIFIED = 1,	/* XXH3-128 of what is on our disk equals the device's */
	RUN_MISMATCH = 2,
	RUN_GAPPED = 3,		/* not verifiable: bytes are missing */
	RUN_CUT = 4,		/* the device lost the run: the log ends where it was */
};

struct run_info {
	char handle[HANDLE_SIZE];
	char device[DEVICE_ID_SIZE];
	enum run_state state;
	enum run_verify verify;
	int32_t exit_code;
	int32_t pid;
	int32_t term_signal;			/* that ended it, 0 = none or unknown */
	int64_t created, started, finished;	/* ns since 1970, 0 = unknown */
	int64_t ended;				/* by the hub's clock; finished is by the device's */
	int64_t timeout_ms;			/* 0 = none */
	int64_t final_offset;			/* bytes the device counted, -1 = not told yet */
	bool timed_out;				/* the hub ended it at its timeout */
	bool gapped;				/* bytes are missing in the log */
	bool has_digest;
	uint8_t digest[16];			/* canonical XXH3-128 as the device told it */
	char outcome[16];			/* edgeward.1: exited, signalled, ... */
	char limit[16];
	char code[24];				/* stable code of a refusal */
	char error[256];
	char command[256];			/* argv for display, cut */
	char work_dir[256];			/* for display, cut */
};

static inline bool
run_state_is_final(enum run_state state)
{
	return state >= RUN_EXITED;
}

/* "pending", "running", "exited", "killed", "failed", "refused", "lost" */
const char *run_state_name(enum run_state state);
/* "unverified", "verified", "mismatch", "gap" */
const char *run_verify_name(enum run_verify verify);

/*
 * Exit code of `edgehub run` for a finished run: the workload's own, 128 + signal, or one of RUN_EXIT_*.
 */
#define RUN_EXIT_NO_RESULT	120	/* it ended well, and what it should bring back did not come */
#define RUN_EXIT_HUB_GONE	121
#define RUN_EXIT_LOST		122
#define RUN_EXIT_REFUSED	123
#define RUN_EXIT_TIMEOUT	124
#define RUN_EXIT_NOT_STARTED	125
int run_exit_code(const struct run_info *info);

/* Copies text from a device for display: valid UTF-8 without control characters, cut on a character. */
void text_clean(char *dst, size_t size, const char *src);

#endif
