/* Filling in why an attempt ended. */
#ifndef EDGEWARD_CONNECTD_HUBEND_H
#define EDGEWARD_CONNECTD_HUBEND_H

#include "connectd/hubconn.h"

/* Everything that is not printable ASCII in the finished sentence becomes '?'. The other fields are set to "nothing". */
void hubend_set(struct hubconn_end *end, enum hubconn_cause cause, enum hubconn_stage stage, const char *code,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* The same from a -errno of the connection itself: refused, no-route, timeout, lost, internal. */
void hubend_set_errno(struct hubconn_end *end, enum hubconn_stage stage, int err, const char *what);

#endif
