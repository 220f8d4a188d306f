/*
 * Bundles that devices send as streams of kind bundle (edgeward.1), in place of result_chunk: see connectd/bundlesend.h for the frames.
 * Beside the logs, "p.HANDLE" is what has come so far and "i.HANDLE" which bytes these are, so that a transfer goes on after a lost link
 * or a restart; complete and with its digest it becomes "b.HANDLE" of result.h. Our END says that it is. What has come is digested anew
 * when the transfer goes on, a piece in each turn of the loop; what comes meanwhile waits in the window.
 */
#ifndef EDGEWARD_HUB_BUNDLE_H
#define EDGEWARD_HUB_BUNDLE_H

#include "hub/session.h"

#define BUNDLES_MAX	64u	/* under way: a descriptor each; more are told to ask again */
#define BUNDLES_DEVICE	16u	/* ... of one device */
#define BUNDLE_READ_AGAIN	(128u << 20)	/* of earlier transfers, in a session; then what is asked for begins anew */

void bundles_init(struct hub *hub);

/* stream_open of a device. taken: a log has this channel. */
void bundle_open(struct session *s, const struct frame *f, bool taken);

/* What has come of this run's, and is not complete. */
void bundle_forget(struct hub *hub, const char *handle);

#endif
