/*
 * A workload with something around it (proto/ipc/job.h) is several processes, one after the other, under one handle: each an
 * ordinary start by the launcher, in the same sandbox, cgroup and work directory, with one log. git runs there as the runner; no
 * stage but FETCH and PUSH has the credential, and nothing the workload wrote is executed in these two.
 *
 *   FETCH -> PLACE -> (CREATE) -> PAYLOAD -> (REMOVE) -> COLLECT -> PUSH
 *      \-> CLEAN <-/     a workspace that failed: what was begun goes, then the start is refused
 *
 * CREATE and REMOVE are a container's: its PAYLOAD is the engine's client, which may end or be killed while the container goes on, so
 * REMOVE follows every PAYLOAD and nothing is told as ended before the container is gone (container.h).
 *
 * The stage is in the record, and the launcher repeats that of the process it holds: a workerd that takes over after a kill -9
 * sees whether the next one was begun.
 */
#ifndef EDGEWARD_WORKERD_STAGE_H
#define EDGEWARD_WORKERD_STAGE_H

#include "proto/ipc/job.h"
#include "workerd/workload.h"

enum stage { STAGE_PAYLOAD, STAGE_FETCH, STAGE_PLACE, STAGE_CLEAN, STAGE_COLLECT, STAGE_PUSH, STAGE_CREATE, STAGE_REMOVE,
	STAGE_INSTALL,	/* alone: a harness, see harness.h */
	STAGES };

/* The stage of the process that was started last. */
enum stage stage_of(const struct workload *wl);
bool stage_is_before(const struct workload *wl);	/* the payload */
bool stage_is_after(const struct workload *wl);

/*
 * Notes a spec with its job, and without its secrets, in the new record and starts the first stage. bundle is the shipped branch, -1 = none; it stays the
 * caller's. 0 or -errno.
 */
int stage_first(struct workload *wl, struct work_spec *spec, const struct work_job *job, int bundle);

/* Starts the process of the stage in the record. 0 or -errno. */
int stage_launch(struct workload *wl);

/* An adopted one whose record is a stage ahead of what the launcher holds: that stage has ended, the next is started. */
int stage_catch_up(struct workload *wl);

/*
 * Its process is gone and its output is in the record: EV_DRAINED (that was the last stage), EV_NEXT (the next stage is in the
 * record), or EVENTS: nothing yet, EV_UNPREPARED follows when the log has been sent.
 */
enum event stage_drained(struct workload *wl);

/* The launcher refused the present stage. The event that follows, and in error what the asker is told. */
enum event stage_refused(struct workload *wl, char error[208]);

/* The last line of the present stage's own in its output ("edgeward: ..."), else otherwise. */
void stage_last_word(const struct workload *wl, const char *otherwise, char *buf, size_t size);

/* Something of its log was sent. */
void stage_sent(struct workload *wl);

/* How long one may take, in ms; 0 = as the start says. */
int64_t stage_deadline(enum stage stage);

/* At the very end: the outcome of the payload, when it was noted (true), and the result; the job is wiped. */
bool stage_finish(struct workload *wl);

/* Of a new workload. */
void stage_init(struct workload *wl);

/* What is wrong with a job on this device, by name; WORK_OK: nothing. */
enum work_refusal stage_check(const struct workerd *w, const struct work_spec *spec, const struct work_job *job, char error[208]);

#endif
