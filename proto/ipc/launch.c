#include "proto/ipc/launch.h"

#include "proto/ipc/ipc.h"
#include "proto/ipc/names.h"

static bool
handle_field_ok(const char handle[72])
{
	return ipc_str_ok(handle, 72) && handle_ok(handle);
}

static bool
slot_ok(uint32_t slot, const struct launch_ready *ready)
{
	return ready->pool_count == 0 ? slot == 0 : slot < ready->pool_count;
}

bool
launch_start_ok(const struct launch_start *s, const struct launch_ready *ready)
{
	return handle_field_ok(s->handle) && slot_ok(s->slot, ready) && s->nice >= 0 && s->nice <= 19 &&
	    s->oom_score_adj >= 0 && s->oom_score_adj <= 1000 && s->nofile <= 1u << 20 && s->reserved == 0;
}

bool
launch_ref_ok(const struct launch_ref *r)
{
	return handle_field_ok(r->handle);
}

bool
launch_held_ok(const struct launch_held *h, const struct launch_ready *ready)
{
	return handle_field_ok(h->handle) && slot_ok(h->slot, ready) && h->ended <= 1;
}
