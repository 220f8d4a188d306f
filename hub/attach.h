/* Attach sessions that operators have open on devices of this hub: see attach.c. */
#ifndef EDGEWARD_HUB_ATTACH_H
#define EDGEWARD_HUB_ATTACH_H

#include "hub/client.h"

struct hub_attach;
struct frame;

int client_attach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_attach_size(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_attach_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* A client has ended: its session ends, or its look at somebody else's. */
void attach_client_gone(struct hub *hub, uint64_t serial);

/* So do all of them. */
void attach_hub_stops(struct hub *hub);

/* Ends on this device what its operator, or the hub, left while it was away. */
void attach_session(struct session *s);

/* attach_close: how a session ended. */
void attach_closed_by_device(struct session *s, const struct frame *f);

#endif
