/* Upgrades as a session sees them: the frame upgrade, the stream release, and the results (cloop.md section 8, edgeward.md section 5). */
#ifndef EDGEWARD_CONNECTD_UPFRAMES_H
#define EDGEWARD_CONNECTD_UPFRAMES_H

#include "connectd/session.h"

void upframes_request(struct session *s, const struct cloop_frame *f);
void upframes_release(struct session *s, const struct cloop_frame *f, uint32_t channel);

/* Tells the hub what it does not know yet, once a session until a heartbeat sent after it is acknowledged. */
void upframes_tell(struct session *s);
void upframes_acked(struct session *s, uint64_t seq);

#endif
