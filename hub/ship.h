/*
 * Branches on their way to a device before the start that needs them, as a stream of kind bundle (edgeward.1; connectd/branch.h has the
 * frames): read from the descriptor the command line gave, sent anew when the device was away, dropped when it has its start.
 */
#ifndef EDGEWARD_HUB_SHIP_H
#define EDGEWARD_HUB_SHIP_H

#include "hub/session.h"

#define SHIPS_MAX	64u	/* a descriptor each */

/* Takes fd, of size bytes with this SHA-256 (64 digits, not terminated). -ENOSPC, -ENOMEM: then fd is the caller's. */
int ship_new(struct hub *hub, const char *handle, int fd, uint64_t size, const char *sha256);

/* Sends the start of this run; before it what is to be shipped, if there is anything. -errno as session_start_run(). */
int ship_start(struct session *s, const char *handle, const char *spec, size_t len);

/* The device has its start, or the run has ended. */
void ship_drop(struct hub *hub, const char *handle);

#endif
