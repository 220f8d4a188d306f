#include "hub/verdict.h"

struct verdict
verdict_decide(const struct verdict_in *in)
{
	if (!in->known)
		return (struct verdict){ .reason = "this hub does not know the handle" };
	if (!in->ours)
		return (struct verdict){ .reason = "the handle belongs to another device" };
	if (in->state == RUN_LOST)
		return (struct verdict){ .reason = "the run was given up as lost" };
	if (in->state == RUN_REFUSED)
		return (struct verdict){ .reason = "the run was refused" };
	return (struct verdict){ .keep = true, .from_offset = in->durable };
}

bool
verdict_resend(enum run_state state, bool edgeward1)
{
	return state == RUN_PENDING && edgeward1;
}
