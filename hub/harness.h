/* What harnesses (programs such as claude) a device has, and having one installed there: install_harness and inventory_req (cloop.md 5.11, 9). */
#ifndef EDGEWARD_HUB_HARNESS_H
#define EDGEWARD_HUB_HARNESS_H

#include "hub/client.h"
#include "hub/session.h"

int client_harness(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* What a device answered, client_id of client is waiting for it; client 0: nobody is. */
void harness_inventory(struct session *s, const struct json *payload, uint64_t client, uint32_t client_id);
void harness_installed(struct session *s, const struct json *payload, uint64_t client, uint32_t client_id);

#endif
