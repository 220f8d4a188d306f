/*
 * Who calls: the launcher, which holds what is ours and is trusted as root's equal; and workinit, which runs as a runner: its
 * word is a wake-up only, what it says is read from the record and checked there. A workinit that breaks the protocol costs
 * its own workload, a launcher that does is fatal.
 */
#include "workerd/launchchan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/pool.h"
#include "workerd/account.h"
#include "workerd/carriers.h"
#include "workerd/confinement.h"
#include "workerd/leases.h"
#include "workerd/life.h"
#include "workerd/output.h"
#include "workerd/privchan.h"
#include "workerd/result.h"
#include "workerd/spill.h"
#include "workerd/stage.h"
#include "workerd/sweep.h"

#define QUEUE_MAX	(1u << 20)
#define INIT_QUEUE_MAX	(256u << 10)	/* every secret of a workload at once */
#define SIZE(type)	sizeof(struct type), sizeof(struct type)

/* ---- workinit ---- */

static int
on_started(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	/* ctx is shared by all init channels; the workload is the one whose channel this is */
	struct workload *wl = (struct workload *)(void *)((char *)chan - offsetof(struct workload, init));
	struct launch_report rep;

	if (wl->rec.h == NULL)
		return 0;
	record_report(&wl->rec, &rep);
	if ((rep.flags & LAUNCH_REPORT_STARTED) == 0)
		return -EPROTO;
	if (stage_of(wl) == STAGE_PAYLOAD)	/* else nobody is told before all of it is there */
		workload_event(wl, EV_STARTED);
	return 0;
}

static struct workload *
workload_of(struct ipc_chan *chan)
{
	return (struct workload *)(void *)((char *)chan - offsetof(struct workload, init));
}

static int
on_secret(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct init_done done;

	memcpy(&done, msg->data, sizeof(done));
	if (done.status > 0 || done.files > SECRETS_MAX)
		return -EPROTO;
	leases_answer(workload_of(chan), msg->hdr.id, &done);
	return 0;
}

static int
on_netns(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	return l2_on_netns(workload_of(chan), msg);
}

static int
on_addresses(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	return l2_on_addresses(workload_of(chan), msg);
}

static void
init_ended(struct ipc_chan *chan, int err, void *ctx)
{
	const struct workload *wl = (struct workload *)(void *)((char *)chan - offsetof(struct workload, init));

	ipc_chan_done(chan);
	leases_ended(wl);
	if (err < 0)
		launchchan_kill(wl);	/* else ENDED follows */
}

static const struct ipc_rule init_rules[] = {
	{ INIT_EV_STARTED, IPC_ST_OPEN, 0, 0, SIZE(launch_report), on_started },
	{ INIT_ANS_SECRET, IPC_ST_OPEN, 0, 0, SIZE(init_done), on_secret },
	{ INIT_ANS_NETNS, IPC_ST_OPEN, 0, 1, 0, 0, on_netns },
	{ INIT_ANS_ADDRESSES, IPC_ST_OPEN, 0, 0, 0, 0, on_addresses },
};

static_assert(sizeof(struct init_secret) >= sizeof(struct l2_addresses) && sizeof(struct init_secret) >= sizeof(struct launch_report),
    "the longest record, of both directions");
static const struct ipc_conf init_conf = { .rules = init_rules, .nrules = sizeof(init_rules) / sizeof(init_rules[0]),
	.max_payload = sizeof(struct init_secret), .queue_max = INIT_QUEUE_MAX, .ended = init_ended };

int
launchchan_init(struct workload *wl, int fd)
{
	int r = ipc_chan_init(&wl->init, wl->w->loop, fd, &init_conf);

	if (r == 0)
		wl->init.state = IPC_ST_OPEN;
	return r;
}

/* ---- launcher ---- */

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	return ipc_take_hello(chan, msg, IPC_ROLE_LAUNCHER, NULL);
}

static int
on_ready(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;

	memcpy(&w->ready, msg->data, sizeof(w->ready));
	if (w->ready.tree > LAUNCH_TREE_PIDNS || w->ready.cgroup > 2 || w->ready.pool_count > POOL_MAX ||
	    (w->ready.parts & ~LAUNCH_PARTS_KNOWN) != 0 ||
	    !ipc_str_ok(w->ready.build, sizeof(w->ready.build)))
		return -EPROTO;
	w->ids.first = w->ready.pool_first;
	w->ids.count = w->ready.pool_count;
	w->caps.cgroup = w->ready.cgroup;
	w->caps.uid_pool = w->ready.pool_count > 1;
	if (w->ready.pool_count == 0 && w->ready.pool_first == LAUNCH_POOL_AWAITED)
		account_await(w);
	w->caps.sandbox = (uint16_t)(confinement(&w->conf, &w->policy, &w->ready).parts | 
	    (w->ready.parts & (LAUNCH_PART_NET | LAUNCH_PART_FILTER)));
	w->caps.landlock_abi = (w->caps.sandbox & LAUNCH_PART_LANDLOCK) != 0 ? w->ready.landlock_abi : 0;
	return 0;
}

static bool
is_held(const struct launch_held *held, const struct workerd *w)
{
	return launch_held_ok(held, &w->ready) && workload_by_handle(w, held->handle) == NULL;
}

static int
on_held(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct launch_held held;
	int fds[4], r;

	memcpy(&held, msg->data, sizeof(held));
	if (!is_held(&held, w))
		return -EPROTO;
	if (sweep_held(w, &held))
		return 0;
	if (held.stage == LAUNCH_STAGE_CARRIER) {
		carriers_held(w, &held);
		return 0;
	}
	for (unsigned i = 0; i < 4; i++)
		fds[i] = ipc_take_fd(msg, i);
	r = workload_adopt(w, &held, fds);
	for (int i = 0; i < 4; i++)
		cleanup_close(&fds[i]);
	return r;
}

/* What the journal knows and the launcher does not hold is lost, or has ended under an earlier launcher. */
static int
on_held_end(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	uint32_t held = 0, lost = 0;

	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		held++;
	for (size_t i = 0; i < w->nfrom_journal; i++) {
		struct workload *wl = workload_by_handle(w, w->from_journal[i].handle);

		if (wl == NULL)
			lost++;
		if (wl == NULL)
			workload_from_journal(w, &w->from_journal[i]);
		else
			wl->journaled_end = w->from_journal[i].type == JOURNAL_ENDED;
	}
	free(w->from_journal);
	w->from_journal = NULL;
	w->nfrom_journal = 0;
	spill_settle(w);
	result_sweep(w);
	w->up = true;
	log_info("%u workloads taken back, %u from the journal alone", held, lost);
	sweep_begin(w);
	if (w->awaited == 0)	/* else with the last of them, see life.c */
		privchan_open(w);
	return 0;
}

static const char *
refusal_text(int status)
{
	switch (-status) {
	case EAGAIN:
		return "no more processes";
	case EEXIST:
		return "the launcher still holds a workload of that name";
	case EMFILE:
	case ENFILE:
		return "no more descriptors";
	default:
		return strerror(-status);
	}
}

static int
take_process(struct workload *wl, struct ipc_msg *msg)
{
	struct launch_held held;
	_cleanup_close_ int out = ipc_take_fd(msg, 0), init = ipc_take_fd(msg, 1);
	int r;

	memcpy(&held, msg->data, sizeof(held));
	if (strcmp(held.handle, wl->info.handle) != 0 || !launch_held_ok(&held, &wl->w->ready))
		return -EPROTO;
	wl->held = true;
	r = launchchan_init(wl, take_fd(&init));
	return r < 0 ? r : output_open(wl, take_fd(&out));
}

static int
on_start_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct workload *wl = w->all.first;
	char text[208];
	int r;

	if (sweep_answer(w, msg))
		return 0;
	if (carriers_answer(w, msg, &r))
		return r;
	while (wl != NULL && (wl->start_id != msg->hdr.id || wl->start_id == 0))
		wl = wl->next;
	if (wl == NULL || (msg->hdr.status == 0) != (msg->nfds == 2 && msg->hdr.len == sizeof(struct launch_held)))
		return -EPROTO;
	wl->start_id = 0;
	if (msg->hdr.status < 0) {
		snprintf(text, sizeof(text), "launcher: %s", refusal_text(msg->hdr.status));
		workload_refused(wl, WORK_REFUSED_START_FAILED, text);
		return 0;
	}
	r = take_process(wl, msg);
	if (r == 0) {
		leases_launched(wl);
		workload_event(wl, EV_LAUNCHED);
	}
	return r;
}

static int
on_ended(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct launch_ended end;
	struct launch_report rep = { 0 };
	struct workload *wl;

	memcpy(&end, msg->data, sizeof(end));
	if (ipc_str_ok(end.handle, sizeof(end.handle)) && (sweep_ended(w, &end) || carriers_ended(w, &end)))
		return 0;
	wl = ipc_str_ok(end.handle, sizeof(end.handle)) ? workload_by_handle(w, end.handle) : NULL;
	if (wl == NULL)
		return -EPROTO;
	if (wl->rec.h != NULL && end.stage != wl->rec.h->stage)
		return 0;	/* the next one was asked for already */
	wl->end = end;
	if (wl->rec.h != NULL)
		record_report(&wl->rec, &rep);
	workload_event(wl, wl->state == ST_HELD && wl->naskers > 0 && stage_of(wl) == STAGE_PAYLOAD && (rep.flags & LAUNCH_REPORT_FAILED) != 0 ?
	    EV_FAILED : EV_TREE_GONE);
	return 0;
}

static void
launcher_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct workerd *w = ctx;

	ipc_chan_done(chan);
	if (err < 0)
		log_error("launcher's channel: %s", strerror(-err));
	spill_all(w);		/* its end is the end of all work; at an orderly stop it may be seen before our own SIGTERM */
	w->exit_code = 1;
	loop_stop(w->loop);
}

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, SIZE(ipc_hello), on_hello },
	{ LAUNCH_EV_READY, IPC_ST_OPEN, 0, 0, SIZE(launch_ready), on_ready },
	{ LAUNCH_EV_HELD, IPC_ST_OPEN, 4, 4, SIZE(launch_held), on_held },
	{ LAUNCH_EV_HELD_END, IPC_ST_OPEN, 0, 0, 0, 0, on_held_end },
	{ LAUNCH_ANS_START, IPC_ST_OPEN, 0, 2, 0, sizeof(struct launch_held), on_start_answer },
	{ LAUNCH_EV_ENDED, IPC_ST_OPEN, 0, 0, SIZE(launch_ended), on_ended },
};

static struct ipc_conf conf = { .rules = rules, .nrules = sizeof(rules) / sizeof(rules[0]),
	.max_payload = IPC_MAX_LAUNCH, .queue_max = QUEUE_MAX, .ended = launcher_ended };

int
launchchan_open(struct workerd *w, int fd)
{
	int r;

	conf.ctx = w;
	r = ipc_chan_init(&w->launcher, w->loop, fd, &conf);
	return r < 0 ? r : ipc_send_hello(&w->launcher, IPC_ROLE_WORKERD, 0);
}

int
launchchan_start(struct workload *wl, const struct launch_start *s, int spec, int input)
{
	const int fds[5] = { spec, wl->rec.fd, wl->rec.report, wl->w->ids.root, input };

	return launchchan_ask(wl->w, s, fds, input >= 0 ? 5 : 4, &wl->start_id);
}

int
launchchan_ask(struct workerd *w, const struct launch_start *s, const int *fds, unsigned nfds, uint32_t *ret_id)
{
	return ipc_request(&w->launcher, LAUNCH_REQ_START, s, sizeof(*s), fds, nfds, ret_id);
}

void
launchchan_about(struct workerd *w, const char *handle, uint16_t type)
{
	struct launch_ref ref = { 0 };

	snprintf(ref.handle, sizeof(ref.handle), "%s", handle);
	if (ipc_send(&w->launcher, type, &ref, sizeof(ref)) < 0)
		log_warn("launcher: cannot send about %s", handle);
}

void
launchchan_kill(const struct workload *wl)
{
	launchchan_about(wl->w, wl->info.handle, LAUNCH_EV_KILL);
}

void
launchchan_forget(const struct workload *wl)
{
	launchchan_about(wl->w, wl->info.handle, LAUNCH_EV_FORGET);
}
