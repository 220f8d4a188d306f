/* May a workload be started now? Decided before anything is made; every refusal names its reason. */
#ifndef EDGEWARD_WORKERD_ADMIT_H
#define EDGEWARD_WORKERD_ADMIT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/statvfs.h>

#include "common/conf.h"
#include "common/policy.h"
#include "proto/ipc/launch.h"
#include "proto/ipc/work.h"

#define ADMIT_UNDELIVERED_MAX	1024u	/* ended work the hub has not confirmed */
#define ADMIT_FDS_EACH		16u	/* descriptors reserved for each: the launcher holds four, and four more on their way */
#define ADMIT_RETAINED_MAX	(256ull << 20)	/* bytes of output all of it may hold */
#define ADMIT_INODES_LOW	64u

struct admit_now {			/* what the decision is made from */
	const struct conf *conf;
	const struct policy *policy;
	const struct launch_ready *ready;
	uint32_t slots, held;		/* held: pending and running */
	uint32_t undelivered, undelivered_max;
	uint64_t retained;
	bool draining;
	bool own;			/* the device's own: programs and environment are no hub's */
	uint64_t disk_free, inodes_free;	/* of the work root */
	bool one_disk;			/* it lies on, which a rate can be set for */
	bool disk_was_low;		/* then an eighth more must be free: no start on the edge */
};

/*
 * Free bytes and inodes for an ordinary user, saturated. A file system without a count of inodes has UINT64_MAX; more free
 * than there is (seen with reserved blocks) counts as nothing free.
 */
void admit_free(const struct statvfs *st, uint64_t *ret_bytes, uint64_t *ret_inodes);

/* The verdict; error[208] and *ret_flags are set with a refusal. Puts the device's defaults into spec (see permit()). */
enum work_refusal admit(const struct admit_now *now, struct work_spec *spec, char error[208], uint32_t *ret_flags);

#endif
