/* From a spec that connectd sent to a request to the launcher, or to a refusal with its reason. */
#ifndef EDGEWARD_WORKERD_START_H
#define EDGEWARD_WORKERD_START_H

#include "proto/ipc/work.h"
#include "workerd/stage.h"
#include "workerd/workerd.h"

/*
 * Starts what connectd asked for by request id; the answer goes to the work channel, now or when it runs. A handle that is
 * known is not started again: its state is the answer. bundle: the branch that came with it, or -1; it stays the caller's.
 */
void workload_start(struct workerd *w, struct work_spec *spec, int bundle, uint32_t id);

/*
 * What workload_start() would answer to a new handle, by the same checks; nothing is made or noted. error[208] and *ret_flags
 * as those of an answer. spec gets the device's defaults.
 */
enum work_refusal workload_would_start(struct workerd *w, struct work_spec *spec, char error[208], uint32_t *ret_flags);

/*
 * Which directory spec->work_dir is (it is cleaned) and whose, as a start would find it; nothing is made or given. top as ids_top(). error[208]
 * is set with a refusal.
 */
enum work_refusal start_find_dir(struct workerd *w, struct work_spec *spec, char top[IDS_TOP_SIZE], uint32_t *ret_slot, char error[208]);

/* A sealed memfd with what workinit will read. -errno. */
int start_spec(const struct work_spec *spec);

/*
 * Starts a workload of the device's own (workload_is_own()), of the one stage: by the same checks but those of what a hub may run. spec is whole,
 * its limits and network are the device's. error as that of an answer.
 */
enum work_refusal workload_start_own(struct workerd *w, struct work_spec *spec, enum stage stage, char error[208]);

/* Asks the launcher for one process of an admitted workload (stage.h). spec is whole, without a job. 0 or -errno. */
int start_process(struct workload *wl, const struct work_spec *spec, enum stage stage, int input);

/* The bytes of a spec: in the record, or in a sealed memfd that came with it (read into buf). *ret_len 0: neither. */
const uint8_t *workload_spec_bytes(struct ipc_msg *msg, uint8_t buf[WORK_SPEC_MAX], size_t *ret_len);

#endif
