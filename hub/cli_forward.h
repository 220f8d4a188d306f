/* What usb forward and l2 forward share: the hub asked with a socket, and staying until it is over. */
#ifndef EDGEWARD_HUB_CLI_FORWARD_H
#define EDGEWARD_HUB_CLI_FORWARD_H

#include "hub/cli.h"

struct cli_forward {
	struct cli *cli;
	bool watched, ended, stopped;
	char why[256];			/* of ended, fit for a terminal */
};

/* A name nobody else has, beginning with prefix; '.' and ':' become '-'. */
void cli_forward_name(char dst[32], const char *prefix);

/* A copy of arg in a record; false: too long. */
bool cli_forward_copy(char *dst, size_t size, const char *arg);

/*
 * Asks the hub and hands it fd, which is closed here: its end must be the end. 0 with the answer in ret_item, of size bytes; else an exit
 * code, and it has been said why. Events go to cli->event and cli->ctx, which the caller has set.
 */
int cli_forward_ask(struct cli_forward *f, uint16_t type, const void *req, size_t len, int fd, void *ret_item, size_t size);

/* Until it ends or is told to: the exit code. */
int cli_forward_stay(struct cli_forward *f);

#endif
