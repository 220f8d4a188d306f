/* One workload and the table of all of them. What happens to it, and what follows, is in life.h. */
#ifndef EDGEWARD_WORKERD_WORKLOAD_H
#define EDGEWARD_WORKERD_WORKLOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/ipc.h"
#include "common/loop.h"
#include "proto/ipc/launch.h"
#include "proto/ipc/work.h"
#include "workerd/ids.h"
#include "workerd/record.h"
#include "workerd/state.h"

struct workerd;
struct journal_record;
struct spool;
struct vault;

#define WORKLOAD_ASKERS	4u
#define WORKLOAD_BUCKETS 256u

struct workload {
	struct workerd *w;
	struct workload *next, *prev;			/* all, oldest first */
	struct workload *next_wid, *next_handle;	/* chains of the two tables */
	enum state state;
	struct work_workload info;	/* as connectd is told; produced and retained_from are filled when it is */
	char top[IDS_TOP_SIZE];		/* top-level directory, for the choice of ids */
	struct record rec;		/* h NULL: known from the journal alone, or damaged */
	bool held;			/* the launcher has it */
	bool awaited;			/* counted in workerd.awaited */
	bool delivered;			/* the hub has the end already: forget it as soon as the launcher says it has ended */
	bool journaled_end;
	uint32_t start_id;		/* of the request to the launcher, 0 = none under way */
	struct launch_ended end;	/* valid from DRAINING on */
	struct ipc_chan init;
	struct loop_timer timer;	/* deadline, or the end of the grace */
	uint32_t askers[WORKLOAD_ASKERS];	/* ids of START requests of this work channel that wait */
	unsigned naskers;

	/* stage.c, result.c */
	int bundle;			/* the branch that was shipped, while the first stage is started; -1 = none */
	bool refusing;			/* it failed before the payload; refused when its log was sent */
	struct loop_timer refuse_timer;		/* and the pause before a container is looked for again */
	unsigned removals;		/* of its container that failed */
	struct work_result *result;	/* NULL = none */
	bool result_told;		/* on the present work channel */

	struct vault *vault;		/* NULL: it has no secrets, or has ended */
	/* output.c */
	int pipe;			/* -1 = closed */
	struct loop_io pipe_io;
	struct loop_timer pipe_timer;	/* the pipe is left alone until then */
	bool pipe_large, full;		/* grown; the ring is full and nothing may be dropped */
	bool subscribed, end_sent;
	/* spill.c */
	struct spool *spool;		/* NULL: nothing of it is or was on the disk */
	bool stalled, spill_failed;	/* the hub takes nothing; the last write did not work */
	uint64_t acked_seen;
	monotime_t acked_seen_at;
	uint32_t epoch;
	uint64_t cursor, limit;		/* next byte to send, first that may not be sent */
	struct lostset lost;		/* of one without a record, which has its own */
};

struct workloads {
	struct workload *first, *last;
	struct workload *by_wid[WORKLOAD_BUCKETS], *by_handle[WORKLOAD_BUCKETS];
	uint32_t last_wid;
	uint32_t counts[STATES];
};

/* A new one in the table, without a record. NULL = no memory. */
struct workload *workload_add(struct workerd *w, const char *handle, enum state state);
struct workload *workload_by_wid(const struct workerd *w, uint32_t wid);
struct workload *workload_by_handle(const struct workerd *w, const char *handle);

/* The device's own, by its handle: connectd, the journal and the spool do not know it. */
bool workload_is_own(const struct workload *wl);

/* From what the launcher handed back. Takes fds: output, init channel, record, report; what it leaves is the caller's. */
int workload_adopt(struct workerd *w, const struct launch_held *held, int fds[4]);

/* One whose launcher is gone: known from the journal. */
void workload_from_journal(struct workerd *w, const struct journal_record *rec);

/* Its state as connectd and edgectl are told. */
void workload_info(const struct workload *wl, struct work_workload *ret_info);

/* The offsets of its output: first byte held in memory or in the spool, end. Between them there may be gaps. */
uint64_t workload_tail(const struct workload *wl);
uint64_t workload_head(const struct workload *wl);

/* Bytes of output it holds in memory. */
uint64_t workload_in_memory(const struct workload *wl);

/* Bytes of its output are lost: each is counted once, none that the hub has acknowledged. */
void workload_lost(struct workload *wl, uint64_t from, uint64_t to);

/* The oldest bytes in memory go, up to offset; lost is what connectd was never given. */
void workload_drop(struct workload *wl, uint64_t offset);

/* Rewrites the journal to what is known now. */
int workload_compact(struct workerd *w);

void workload_free(struct workload *wl);
void workloads_done(struct workerd *w);

#endif
