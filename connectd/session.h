/*
 * One session: from the WebSocket being open to its end. Speaks cloop or edgeward.1, for which it has the same states and
 * order; the differences are in logsend.c and a few fields.
 *
 * Order (cloop.md 4.1): workerd is asked for a fresh view; hello offers all it holds; the welcome's verdicts set every
 * cursor; the session is published; the first heartbeat goes out; refused workloads are stopped; output and owed
 * terminal statuses follow. Everything that belongs to a session lives in this struct and in the session parts of the
 * mirror, and is wiped when one begins.
 */
#ifndef EDGEWARD_CONNECTD_SESSION_H
#define EDGEWARD_CONNECTD_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/conf.h"
#include "common/loop.h"
#include "common/policy.h"
#include "connectd/backoff.h"
#include "connectd/caps.h"
#include "connectd/branch.h"
#include "connectd/cloop.h"
#include "connectd/hold.h"
#include "connectd/hubconn.h"
#include "connectd/invframe.h"
#include "connectd/logsend.h"
#include "connectd/mirror.h"
#include "connectd/results.h"
#include "connectd/workchan.h"
#include "proto/hub/mux.h"
#include "proto/ipc/harness.h"

enum session_state { SESSION_SYNCING, SESSION_HELLO, SESSION_UP, SESSION_OVER };

enum session_how {
	SESSION_FAILED,		/* try again */
	SESSION_HUB_LEFT,	/* bye: the hub goes and will be back */
	SESSION_STOPPED,	/* for good */
};

/* Why a session judged that it is over. */
struct session_over {
	enum session_how how;
	uint16_t close_code;		/* 0 = the link is dead, no close frame */
	bool identity;			/* the hub refused who we are */
	bool named;			/* window is what the hub asked for */
	struct backoff_window window;
	char code[32];			/* stable cause code */
	char detail[200];		/* one sentence, printable */
};

struct session_ops {
	/* Once, from anywhere; the owner frees the session later, from the loop. */
	void (*over)(const struct session_over *over, void *ctx);
	void (*up)(void *ctx);
	/* The welcome carried these; credential may be NULL. -errno: the session has failed, and over() was not called. */
	int (*identity)(const char *credential, const char *executor_id, void *ctx);
	void (*server_time)(int64_t wall_ns, int64_t server_ns, void *ctx);
	/* Stable codes of what is wrong now, for the heartbeat of edgeward.1. Returns how many, at most max. */
	size_t (*health)(const char **codes, size_t max, void *ctx);
};

struct session_params {
	struct loop *loop;
	const struct conf *conf;
	const struct policy *policy;
	const struct device_caps *device;
	struct mirror *mirror;
	struct workchan *work;
	struct hubconn *conn;
	bool edgeward1;
	int statefd;			/* for branches that are shipped */
	const char *agent_id;		/* "" while enrolling */
	const char *name;
	struct upgrader *upgrader;	/* NULL: there is none */
	const struct services *services;	/* svcstream.h; these three may be NULL: then nothing is served */
	struct netenv *env;
	struct eventlog *events;
	struct counts *counts;		/* may be NULL, in tests */
	uint64_t *beat_seq;		/* of the process; the number of the last beat */
	const struct session_ops *ops;
	void *ctx;
};

#define HARNESS_REQUESTS 4u
struct harness_request {
	bool used;
	uint32_t ipc_id;		/* 0 = not with workerd now */
	char id[CLOOP_ID_SIZE];
	struct harness_ask ask;
};

struct request;
struct lease_request;
struct forward;
struct netenv;
struct eventlog;
struct counts;
struct services;
struct svc_stream;
struct attach;
struct filestream;

struct session {
	struct session_params p;
	enum session_state state;
	int64_t version;		/* of the frames we send: 1 until the welcome says otherwise */
	struct logsend logs;
	struct mux mux;			/* streams.c */
	struct hold hold;
	struct invframe inventory;
	struct branch *branches;	/* branch.c */
	unsigned nbranches;
	bool bundle_chunks;		/* this hub takes results as chunks alone: bundlesend.c */
	struct request *requests;
	unsigned nrequests;
	size_t specs;			/* bytes of starts that are kept */
	struct lease_request *leases;
	struct harness_request harnesses[HARNESS_REQUESTS];	/* harness.c */
	struct forward *forwards;	/* forward.c */
	struct svc_stream *svcs;	/* svcstream.c */
	unsigned nsvcs;
	struct attach *attaches;	/* attach.c */
	unsigned nattaches;
	struct filestream *files;	/* filestream.c */
	struct loop_timer handshake, beat, check, logs_timer, streams_timer;
	int64_t beat_ms;
	uint64_t first_beat;		/* of this session; 0 = none yet */
	uint64_t acked_beat;		/* highest acknowledged */
	unsigned unconfirmed;		/* terminal statuses sent since the last beat */
	monotime_t last_beat_at;
	monotime_t unacked_since;	/* when the oldest beat without an ack was sent; NEVER = all have one */
	int64_t rtt_us;			/* -1 = unknown */
	bool named;			/* the hub's bye named a window to come back in */
	struct backoff_window window;
	int64_t clock_offset_ms;	/* hub minus us; INT64_MIN = unknown */
	uint64_t results_beat;		/* results of upgrades were sent before this beat; 0 = none waits */
	uint64_t results_to;		/* up to this attempt; and of the job of this id, which ended here */
	char results_job[HANDLE_SIZE];
	uint64_t unknown_frames;
	char out[8192];			/* for frames of bounded size */
};

/* The WebSocket is open. -ENOMEM. */
int session_new(const struct session_params *params, struct session **ret_session);
void session_free(struct session *s);

/* From hubconn. */
void session_text(struct session *s, const uint8_t *data, size_t len);
void session_binary(struct session *s, const uint8_t *data, size_t len);
void session_writable(struct session *s);

/* ---- between the files of the session ---- */

/* Ends the session by its own judgement. Only the first call counts. */
void session_end(struct session *s, enum session_how how, uint16_t close_code, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* Sends what w holds (begun by cloop_begin, not ended). */
void session_send(struct session *s, struct json_w *w);
void session_begin_frame(struct session *s, struct json_w *w, const char *type, const char *id, const char *handle);
void session_send_error(struct session *s, const char *id, const char *code, const char *message);

/* frames.c: one decoded frame of the hub. */
void frames_dispatch(struct session *s, const struct cloop_frame *f);

/* welcome.c */
void welcome_send_hello(struct session *s);
void welcome_take(struct session *s, const struct cloop_frame *f);

/* beat.c */
void beat_start(struct session *s);
void beat_stop(struct session *s);
void beat_soon(struct session *s);	/* edgeward.1: a terminal status waits for its ack */
void beat_acked(struct session *s, const struct cloop_frame *f);

/* report.c: terminal statuses. */
void report_try(struct session *s, struct mirror_entry *e);
void report_all(struct session *s);
void report_acked(struct session *s, uint64_t seq);

/* requests.c: start and signal, from the frame to the answer. */
void requests_start(struct session *s, const struct cloop_frame *f);
void requests_signal(struct session *s, const struct cloop_frame *f);
void requests_status(struct session *s, const struct cloop_frame *f);
void requests_answer(struct session *s, uint32_t ipc_id, const struct work_answer *a);
void requests_workload(struct session *s, const struct mirror_entry *e);
void requests_gone(struct session *s, const struct mirror_entry *e);
void requests_work_down(struct session *s);
void requests_work_back(struct session *s);
void requests_free(struct session *s);

/* harness.c */
void harness_install(struct session *s, const struct cloop_frame *f);
void harness_answer(struct session *s, uint32_t ipc_id, const struct harness_done *done);
void harness_work_down(struct session *s);
void harness_work_back(struct session *s);

/* leases.c: revoke and secret_refresh, from the frame to the answer. */
void leases_revoke(struct session *s, const struct cloop_frame *f);
void leases_refresh(struct session *s, const struct cloop_frame *f);
void leases_report(struct session *s, uint32_t ipc_id, const struct work_report *rep);
void leases_work_down(struct session *s);
void leases_work_back(struct session *s);
void leases_free(struct session *s);

#endif
