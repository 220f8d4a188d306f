/* Which parts of the sandbox a workload gets: what policy and configuration want, measured against what the machine gives. */
#ifndef EDGEWARD_WORKERD_CONFINEMENT_H
#define EDGEWARD_WORKERD_CONFINEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"
#include "common/policy.h"
#include "proto/ipc/launch.h"
#include "proto/ipc/work.h"

struct confinement {
	uint32_t parts;		/* LAUNCH_PART_* to apply */
	uint32_t missing;	/* wanted, but not given by this machine */
	bool pool_missing;	/* sandbox-level = uid is nothing without runner ids */
};

/* What every workload gets here. */
struct confinement confinement(const struct conf *conf, const struct policy *policy, const struct launch_ready *ready);

/*
 * The verdict on a start with this network (no DEFAULT): *ret_parts to apply, or a refusal with error[208] set that names what is missing. A
 * network of its own is never given up for best effort, nor is what keeps a filter whole. Also refuses when a directory of [work] show is not
 * there.
 */
enum work_refusal confinement_decide(const struct conf *conf, const struct policy *policy, const struct launch_ready *ready,
    enum work_network network, uint32_t *ret_parts, char error[208]);

/* The network of a start that asks for nothing. */
enum work_network confinement_network(const struct policy *policy);

/* Why workloads cannot have a filtered network here; FILTER_WORKS when they can. Looks for the programs. */
enum filter_issue confinement_filter_issue(const struct launch_ready *ready);

#endif
