/*
 * Upgrades that an operator has asked for with the CLI: the release on its way to the device, the frame upgrade, and the device's two
 * answers, over as many sessions as it takes. Each belongs to the client that waits for it and ends with it; the device goes on by itself.
 */
#ifndef EDGEWARD_HUB_UPSEND_H
#define EDGEWARD_HUB_UPSEND_H

#include "hub/session.h"

/* From a welcomed session. */
void upsend_session(struct session *s);
void upsend_upgrading(struct session *s, const struct frame *f);
void upsend_result(struct session *s, const struct frame *f);
/* True if the error answers one of them. */
bool upsend_error(struct session *s, const char *id, const char *text);

void upsend_client_gone(struct hub *hub, uint64_t serial);

#endif
