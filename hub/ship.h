/*
 * Branches on their way to a device before the start that needs them, as a stream of kind bundle (edgeward.1; connectd/branch.h has the
 * frames): copied from the descriptor the command line gave (shipfile.h), sent anew when the device was away or the hub was started again,
 * dropped when the device has its start. One for which the device has no room now waits and is offered again.
 */
#ifndef EDGEWARD_HUB_SHIP_H
#define EDGEWARD_HUB_SHIP_H

#include "hub/session.h"

#define SHIP_BUSY_MS	(15 * 60 * 1000)	/* a device drops one that nobody uses after as long */

/* From the loop: there is a copy of it, which ship_start() sends; or err, then it is dropped by ship_drop(). */
typedef void ship_kept_fn(struct hub *hub, const char *handle, int err, void *ctx);

/*
 * Takes from, a file of size bytes with this SHA-256 (64 digits, not terminated), and copies it; one of this handle that was there is
 * dropped. -EUSERS: as many as there may be; -errno: then from is the caller's.
 */
int ship_new(struct hub *hub, const char *handle, int from, uint64_t size, const char *sha256, ship_kept_fn *kept, void *ctx);

/* What the hub before this one was to send before the start of a run that is pending; if there is nothing, nothing. */
void ship_restore(struct hub *hub, const char *handle, const char *spec, size_t len);

/* Sends the start of this run; before it what is to be shipped, if there is anything. -errno as session_start_run(). */
int ship_start(struct session *s, const char *handle, const char *spec, size_t len);

/* The device has its start, or the run has ended. */
void ship_drop(struct hub *hub, const char *handle);

#endif
