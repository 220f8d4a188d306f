/* Ethernet segments forwarded from this machine to runs on devices: see l2.c. */
#ifndef EDGEWARD_HUB_L2_H
#define EDGEWARD_HUB_L2_H

#include "hub/adminl2.h"
#include "hub/client.h"

struct hub_l2;

int client_l2(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* A client has ended: what it forwards ends with it. */
void l2_client_gone(struct hub *hub, uint64_t serial);

#endif
