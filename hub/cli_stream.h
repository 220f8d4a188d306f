/* The CLI's end of an http stream to a device. */
#ifndef EDGEWARD_HUB_CLI_STREAM_H
#define EDGEWARD_HUB_CLI_STREAM_H

#include "hub/cli.h"

/* A socket whose other end the hub joins to the device, opened for this purpose; the hub is connected afterwards. Else the exit code is in *ret_code and it
 * has been said why: -1. cli->event is set: what ends the stream is kept for cli_stream_why(). */
int cli_stream_open(struct cli *cli, const char *device, const char *purpose, int *ret_code);
/* Why the stream was ended by the hub; "" = it was not, or nobody has told. Waits a moment for it. */
const char *cli_stream_why(struct cli *cli);

/* GET path of the device itself, on a stream of its own. *ret_body is malloc'd, with a NUL. CLI_OK, or an exit code after it was said why. */
int cli_stream_get(struct cli *cli, const char *device, const char *path, char **ret_body, size_t *ret_len);

/* The target of a service: "http://..." as it is, a port of loopback, or a name the device knows. An exit code. */
int cli_stream_target(struct cli *cli, const char *device, const char *service, char *target, size_t size);

#endif
