/*
 * The device's policy, applied to one start. Pure: the same call decides for a hub's start and for `edgectl policy test`.
 * A refusal names the line of policy.conf, or that its default holds.
 */
#ifndef EDGEWARD_WORKERD_PERMIT_H
#define EDGEWARD_WORKERD_PERMIT_H

#include "common/policy.h"
#include "proto/ipc/work.h"

#define PERMIT_ERROR	208	/* as work_answer.error */

/*
 * WORK_OK, or the refusal with error filled. Where the start asks for nothing, the device's defaults are put in. argv[0] may be
 * replaced by the path of the policy that it names; that is a view into *policy.
 */
enum work_refusal permit(const struct policy *policy, struct work_spec *spec, char error[PERMIT_ERROR]);

/* One program, of a start or an attach, against [work] programs; replaced as above. */
enum work_refusal permit_program(const struct policy *policy, struct work_str *program, char error[PERMIT_ERROR]);
/* The same for what the device runs on its own: its network and limits. */
enum work_refusal permit_own(const struct policy *policy, struct work_spec *spec, char error[PERMIT_ERROR]);

#endif
