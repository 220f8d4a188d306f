/* Containers on the command line: what `run` asks for with --image and its companions. */
#ifndef EDGEWARD_HUB_CLI_CONTAINER_H
#define EDGEWARD_HUB_CLI_CONTAINER_H

#include "hub/cli.h"
#include "proto/ipc/job.h"

/* Values of getopt_long, behind those of cli_result.h. */
enum { CONTAINER_IMAGE = 280, CONTAINER_ENGINE, CONTAINER_RUNTIME, CONTAINER_NETWORK };

#define CONTAINER_OPTIONS \
	{ "image", required_argument, NULL, CONTAINER_IMAGE }, { "engine", required_argument, NULL, CONTAINER_ENGINE }, \
	{ "runtime", required_argument, NULL, CONTAINER_RUNTIME }, { "container-network", required_argument, NULL, CONTAINER_NETWORK }

struct container_options {
	const char *image, *engine, *runtime, *network;
};

/* True when the option is one of these. */
bool container_option(struct container_options *o, int opt, const char *arg);

/* Fills in the job's part; nothing without --image. 0, or an exit code: then the reason was printed. */
int container_into(const struct container_options *o, struct work_job *job);

#endif
