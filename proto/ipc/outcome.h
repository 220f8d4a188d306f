/* What a workload can be in, what can become of it, and why a request is refused: values of the work channel and of records on disk. */
#ifndef EDGEWARD_PROTO_OUTCOME_H
#define EDGEWARD_PROTO_OUTCOME_H

enum work_state {
	WORK_PENDING = 1,	/* accepted, not running yet */
	WORK_RUNNING = 2,
	WORK_ENDED = 3,		/* the outcome is known and final */
};

enum work_outcome {
	WORK_OUTCOME_NONE = 0,
	WORK_OUTCOME_EXITED = 1,	/* exit_code */
	WORK_OUTCOME_SIGNALLED = 2,	/* term_signal, not asked for by us */
	WORK_OUTCOME_CANCELLED = 3,	/* ended by a signal the hub, an operator or a disown asked for */
	WORK_OUTCOME_TIMEOUT = 4,
	WORK_OUTCOME_LIMIT = 5,
	WORK_OUTCOME_LOST = 6,		/* reboot, power, launcher or workinit gone */
};

/* Why a request was refused; WORK_OK is success. The text beside it is for the operator. */
enum work_refusal {
	WORK_OK = 0,
	WORK_REFUSED_BUSY = 1,
	WORK_REFUSED_FORBIDDEN_PATH = 2,
	WORK_REFUSED_POLICY = 3,
	WORK_REFUSED_SANDBOX = 4,
	WORK_REFUSED_DISK_LOW = 5,
	WORK_REFUSED_MEMORY_LOW = 6,
	WORK_REFUSED_UNSUPPORTED = 7,
	WORK_REFUSED_BAD_SPEC = 8,
	WORK_REFUSED_START_FAILED = 9,
	WORK_REFUSED_UNKNOWN_HANDLE = 10,
};

/* Which limit ended a workload whose outcome is LIMIT. */
enum work_limit {
	WORK_LIMIT_NONE = 0,
	WORK_LIMIT_MEMORY = 1,
	WORK_LIMIT_PIDS = 2,
	WORK_LIMIT_CPU = 3,
	WORK_LIMIT_OUTPUT = 4,
	WORK_LIMIT_DISK = 5,
};

enum work_gap_reason {		/* the wire values of edgeward.1's GAP frame */
	WORK_GAP_MEMORY = 1,
	WORK_GAP_SPOOL = 2,
	WORK_GAP_DISK = 3,
	WORK_GAP_LOST = 4,
};

#endif
