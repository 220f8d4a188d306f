/* What the parts of workerd share: one struct, made in main.c, passed by pointer. */
#ifndef EDGEWARD_WORKERD_H
#define EDGEWARD_WORKERD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"
#include "common/eventlog.h"
#include "common/grow.h"
#include "common/ipc.h"
#include "common/loop.h"
#include "common/policy.h"
#include "proto/ipc/launch.h"
#include "proto/ipc/secrets.h"
#include "proto/ipc/work.h"
#include "workerd/carriers.h"
#include "workerd/container.h"
#include "workerd/attach.h"
#include "workerd/devices.h"
#include "workerd/ids.h"
#include "workerd/inventory.h"
#include "workerd/journal.h"
#include "workerd/l2.h"
#include "workerd/owners.h"
#include "workerd/record.h"
#include "workerd/spooldir.h"
#include "workerd/workload.h"

#define CONTROL_CLIENTS	16u
#define LEASE_TOMBSTONES 64u
#define HARNESS_ASKS	4u

/* What was revoked lately, for the log: a start that brings it again is a renewal. */
struct lease_tombstone {
	char lease[SECRET_ID_SIZE], grant[SECRET_ID_SIZE];
};

struct lease_op;

struct control_client {
	struct ipc_chan chan;
	struct workerd *w;
	struct ipc_hdr waiting;		/* a LOGS request that waits; id 0 = none */
	uint32_t waits_for;		/* wid */
	uint64_t waits_from;
	uint32_t waits_max;
	bool used;
};

struct workerd {
	struct loop *loop;
	struct conf conf;
	struct policy policy;
	const char *conf_file, *policy_file, *rundir, *pool_file;
	uint32_t slots, undelivered_max;
	struct ids ids;
	struct owners owners;
	struct work_caps caps;
	struct inventory inventory;
	struct workloads all;
	struct record_spares spares;
	struct journal journal;
	struct journal_record *from_journal;	/* read at start, until the launcher has said what it holds */
	size_t nfrom_journal;
	uint32_t disk_major, disk_minor;	/* the whole disk of the work root; 0:0 = no one disk */
	bool disk_was_low;
	struct loop_timer account;	/* account.c: the next look for a pool */
	unsigned account_looks;
	int account_fd;			/* to ask for one; -1 = there is nobody to ask */
	int results;			/* directory of result.c, -1 = none */
	struct spooldir spool;
	struct loop_timer spill;	/* the next look at what should go to the spool */
	monotime_t since;
	int exit_code;
	bool reloading;			/* another workerd comes after this one */

	/* launchchan.c */
	struct ipc_chan launcher;
	struct launch_ready ready;
	bool up;			/* READY and HELD_END have come */
	uint32_t awaited;		/* taken back, had ended before, and the launcher's word on it is still to come */

	/* privchan.c */
	struct ipc_chan priv;
	struct loop_timer priv_retry;
	int64_t priv_delay;
	int32_t priv_pid;
	struct grow faults;		/* of the work channel */

	/* workchan.c */
	struct ipc_chan work;
	uint64_t pair;			/* 0 = no work channel */
	uint32_t max_data;		/* bytes of output in a record */
	bool blocked;			/* the socket is full; writable() will be called */
	bool session;			/* connectd has one with the hub */
	struct loop_timer overflow;	/* the end of overflow-wait */
	struct workload *pump_next;	/* whose turn it is to send */
	struct loop_timer pump;		/* somebody's turn ended before it had sent all */

	/* leases.c */
	struct lease_op *lease_ops;	/* under way */
	struct lease_tombstone tombstones[LEASE_TOMBSTONES];
	unsigned next_tombstone;
	struct devices devices;
	struct l2 l2;
	struct containers containers;
	struct attaches attaches;
	struct carriers carriers;

	struct {
		uint32_t asks[HARNESS_ASKS];	/* requests that wait for the installation under way */
		unsigned n;
	} harness;

	/* control.c */
	struct loop_io control;
	struct control_client clients[CONTROL_CLIENTS];
	uint64_t started, refused, output_bytes, gap_bytes;	/* since start, for status */
	uint64_t outcomes[WORK_OUTCOME_LOST + 1], refusals[WORK_REFUSED_UNKNOWN_HANDLE + 1];	/* for metrics, by enum */
	struct eventlog events;
};

#endif
