/* One connection of a browser to `edgehub proxy`, and its stream to the device. */
#ifndef EDGEWARD_HUB_PROXYCONN_H
#define EDGEWARD_HUB_PROXYCONN_H

#include "hub/cli.h"
#include "proto/hub/svcgate.h"

#define PROXYCONN_MAX	128u

struct proxyconns;

int proxyconns_new(struct cli *cli, const char *device, const struct svcgate_conf *gate, struct proxyconns **ret_conns);
void proxyconns_free(struct proxyconns *conns);
/* Takes over a connected socket. */
void proxyconns_add(struct proxyconns *conns, int fd);
/* The hub's word on a stream: an answer or an end. */
void proxyconns_told(struct proxyconns *conns, const struct ipc_msg *msg);
/* The hub is gone: who waits for its answer is told; the others see their streams end. Until cli->up again those who come are told the same. */
void proxyconns_hub_gone(struct proxyconns *conns);

#endif
