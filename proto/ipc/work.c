#include "proto/ipc/work.h"

#include "proto/ipc/ipc.h"

bool
work_workload_ok(const struct work_workload *w)
{
	return w->wid != 0 && w->state >= WORK_PENDING && w->state <= WORK_ENDED &&
	    w->outcome <= WORK_OUTCOME_LOST && (w->state == WORK_ENDED) == (w->outcome != WORK_OUTCOME_NONE) &&
	    w->limit <= WORK_LIMIT_OUTPUT && (w->limit == WORK_LIMIT_NONE || w->outcome == WORK_OUTCOME_LIMIT) &&
	    (w->flags & ~(WORK_F_DISOWNED | WORK_F_DIGEST)) == 0 &&
	    ipc_str_ok(w->handle, sizeof(w->handle)) && handle_ok(w->handle) &&
	    ipc_str_ok(w->error, sizeof(w->error)) && w->retained_from <= w->produced;
}
