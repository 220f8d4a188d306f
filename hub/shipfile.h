/*
 * Branches that wait for their device, beside the logs as "s.HANDLE": a copy, so that what is shipped is what was looked at, and is shipped
 * after a restart of the hub, too. There is one for as long as a run is pending.
 */
#ifndef EDGEWARD_HUB_SHIPFILE_H
#define EDGEWARD_HUB_SHIPFILE_H

#include "hub/hub.h"
#include "proto/ipc/file.h"

/* Of all devices, also those that are away and whose branches an earlier hub took: room on the disk and, on the way, a descriptor each. */
#define SHIPFILES_MAX	64u

/* An empty one, for reading and writing. -EUSERS: as many as there may be; -errno. */
int shipfile_new(struct hub *hub, const char *handle);
/* That of a run with this start, as long as the start says, for reading; -ENOENT, -errno. */
int shipfile_get(struct hub *hub, const char *handle, const char *spec, size_t len, uint64_t *ret_size, char ret_sha256[FILE_SHA_HEX]);
void shipfile_drop(struct hub *hub, const char *handle);

/* When the hub starts: those that are no pending run's go, the others are counted. */
void shipfiles_sweep(struct hub *hub);

#endif
