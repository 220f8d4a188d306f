/* The frames device_open and device_close, by kind of device; and what the hello says of devices. */
#ifndef EDGEWARD_CONNECTD_DEVFRAMES_H
#define EDGEWARD_CONNECTD_DEVFRAMES_H

#include "connectd/session.h"

void devframes_open(struct session *s, const struct cloop_frame *f);
void devframes_close(struct session *s, const struct cloop_frame *f);

/* capabilities.devices */
void devframes_put_caps(struct json_w *w, const struct mirror *mirror);

#endif
