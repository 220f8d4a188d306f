/*
 * The record of a file (proto/ipc/file.h) that is on its way into a stream: read from a carrier or from edgehub cp, and given to the peer as it takes it,
 * a hole behind its bytes. One at a time. Pure.
 */
#ifndef EDGEWARD_PROTO_HUB_FILEFILL_H
#define EDGEWARD_PROTO_HUB_FILEFILL_H

#include "proto/hub/mux.h"
#include "proto/ipc/file.h"

struct filefill {
	uint64_t hole;			/* where it ends; 0 = none */
	size_t off, len;		/* [off, len) of buf is not given yet */
	uint8_t buf[FILE_REC_MAX];
};

/* Of a kind's fill(): *ret_n bytes. True when nothing is left: the next record may be read. */
bool filefill(struct filefill *f, struct mux_chan *c, uint8_t *buf, size_t max, ssize_t *ret_n);

#endif
