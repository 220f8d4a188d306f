/* Ethernet segments forwarded from this machine to runs on devices: see l2.c. */
#ifndef EDGEWARD_HUB_L2_H
#define EDGEWARD_HUB_L2_H

#include "hub/adminl2.h"
#include "hub/client.h"

int client_l2_tap(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_l2(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

#endif
