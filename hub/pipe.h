/* Streams of kind http between a client of this hub and a device: see pipe.c. */
#ifndef EDGEWARD_HUB_PIPE_H
#define EDGEWARD_HUB_PIPE_H

#include "hub/client.h"

struct hub_pipe;

int client_pipe(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* A client has ended: its streams end with it. */
void pipe_client_gone(struct hub *hub, uint64_t serial);

#endif
