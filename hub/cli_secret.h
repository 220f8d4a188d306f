/* Secrets on the command line: always NAME=@FILE, never a value, which everybody on the machine could read. */
#ifndef EDGEWARD_HUB_CLI_SECRET_H
#define EDGEWARD_HUB_CLI_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include "hub/cli.h"
#include "proto/ipc/secrets.h"

#define CLI_SECRET_DIR	"/run/edgehub/secrets"	/* as the device is told; it chooses the real one and lets variables follow */

struct cli_secrets {
	uint8_t *items;			/* of secrets.h; wiped by cli_secrets_done() */
	size_t len, size;
};

/* "NAME=@FILE", "-" for stdin: its content becomes a file of that name. A sentence on stderr and -EINVAL otherwise. */
int cli_secret_file(struct cli_secrets *s, const char *lease, const char *arg);

/* The same for a variable: *ret_kv is NAME=CONTENT (malloc'd), without the newlines at its end. */
int cli_secret_env(struct cli_secrets *s, const char *lease, const char *arg, char **ret_kv);

void cli_secrets_done(struct cli_secrets *s);

/* edgehub secret revoke|refresh */
int cli_secret(struct cli *cli, int argc, char *argv[]);

#endif
