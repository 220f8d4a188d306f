/*
 * May this service be dialled for a hub: policy.conf, section services, against a target and the addresses it has. Every address counts, the
 * harder verdict wins. Pure.
 */
#ifndef EDGEWARD_CONNECTD_SVCJUDGE_H
#define EDGEWARD_CONNECTD_SVCJUDGE_H

#include "common/policy.h"
#include "connectd/netaddr.h"
#include "proto/ipc/service.h"

#define SVCJUDGE_WHY	200

/* WARN: not listed, but the policy says to dial all the same. */
enum svc_verdict { SVC_ALLOWED, SVC_WARN, SVC_DENIED };

/* Before anything is resolved: serving at all, names of sockets and of clusters. name is "" or what the target was declared as. */
enum svc_verdict svcjudge_target(const struct policy *policy, const struct service_target *target, const char *name, char why[SVCJUDGE_WHY]);

/* own[i]: an address of this device, which is loopback by another name. */
enum svc_verdict svcjudge_addresses(const struct policy *policy, const struct service_target *target, const union netaddr *addrs,
    const bool *own, size_t n, char why[SVCJUDGE_WHY]);

void svcjudge_address(const union netaddr *addr, uint8_t ret_addr[16]);

#endif
