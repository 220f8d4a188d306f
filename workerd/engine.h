/*
 * The command line of a container engine's client, made from a start that was admitted. Pure: unit-tested and fuzzed; what is
 * injected through an image, a name, a path or a variable stays one value, or there is no command line.
 *
 * The arguments are those of the reference (cloop.md 5.5). "run --detach" is its two halves here: create, whose failure is a
 * refused start, and start --attach, which carries the output byte by byte instead of through the engine's own log.
 */
#ifndef EDGEWARD_WORKERD_ENGINE_H
#define EDGEWARD_WORKERD_ENGINE_H

#include "proto/ipc/job.h"

#define ENGINE_TEXT	4096u	/* bytes of what is made; the rest are views into the start */
#define ENGINE_PLACE	"/workspace"	/* where the work directory is in a container */
#define ENGINE_NAME	96	/* bytes of a container's name */

#define ENGINE_LABEL_AGENT	"edgeward.agent"	/* which Edgeward's it is: no other container is touched */
#define ENGINE_LABEL_INSTANCE	"edgeward.instance"	/* which workerd started it: what an earlier one did and nobody holds is lost */
#define ENGINE_LABEL_HANDLE	"edgeward.handle"

struct engine_id {
	uint64_t agent, instance;
};

struct engine_wish {
	struct engine_id id;
	enum job_engine engine;		/* DOCKER or PODMAN */
	const char *top;		/* the top-level work directory, absolute */
	const char *below;		/* the work directory in it, "" = itself */
	uint32_t uid, gid;		/* of the runner */
	bool keep_id;			/* the engine is the runner's own: its user namespace keeps that id */
	const struct work_job *job;	/* engine_network decided: none, bridge or a name */
	const struct work_spec *spec;
};

/* "edgeward-AGENT-HANDLE". */
void engine_name(const struct engine_id *id, const char *handle, char buf[ENGINE_NAME]);

/* How a variable gets into a container. The client is given it in its own environment, where some would act on the client itself. */
enum engine_env { ENGINE_ENV_NAME, ENGINE_ENV_VALUE, ENGINE_ENV_REFUSED };
enum engine_env engine_env(const struct work_str *entry);

/* NULL, or in a few words why a work directory cannot be mounted: the engine's list of mounts has its own separators. */
const char *engine_path_problem(const char *path);

/* The numbers of what a step says of the limit of disk (steps/engine), or false. */
bool engine_disk_word(const char *word, uint64_t *ret_used, uint64_t *ret_limit);

/*
 * The words behind the client's own "create". words has WORK_ARGV_MAX entries, text ENGINE_TEXT bytes; both are looked into afterwards.
 * 0, -E2BIG, or -EINVAL for what was not checked before.
 */
int engine_create(const struct engine_wish *wish, struct work_str *words, char text[ENGINE_TEXT], uint32_t *ret_n);

#endif
