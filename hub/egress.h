/* The network of a run as members of a start's spec (cloop.md 3.4; network = host is edgeward's own). */
#ifndef EDGEWARD_HUB_EGRESS_H
#define EDGEWARD_HUB_EGRESS_H

#include "proto/hub/json.h"
#include "proto/ipc/firewall.h"
#include "proto/ipc/spec.h"

/* As a request to start a run carries it. */
struct run_network {
	enum work_network network;
	const uint8_t *firewall;	/* with FILTERED: as fw_put() made it, and fw_get() takes it */
	size_t firewall_len;
};

void egress_put(struct json_w *w, enum work_network network, const struct firewall *fw);

#endif
