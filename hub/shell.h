/* Runs that are there for one shell each: see shell.c. */
#ifndef EDGEWARD_HUB_SHELL_H
#define EDGEWARD_HUB_SHELL_H

#include "hub/client.h"

/* As run_new(): a run that ends with this client. */
int shell_new(struct client *client, const struct run_info *info, const char *spec, size_t len, struct run **ret_run);
/* One that comes from the store. */
void shell_load(struct run *run);

/* Its shell is over; code -1: nobody knows how. */
void shell_over(struct hub *hub, const char *handle, int32_t code);
void shell_client_gone(struct hub *hub, uint64_t serial);
/* The device says that it runs. */
void shell_started(struct run *run);

/* Its shell is over: it has no business on the device. */
bool shell_is_owed(const struct run *run);
/* Ends what is owed to this device. */
void shell_session(struct session *s);

#endif
