/* Secrets of runs, on the hub's side. A run is the lease of its own secrets, each secret a grant by its name. */
#ifndef EDGEWARD_HUB_SECRET_H
#define EDGEWARD_HUB_SECRET_H

#include "hub/client.h"
#include "proto/hub/json.h"

/* secret_files of a start's payload, and spec.secrets, from the items of an admin_start. */
void secret_put_files(struct json_w *w, const void *items, size_t len, const char *lease);
void secret_put_leases(struct json_w *w, const void *items, size_t len, const char *lease);

/* What a client asks about a run that is there. */
int client_secret_revoke(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int client_secret_refresh(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* A device's answer, revoked or secret_refreshed, as a sentence. False if something of it was not done. */
bool secret_answer(const struct json *payload, char *buf, size_t size);

#endif
