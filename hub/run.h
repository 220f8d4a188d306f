/*
 * One workload: its state, its log, who watches it. In memory while it is open, watched, or has bytes under way to the
 * disk; else it is a row of the store, and run_get() brings it back.
 */
#ifndef EDGEWARD_HUB_RUN_H
#define EDGEWARD_HUB_RUN_H

#include "hub/backsum.h"
#include "hub/frames.h"
#include "hub/hub.h"
#include "hub/session.h"
#include "proto/hub/stream.h"

#define RUN_WINDOW_AHEAD	(4u << 20)	/* beyond what has been written */
#define RUN_DIRTY_MAX		(32u << 20)	/* written but not flushed: then the window waits for the disk */
#define RUN_DIGEST_INLINE	(1u << 20)	/* a log up to this size is verified in the loop */

struct run_watch;

struct run {
	struct hub *hub;
	struct run *prev, *next;
	struct run_info info;
	struct logfile log;
	struct sync_item sync;		/* of log.fd; mark = log.next */
	struct sync_item digest;	/* in hub->digests */
	uint8_t digest_got[16];
	struct backsum back;		/* of the bundle that lies there */
	uint64_t epoch;			/* session it is bound to, 0 = none */
	uint32_t channel;		/* edgeward.1, in that session; 0 = none */
	bool edgeward;			/* of the session it is bound to */
	uint64_t ack_to;		/* acknowledged up to here as soon as it is durable, however little that is */
	bool listed;			/* in the heartbeat being looked at */
	bool closing;			/* final, digest not known yet */
	uint64_t acked;			/* last log_ack of this session */
	uint64_t window;		/* last WINDOW of this session */
	struct loop_timer timeout;
	unsigned kills;			/* signals sent because of the timeout */
	struct run_watch *watches;
	bool spec_gone;			/* its start is in the store no more */
	bool owes;			/* the store may have something that ends with it: store_shell_over() */
	bool shell;			/* it is there for a shell: shell.c */
	int32_t shell_code;		/* with which that ended: so did it, whatever ended its process; -1 = none is known */
	uint64_t shell_owner;		/* client.serial, 0 = gone */
	char away[64];			/* why the device's last session ended, "" = not known */
};

/* Somebody follows the log. cb is called when there is more, and when the run has ended for good. */
struct run_watch {
	struct run_watch *prev, *next;
	struct run *run;
	void (*cb)(struct run_watch *watch);
	void *ctx;
};

/* Makes a new one: stored, log file open. -EEXIST, -errno. */
int run_new(struct hub *hub, const struct run_info *info, const char *spec, size_t spec_len, struct run **ret_run);
/* From memory or the store; NULL when there is none or its log cannot be opened. */
struct run *run_get(struct hub *hub, const char *handle);
/* Frees it when nothing needs it in memory any more. */
void run_put(struct run *run);
/* At the end of the hub. */
void run_free(struct run *run);

void run_watch(struct run *run, struct run_watch *watch);
void run_unwatch(struct run_watch *watch);
/* Tells everybody who follows it. */
void run_notify(struct run *run);
/* Final, log complete, digest compared: nothing will change. */
bool run_is_closed(const struct run *run);

void run_scrub_init(struct hub *hub);

/* ---- what devices say (run.c) ---- */

void run_bind(struct run *run, struct session *s, uint32_t channel);
void run_started(struct run *run, const struct frame_started *started);
void run_refused(struct run *run, const char *code, const char *error);
void run_status(struct run *run, const struct frame_status *status);
void run_lost(struct run *run, const char *error);
/* Stores the current info. */
void run_save(struct run *run);

/* ---- the log (runlog.c) ---- */

/* 0, or -errno when the hub cannot store: the session must end, so that the device keeps the bytes. */
int run_text(struct run *run, struct session *s, const struct frame_chunk *chunk);
/* The same for a frame of the run's channel; -EPROTO with *ret_reset set when the channel is to be reset. */
int run_stream(struct run *run, struct session *s, const struct stream_frame *frame, enum stream_reset *ret_reset);
/* Sends log_ack and WINDOW where they are due. */
void run_ack(struct run *run);
/* A heartbeat wants everything acknowledged, now or when the flush it starts is done. */
void run_want_ack(struct run *run);
/* Starts a flush of what is not on disk yet. */
void run_flush(struct run *run);
/* Compares digests; called once the run is final. */
void run_verify(struct run *run);
void runlog_init(struct run *run);

#endif
