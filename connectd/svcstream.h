/*
 * Streams of kind http (edgeward.md section 3): the hub is a client of HTTP/1.1 on them, this device the server. What they lead to is the router
 * of railgrid.md section 2: the device's own answers, its local services, its sshd, as far as policy.conf, section services, permits.
 */
#ifndef EDGEWARD_CONNECTD_SVCSTREAM_H
#define EDGEWARD_CONNECTD_SVCSTREAM_H

#include "connectd/session.h"

struct services {
	/* stream_open of this kind; channel is claimed. */
	void (*open)(struct session *s, const struct cloop_frame *f, uint32_t channel);
};

extern const struct services svcstream_services;

#endif
