#include "proto/ipc/work.h"

#include <errno.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/job.h"
#include "proto/ipc/wire.h"

bool
work_workload_ok(const struct work_workload *w)
{
	return w->wid != 0 && w->state >= WORK_PENDING && w->state <= WORK_ENDED &&
	    w->outcome <= WORK_OUTCOME_LOST && (w->state == WORK_ENDED) == (w->outcome != WORK_OUTCOME_NONE) &&
	    w->limit <= WORK_LIMIT_DISK && (w->limit == WORK_LIMIT_NONE || w->outcome == WORK_OUTCOME_LIMIT) &&
	    (w->flags & ~(WORK_F_DISOWNED | WORK_F_DIGEST | WORK_F_WAITS | WORK_F_RESULT)) == 0 &&
	    ((w->flags & WORK_F_RESULT) == 0 || w->state == WORK_ENDED) &&
	    ipc_str_ok(w->handle, sizeof(w->handle)) && handle_ok(w->handle) &&
	    ipc_str_ok(w->error, sizeof(w->error)) && w->retained_from <= w->produced;
}

static bool
commit_ok(const char *s)
{
	size_t n = 0;

	while ((s[n] >= '0' && s[n] <= '9') || (s[n] >= 'a' && s[n] <= 'f'))
		n++;
	return s[n] == '\0' && (n == 0 || n == 40);
}

static bool
base64_ok(const char *s)
{
	for (; *s != '\0'; s++)
		if (!((*s >= 'A' && *s <= 'Z') || (*s >= 'a' && *s <= 'z') || (*s >= '0' && *s <= '9') || *s == '+' || *s == '/' || *s == '='))
			return false;
	return true;
}

bool
work_result_ok(const struct work_result *r)
{
	return (r->flags & ~(WORK_RESULT_BACK | WORK_RESULT_PUSHED | WORK_RESULT_SKIPPED | WORK_RESULT_PROJECT)) == 0 && r->flags != 0 &&
	    r->mode <= JOB_BACK_BUNDLE && r->bundle_bytes <= JOB_BUNDLE_MAX && ipc_str_ok(r->branch, sizeof(r->branch)) &&
	    ipc_str_ok(r->commit, sizeof(r->commit)) && commit_ok(r->commit) && ipc_str_ok(r->base, sizeof(r->base)) && commit_ok(r->base) &&
	    ipc_str_ok(r->error, sizeof(r->error)) && ipc_str_ok(r->project, sizeof(r->project)) && base64_ok(r->project) &&
	    ipc_str_ok(r->project_error, sizeof(r->project_error));
}

int
work_report_encode(const struct work_report *rep, void *buf, size_t size, size_t *ret_len)
{
	struct wire_w w;

	wire_w_init(&w, buf, size);
	wire_put_u32(&w, rep->known);
	wire_put_u32(&w, rep->files);
	wire_put_u32(&w, rep->nenv);
	wire_put_u32(&w, rep->nhandles);
	wire_put_str(&w, rep->error);
	wire_put_bytes(&w, rep->names, rep->names_len);
	return wire_w_done(&w, ret_len);
}

int
work_report_decode(struct work_report *ret_rep, const void *data, size_t len)
{
	struct work_report rep;
	uint64_t n = 0;
	struct wire_r r;

	wire_r_init(&r, data, len);
	rep.known = wire_u32(&r);
	rep.files = wire_u32(&r);
	rep.nenv = wire_u32(&r);
	rep.nhandles = wire_u32(&r);
	wire_str(&r, rep.error, sizeof(rep.error));
	rep.names = (const char *)wire_bytes(&r, &rep.names_len);
	if (wire_done(&r) < 0 || rep.known > 1 || (rep.names_len > 0 && rep.names[rep.names_len - 1] != '\0'))
		return -EBADMSG;
	for (size_t i = 0; i < rep.names_len; i++)
		n += rep.names[i] == '\0';
	if (n != (uint64_t)rep.nenv + rep.nhandles)
		return -EBADMSG;
	*ret_rep = rep;
	return 0;
}
