#include "workerd/tally.h"

#include <inttypes.h>
#include <stdio.h>

/* The words of edgectl's JSON. */
static const char *const outcome_names[] = {
	[WORK_OUTCOME_NONE] = "none", [WORK_OUTCOME_EXITED] = "exited", [WORK_OUTCOME_SIGNALLED] = "signalled",
	[WORK_OUTCOME_CANCELLED] = "cancelled", [WORK_OUTCOME_TIMEOUT] = "timeout", [WORK_OUTCOME_LIMIT] = "limit",
	[WORK_OUTCOME_LOST] = "lost",
};
static const char *const refusal_names[] = {
	[WORK_OK] = "ok", [WORK_REFUSED_BUSY] = "busy", [WORK_REFUSED_FORBIDDEN_PATH] = "forbidden_path",
	[WORK_REFUSED_POLICY] = "policy", [WORK_REFUSED_SANDBOX] = "sandbox", [WORK_REFUSED_DISK_LOW] = "disk_low",
	[WORK_REFUSED_MEMORY_LOW] = "memory_low", [WORK_REFUSED_UNSUPPORTED] = "unsupported",
	[WORK_REFUSED_BAD_SPEC] = "bad_spec", [WORK_REFUSED_START_FAILED] = "start_failed",
	[WORK_REFUSED_UNKNOWN_HANDLE] = "unknown_handle",
};
#define OUTCOMES	(sizeof(outcome_names) / sizeof(outcome_names[0]))
#define REFUSALS	(sizeof(refusal_names) / sizeof(refusal_names[0]))
static_assert(OUTCOMES == sizeof(((struct workerd *)0)->outcomes) / sizeof(uint64_t), "one name for each");
static_assert(REFUSALS == sizeof(((struct workerd *)0)->refusals) / sizeof(uint64_t), "one name for each");

void
tally_started(const struct workload *wl)
{
	eventlog_add(&wl->w->events, "started", wl->info.handle, "pid %d", (int)wl->info.pid);
}

void
tally_ended(const struct workload *wl)
{
	unsigned outcome = wl->info.outcome < OUTCOMES ? wl->info.outcome : 0;

	wl->w->outcomes[outcome]++;
	if (outcome == WORK_OUTCOME_EXITED)
		eventlog_add(&wl->w->events, "ended", wl->info.handle, "exited %d, %" PRIu64 " bytes of output", (int)wl->info.exit_code,
		    workload_head(wl));
	else if (outcome == WORK_OUTCOME_LOST)
		eventlog_add(&wl->w->events, "ended", wl->info.handle, "%s: %s, %" PRIu64 " bytes of output", outcome_names[outcome],
		    wl->info.error, wl->info.produced > workload_head(wl) ? wl->info.produced : workload_head(wl));
	else
		eventlog_add(&wl->w->events, "ended", wl->info.handle, "%s, signal %d, %" PRIu64 " bytes of output", outcome_names[outcome],
		    (int)wl->info.term_signal, workload_head(wl));
}

void
tally_refused(struct workerd *w, enum work_refusal refusal, const char *error)
{
	unsigned i = (unsigned)refusal < REFUSALS ? (unsigned)refusal : 0;

	w->refused++;
	w->refusals[i]++;
	eventlog_add(&w->events, "refused", refusal_names[i], "%s", error);
}

static int
send_one(struct ipc_chan *chan, uint32_t id, const char *name, const char *label, uint64_t value)
{
	struct ipc_hdr hdr = { .type = CTL_EV_METRIC, .id = id };
	struct ctl_metric m = { .value = value };

	snprintf(m.name, sizeof(m.name), "%s", name);
	snprintf(m.label, sizeof(m.label), "%s", label);
	return ipc_send_fds(chan, &hdr, &m, sizeof(m), NULL, 0);
}

int
tally_metrics(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	const struct workerd *w = ctx;
	int r = 0;

	for (unsigned i = 1; i < OUTCOMES && r == 0; i++)
		r = send_one(chan, msg->hdr.id, "workloads_ended", outcome_names[i], w->outcomes[i]);
	for (unsigned i = 1; i < REFUSALS && r == 0; i++)
		r = send_one(chan, msg->hdr.id, "workloads_refused", refusal_names[i], w->refusals[i]);
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}
