/* The words edgectl prints for numbers. They are part of the JSON schema: never changed, only added to. */
#include "edgectl/edgectl.h"
#include "proto/ipc/launch.h"

#define LOOK_UP(table, i)	\
	((i) < sizeof(table) / sizeof((table)[0]) && (table)[i] != NULL ? (table)[i] : "unknown")

const char *
name_of_link(uint32_t link)
{
	static const char *const names[] = {
		[CTL_LINK_STARTING] = "starting", [CTL_LINK_UNENROLLED] = "unenrolled", [CTL_LINK_RESOLVING] = "resolving",
		[CTL_LINK_CONNECTING] = "connecting", [CTL_LINK_PROXY] = "proxy", [CTL_LINK_TLS] = "tls",
		[CTL_LINK_UPGRADING] = "upgrading", [CTL_LINK_HELLO] = "hello", [CTL_LINK_CONNECTED] = "connected",
		[CTL_LINK_WAITING] = "waiting", [CTL_LINK_STOPPED] = "stopped", [CTL_LINK_UNCONFIGURED] = "unconfigured",
	};

	return LOOK_UP(names, link);
}

const char *
name_of_dialect(uint32_t dialect)
{
	static const char *const names[] = {
		[WORK_DIALECT_NONE] = "none", [WORK_DIALECT_CLOOP] = "cloop", [WORK_DIALECT_EDGEWARD1] = "edgeward.1",
	};

	return LOOK_UP(names, dialect);
}

const char *
name_of_state(uint32_t state)
{
	static const char *const names[] = {
		[WORK_PENDING] = "pending", [WORK_RUNNING] = "running", [WORK_ENDED] = "ended",
	};

	return LOOK_UP(names, state);
}

const char *
name_of_outcome(uint32_t outcome)
{
	static const char *const names[] = {
		[WORK_OUTCOME_NONE] = "none", [WORK_OUTCOME_EXITED] = "exited", [WORK_OUTCOME_SIGNALLED] = "signalled",
		[WORK_OUTCOME_CANCELLED] = "cancelled", [WORK_OUTCOME_TIMEOUT] = "timeout", [WORK_OUTCOME_LIMIT] = "limit",
		[WORK_OUTCOME_LOST] = "lost",
	};

	return LOOK_UP(names, outcome);
}

const char *
name_of_limit(uint32_t limit)
{
	static const char *const names[] = {
		[WORK_LIMIT_NONE] = "none", [WORK_LIMIT_MEMORY] = "memory", [WORK_LIMIT_PIDS] = "pids", [WORK_LIMIT_CPU] = "cpu",
		[WORK_LIMIT_OUTPUT] = "output", [WORK_LIMIT_DISK] = "disk",
	};

	return LOOK_UP(names, limit);
}

const char *
name_of_refusal(uint32_t refusal)
{
	static const char *const names[] = {
		[WORK_OK] = "ok", [WORK_REFUSED_BUSY] = "busy", [WORK_REFUSED_FORBIDDEN_PATH] = "forbidden_path",
		[WORK_REFUSED_POLICY] = "policy", [WORK_REFUSED_SANDBOX] = "sandbox", [WORK_REFUSED_DISK_LOW] = "disk_low",
		[WORK_REFUSED_MEMORY_LOW] = "memory_low", [WORK_REFUSED_UNSUPPORTED] = "unsupported",
		[WORK_REFUSED_BAD_SPEC] = "bad_spec", [WORK_REFUSED_START_FAILED] = "start_failed",
		[WORK_REFUSED_UNKNOWN_HANDLE] = "unknown_handle",
	};

	return LOOK_UP(names, refusal);
}

const char *
name_of_gap(uint32_t reason)
{
	static const char *const names[] = {
		[WORK_GAP_MEMORY] = "memory", [WORK_GAP_SPOOL] = "spool", [WORK_GAP_DISK] = "disk", [WORK_GAP_LOST] = "lost",
	};

	return LOOK_UP(names, reason);
}

const char *
name_of_cgroup(uint32_t cgroup)
{
	static const char *const names[] = { "none", "hybrid", "v2" };

	return LOOK_UP(names, cgroup);
}

const char *
name_of_tree(uint32_t tree)
{
	static const char *const names[] = { [LAUNCH_TREE_CGROUP] = "cgroup", [LAUNCH_TREE_PIDNS] = "pidns" };

	return LOOK_UP(names, tree);
}
