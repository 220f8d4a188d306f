/*
 * Where a release lands: a file under a fresh temporary name in connectd's state directory, which gets its own name when it is complete
 * and on the disk; then the request, from which on it is privupgrade's. Leftovers of a failed try are removed first.
 */
#ifndef EDGEWARD_CONNECTD_UPSTAGE_H
#define EDGEWARD_CONNECTD_UPSTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/release/records.h"

#define UPSTAGE_PART	"upgrade-download"
#define UPSTAGE_RELEASE	"upgrade-release"
#define UPSTAGE_REQUEST	"upgrade-request"

struct upstage {
	int dir;			/* not owned */
	int fd;				/* -1 = nothing is being written */
	uint64_t written, synced;
};

void upstage_init(struct upstage *st, int dir);

/* Removes what is not asked for: the part, and a release without a request. */
void upstage_clear(struct upstage *st);
void upstage_drop_part(struct upstage *st);	/* the part alone */

/* Begins a new part. -errno. */
int upstage_begin(struct upstage *st);

/* Appends. Written to the disk every now and then, so that the end does not wait for all of it. -errno. */
int upstage_write(struct upstage *st, const void *data, size_t len);

/* -ENOSPC when len more bytes, and low beyond them, are not free. */
int upstage_room(const struct upstage *st, uint64_t len, uint64_t low);

/* The part is complete: it becomes the release. -errno. */
int upstage_commit(struct upstage *st);

/* Asks privupgrade for it, by one rename. -EEXIST: it has been asked already. */
int upstage_request(const struct upstage *st, const struct upgrade_request *request);
bool upstage_requested(const struct upstage *st);
bool upstage_has_release(const struct upstage *st);
/* Takes the request back, if nobody has taken it: true. */
bool upstage_withdraw(struct upstage *st);

#endif
