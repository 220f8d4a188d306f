/* `run --bundle FILE`: what a git bundle says of itself. */
#ifndef EDGEWARD_HUB_CLI_BUNDLE_H
#define EDGEWARD_HUB_CLI_BUNDLE_H

#include <stdint.h>

#include "proto/ipc/file.h"

struct cli_bundle {
	int fd;			/* -1 = none; the caller's */
	uint64_t size;
	char sha256[FILE_SHA_HEX];
	char head[41];
	char branch[256];	/* without refs/heads/ */
};

/* 0, or an exit code: then the reason was printed. */
int cli_bundle_open(const char *path, struct cli_bundle *ret_bundle);

#endif
