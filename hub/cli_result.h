/* Workspaces on the command line: what `run` asks for, and what it brought back. */
#ifndef EDGEWARD_HUB_CLI_RESULT_H
#define EDGEWARD_HUB_CLI_RESULT_H

#include "hub/cli.h"
#include "hub/cli_bundle.h"
#include "hub/cli_container.h"

/* Values of getopt_long. */
enum { WORKSPACE_GIT = 256, WORKSPACE_REF, WORKSPACE_USER, WORKSPACE_TOKEN_FILE, WORKSPACE_BACK, WORKSPACE_BRANCH, WORKSPACE_MESSAGE, WORKSPACE_BUNDLE };

#define WORKSPACE_OPTIONS \
	{ "git", required_argument, NULL, WORKSPACE_GIT }, { "ref", required_argument, NULL, WORKSPACE_REF }, \
	{ "git-user", required_argument, NULL, WORKSPACE_USER }, \
	{ "git-token-file", required_argument, NULL, WORKSPACE_TOKEN_FILE }, \
	{ "write-back", required_argument, NULL, WORKSPACE_BACK }, { "branch", required_argument, NULL, WORKSPACE_BRANCH }, \
	{ "message", required_argument, NULL, WORKSPACE_MESSAGE }, { "bundle", required_argument, NULL, WORKSPACE_BUNDLE }

struct workspace_options {
	const char *git, *ref, *user, *token_file, *back, *branch, *message, *bundle;
	struct cli_bundle ship;		/* of --bundle, filled in by workspace_encode(); .fd -1 = none */
};

/* True when the option is one of these. */
bool workspace_option(struct workspace_options *o, int opt, const char *arg);

/* The job for admin_start_encode(), with its container; *ret_len 0 = none. 0, or an exit code: then the reason was printed. */
int workspace_encode(struct workspace_options *o, const struct container_options *container, const char *handle, uint8_t *buf, size_t size, size_t *ret_len);

/* A line about what a run brought back; 0, or RUN_EXIT_NO_RESULT. */
int result_say(struct cli *cli, const char *handle);

#endif
