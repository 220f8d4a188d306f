/* Files between devices and command lines of this machine: see file.c. */
#ifndef EDGEWARD_HUB_FILE_H
#define EDGEWARD_HUB_FILE_H

#include "hub/adminfile.h"
#include "hub/client.h"
#include "hub/session.h"

struct hub_file;

int client_file(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

/* The frame file_done of a device. */
void file_done(struct session *s, const struct json *payload);

#endif
