/*
 * Leases: the hub takes secrets back from whoever holds them, or gives them a new content. What the vaults (vault.h) say is
 * decided at once; what has to be done inside the workloads' own directories is asked of their workinits, and the report goes
 * out when the last of them has answered, is gone, or had its time.
 */
#ifndef EDGEWARD_WORKERD_LEASES_H
#define EDGEWARD_WORKERD_LEASES_H

#include "proto/ipc/launch.h"
#include "proto/ipc/work.h"
#include "workerd/workerd.h"

/* What connectd asks by request id; the answer goes to the work channel. */
void leases_revoke(struct workerd *w, const struct work_revoke *req, uint32_t id);
/* items: secrets_ok(), files of one lease. -EBADMSG when they are not. */
int leases_refresh(struct workerd *w, const void *items, size_t len, uint32_t id);

/* A start brings items: tombstones of what was taken back before are cleared, and that is logged. */
void leases_bound(struct workerd *w, const char *handle, const struct work_spec *spec);

/* The workload has a process by now; it has answered; nothing of it will answer any more. */
void leases_launched(struct workload *wl);
void leases_answer(struct workload *wl, uint32_t req, const struct init_done *done);
void leases_ended(const struct workload *wl);

/* Who asked is gone. */
void leases_unasked(struct workerd *w);
void leases_done(struct workerd *w);

#endif
