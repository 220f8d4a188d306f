/* Output bytes -> log_chunk frames of a cloop session. */
#ifndef EDGEWARD_CONNECTD_LOGCLOOP_H
#define EDGEWARD_CONNECTD_LOGCLOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "connectd/hubconn.h"
#include "connectd/mirror.h"

#define LOGCLOOP_ROOM	4u	/* bytes before p that may be written: the held beginning of a character goes there */

/*
 * Sends p[0..len), whose end is at offset end, and what was held before it. p is changed: what is no UTF-8 becomes
 * '?', one for one. A character that the end cuts off is held back for the next call, unless last. Returns how many bytes
 * at the end of p the link had no room for (they are not held; give them again).
 */
size_t logcloop_send(struct hubconn *conn, int64_t version, struct mirror_entry *e, uint8_t *p, size_t len, uint64_t end,
    bool last);

#endif
