/*
 * What a start asks of the network: egress_rules, egress_bound, egress_proxy and disable_network of a spec (cloop.md 3.4), and edgeward's
 * own network = "host".
 */
#ifndef EDGEWARD_PROTO_HUB_EGRESS_H
#define EDGEWARD_PROTO_HUB_EGRESS_H

#include "proto/hub/json.h"
#include "proto/ipc/spec.h"

/* Sets out->network and *out->net. NULL, or why it cannot be done; *ret_malformed tells whether the hub broke the protocol. */
const char *egress_decode(const struct json *spec, struct work_spec *out, bool *ret_malformed);

/* The same of the virtual executor a start belongs to: its firewall bounds the start's own rules, or takes their place. */
const char *egress_of_virtual(const struct json *payload, struct work_spec *out, bool *ret_malformed);

#endif
