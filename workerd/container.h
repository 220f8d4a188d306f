/*
 * Workloads in containers: an engine's client runs as the runner in the ordinary sandbox, without a network and with the engine's socket in
 * its view; the engine, which is the operator's and may be root's, runs the container. So the container is none of our processes: not in
 * our cgroup, not under our filter. Nothing here says otherwise: its usage is told as unknown, its limits are the engine's to keep.
 *
 * policy.conf decides: no socket there, no containers. What cannot be had is refused by name and never run on the host instead. The life of
 * one is stage.h's; what was left behind by a crash is sweep.h's.
 */
#ifndef EDGEWARD_WORKERD_CONTAINER_H
#define EDGEWARD_WORKERD_CONTAINER_H

#include "proto/ipc/attach.h"
#include "workerd/engine.h"
#include "workerd/stage.h"

/* By these the client's script ends itself (steps/engine/attach.sh): a container's exit code is never a signal of the script. */
#define CONTAINER_SIGNAL_DISK	63
#define CONTAINER_SIGNAL_MEMORY	62
#define CONTAINER_SIGNAL_LOST	61

#define CONTAINER_DISK_PAUSE	2u	/* seconds between two looks at the work directory */

struct containers {
	struct engine_id id;
	struct sweep *sweep;		/* sweep.c */
};

/* At the start, before the sandbox closes. */
void container_init(struct workerd *w);

/*
 * The verdict on a start whose job is a container, before a directory is given to it; engine, network and socket of the job are decided
 * afterwards. The strings are valid until the next call.
 */
enum work_refusal container_check(const struct workerd *w, struct work_spec *spec, struct work_job *job, char error[208]);

/* Whether the top-level directory can be mounted safely, once it is known whose it is. */
enum work_refusal container_check_dir(const struct workerd *w, const char *top, uint32_t slot, char error[208]);

/* Engines whose client is here and whose socket the policy names: bits of INVENTORY_ENGINES. */
uint32_t container_engines(const struct workerd *w);

/* The workload's payload runs in a container. */
bool container_is_one(const struct workload *wl);

/* The stage's process is an engine's client. */
bool container_stage(const struct workload *wl, enum stage stage);

/*
 * Turns the spec of a start into that of such a process. Strings are valid until container_wipe(). 0, -E2BIG or -EINVAL.
 */
int container_step(const struct workload *wl, struct work_spec *spec, const struct work_job *job, enum stage stage);
void container_wipe(void);

/*
 * Turns the command of a session (flags: ATTACH_*) inside a container into that of an engine's client which has it run there. The session is
 * one of the client's own sandbox. Strings are valid until the next call. 0 or -E2BIG.
 */
int container_exec(const struct workload *wl, uint32_t flags, struct attach_command *c);

/* The same for the sweep, which belongs to no workload: the lists are handles with blanks between them. */
int container_sweep_step(const struct workerd *w, struct work_spec *spec, const char *handles, const char *keep);

/* What the launcher is told of a process of these: the parts of its sandbox, the one thing it sees, its limits. */
void container_launch(const struct workerd *w, const char *socket, struct launch_start *s);
/* The socket of the step that was made last. */
const char *container_socket(void);
/* Of the steps around a container the device's own limits hold as far as it can keep them: what was asked for is the container's. */
void container_step_limits(const struct workerd *w, struct launch_start *s);

#endif
