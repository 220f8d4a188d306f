/* The network of a run as members of a start's spec (cloop.md 3.4; network = host is edgeward's own). */
#ifndef EDGEWARD_HUB_EGRESS_H
#define EDGEWARD_HUB_EGRESS_H

#include "proto/hub/json.h"
#include "proto/ipc/firewall.h"
#include "proto/ipc/spec.h"

void egress_put(struct json_w *w, enum work_network network, const struct firewall *fw);

#endif
