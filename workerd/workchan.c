/*
 * Who calls: connectd, which the hub can reach and which may be taken over. Sizes and counts are checked by the table, strings and
 * numbers here. It may start, signal, read and forget work within policy; nothing it sends is a path that is opened as it
 * is. A record that fits no row ends the channel; workloads go on and a fresh pair is asked for.
 */
#include "workerd/workchan.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "workerd/harness.h"
#include "workerd/leases.h"
#include "workerd/life.h"
#include "workerd/output.h"
#include "workerd/privchan.h"
#include "workerd/result.h"
#include "workerd/start.h"

#define QUEUE_MAX	(8u << 20)	/* a snapshot of everything, and answers */
#define SIZE(type)	sizeof(struct type), sizeof(struct type)

static struct work_str argv[WORK_ARGV_MAX], env[WORK_ENV_MAX];

/* ---- telling ---- */

static bool
tell(struct workerd *w, uint16_t type, const void *data, size_t len)
{
	return ipc_chan_is_open(&w->work) && ipc_send(&w->work, type, data, len) == 0;
}

void
workchan_tell(struct workload *wl)
{
	struct work_workload info;

	if (!ipc_chan_is_open(&wl->w->work) || workload_is_own(wl))
		return;
	workload_info(wl, &info);
	tell(wl->w, WORK_EV_WORKLOAD, &info, sizeof(info));
	result_tell(wl);
}

void
workchan_gone(const struct workload *wl)
{
	struct work_ref ref = { .wid = wl->info.wid };

	if (!workload_is_own(wl))
		tell(wl->w, WORK_EV_GONE, &ref, sizeof(ref));
}

void
workchan_answer(struct workerd *w, uint32_t id, enum work_refusal refusal, uint32_t wid, uint32_t flags,
    const char *error)
{
	struct work_answer ans = { .refusal = (uint32_t)refusal, .wid = wid, .flags = flags };
	struct ipc_hdr req = { .type = WORK_REQ_START, .id = id };

	snprintf(ans.error, sizeof(ans.error), "%s", error);
	if (ipc_chan_is_open(&w->work))
		ipc_answer(&w->work, &req, 0, &ans, sizeof(ans));
}

void
workchan_answer_askers(struct workload *wl, enum work_refusal refusal, const char *error)
{
	for (unsigned i = 0; i < wl->naskers; i++)
		workchan_answer(wl->w, wl->askers[i], refusal, refusal == WORK_OK ? wl->info.wid : 0, 0, error);
	wl->naskers = 0;
}

static void
tell_all(struct workerd *w)
{
	for (struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		workchan_tell(wl);
}

/* ---- what connectd asks ---- */

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	int r = ipc_take_hello(chan, msg, IPC_ROLE_CONNECTD, NULL);

	if (r < 0)
		return r;
	r = ipc_send(chan, WORK_EV_CAPS, &w->caps, sizeof(w->caps));
	if (r == 0)
		devices_tell_caps(w);
	if (r == 0)
		r = inventory_send(w, chan);
	if (r == 0) {
		tell_all(w);
		r = ipc_send(chan, WORK_EV_SNAP_END, NULL, 0);
	}
	return r;
}

static int
on_start(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	static uint8_t buf[WORK_SPEC_MAX];
	static struct work_net net;
	struct work_spec spec = { .argv = argv, .env = env, .net = &net };
	size_t len;
	const uint8_t *data = workload_spec_bytes(msg, buf, &len);
	_cleanup_close_ int bundle = ipc_take_fd(msg, msg->hdr.len == 0 ? 1 : 0);

	if (msg->hdr.id == 0)
		return -EPROTO;
	if (work_spec_decode(&spec, data, len) < 0)
		workchan_answer(ctx, msg->hdr.id, WORK_REFUSED_BAD_SPEC, 0, 0, "malformed specification");
	else
		workload_start(ctx, &spec, bundle, msg->hdr.id);
	explicit_bzero((void *)data, len);	/* environments may hold secrets */
	return 0;
}

static int
on_signal(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct work_answer ans = { 0 };
	struct work_signal sig;
	struct workload *wl;

	memcpy(&sig, msg->data, sizeof(sig));
	if (!ipc_str_ok(sig.handle, sizeof(sig.handle)) || !handle_ok(sig.handle) ||
	    (sig.signo != SIGINT && sig.signo != SIGTERM && sig.signo != SIGKILL))
		return -EPROTO;
	wl = workload_by_handle(ctx, sig.handle);
	if (wl != NULL && !workload_is_own(wl)) {
		ans.wid = wl->info.wid;
		workload_signal(wl, sig.signo);
	} else {
		ans.refusal = WORK_REFUSED_UNKNOWN_HANDLE;
		snprintf(ans.error, sizeof(ans.error), "no workload of that handle");
	}
	return ipc_answer(chan, &msg->hdr, 0, &ans, sizeof(ans));
}

static int
on_revoke(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct work_revoke req;

	memcpy(&req, msg->data, sizeof(req));
	if (msg->hdr.id == 0 || !ipc_str_ok(req.lease, sizeof(req.lease)) || !ipc_str_ok(req.grant, sizeof(req.grant)) ||
	    req.lease[0] == '\0' || req.kill > 1)
		return -EPROTO;
	leases_revoke(ctx, &req, msg->hdr.id);
	return 0;
}

static int
on_refresh(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	static uint8_t buf[WORK_SPEC_MAX];
	size_t len;
	const uint8_t *data = workload_spec_bytes(msg, buf, &len);
	int r = msg->hdr.id == 0 ? -EPROTO : leases_refresh(ctx, data, len, msg->hdr.id);

	explicit_bzero((void *)data, len);
	return r;
}

static int
on_harness(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct harness_ask ask;

	memcpy(&ask, msg->data, sizeof(ask));
	return harness_request(ctx, &ask, msg->hdr.id);
}

static int
on_sync(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	tell_all(ctx);
	return ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}

static int
on_inventory(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	int r = inventory_send(w, chan);

	if (r == 0)
		r = ipc_answer(chan, &msg->hdr, 0, NULL, 0);
	if (r == 0 && inventory_machine(&w->inventory) != w->inventory.machine) {
		log_info("what decides over sandboxes here has changed: a new workerd, once the launcher has tried them again");
		loop_stop(w->loop);
	}
	return r;
}

/* The workload of a message that begins with a wid; NULL when it is gone already, which is no error. */
static struct workload *
named(const struct ipc_msg *msg, const struct workerd *w)
{
	uint32_t wid;

	memcpy(&wid, msg->data, sizeof(wid));
	return workload_by_wid(w, wid);
}

static int
on_sub(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workload *wl = named(msg, ctx);
	struct work_sub sub;

	memcpy(&sub, msg->data, sizeof(sub));
	if (wl == NULL)
		return 0;
	if (msg->hdr.type == WORK_EV_SUB) {
		output_sub(wl, &sub);
		return 0;
	}
	output_credit(wl, &sub);
	output_ack(wl, sub.from);
	return 0;
}

static int
on_ack(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workload *wl = named(msg, ctx);
	struct work_offset ack;

	memcpy(&ack, msg->data, sizeof(ack));
	if (wl != NULL)
		output_ack(wl, ack.offset);
	return 0;
}

static int
on_delivered(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workload *wl = named(msg, ctx);

	if (wl != NULL)
		workload_event(wl, msg->hdr.type == WORK_EV_DISOWN ? EV_DISOWN : EV_DELIVERED);
	return 0;
}

static int
on_session(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct work_session s;

	memcpy(&s, msg->data, sizeof(s));
	output_session(ctx, s.up != 0);
	return 0;
}

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, SIZE(ipc_hello), on_hello },
	{ WORK_REQ_START, IPC_ST_OPEN, 0, 2, 0, WORK_DATA_MAX, on_start },
	{ WORK_REQ_SIGNAL, IPC_ST_OPEN, 0, 0, SIZE(work_signal), on_signal },
	{ WORK_REQ_REVOKE, IPC_ST_OPEN, 0, 0, SIZE(work_revoke), on_revoke },
	{ WORK_REQ_REFRESH, IPC_ST_OPEN, 0, 1, 0, WORK_DATA_MAX, on_refresh },
	{ WORK_REQ_HARNESS, IPC_ST_OPEN, 0, 0, SIZE(harness_ask), on_harness },
	{ WORK_REQ_SYNC, IPC_ST_OPEN, 0, 0, 0, 0, on_sync },
	{ WORK_REQ_INVENTORY, IPC_ST_OPEN, 0, 0, 0, 0, on_inventory },
	{ WORK_EV_SUB, IPC_ST_OPEN, 0, 0, SIZE(work_sub), on_sub },
	{ WORK_EV_CREDIT, IPC_ST_OPEN, 0, 0, SIZE(work_sub), on_sub },
	{ WORK_EV_ACK, IPC_ST_OPEN, 0, 0, SIZE(work_offset), on_ack },
	{ WORK_EV_DELIVERED, IPC_ST_OPEN, 0, 0, SIZE(work_ref), on_delivered },
	{ WORK_EV_DISOWN, IPC_ST_OPEN, 0, 0, SIZE(work_ref), on_delivered },
	{ WORK_EV_SESSION, IPC_ST_OPEN, 0, 0, SIZE(work_session), on_session },
	{ WORK_REQ_ATTACH, IPC_ST_OPEN, 0, 1, SIZE(attach_open), attach_on_open },
	{ WORK_EV_ATTACH_SIZE, IPC_ST_OPEN, 0, 0, SIZE(attach_size), attach_on_size },
	{ WORK_EV_ATTACH_CLOSE, IPC_ST_OPEN, 0, 0, SIZE(attach_ref), attach_on_close },
	{ WORK_REQ_L2, IPC_ST_OPEN, 0, 0, SIZE(l2_open), l2_on_open },
	{ WORK_EV_L2_CLOSE, IPC_ST_OPEN, 0, 0, SIZE(l2_ref), l2_on_close },
	{ WORK_REQ_FILE, IPC_ST_OPEN, 0, 0, SIZE(file_request), carriers_on_open },
	{ WORK_REQ_DEVICE, IPC_ST_OPEN, 0, 0, SIZE(device_open), devices_on_open },
	{ WORK_EV_DEVICE_CLOSE, IPC_ST_OPEN, 0, 0, SIZE(device_ref), devices_on_close },
};

/* ---- the channel ---- */

static void
drop(struct workerd *w)
{
	ipc_chan_done(&w->work);
	w->pair = 0;
	devices_work_down(w);
	l2_work_down(w);
	attach_work_down(w);
	carriers_unasked(w);
	output_session(w, false);
	output_reset(w);
	for (struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		wl->naskers = wl->result_told = 0;	/* those who asked are gone */
	leases_unasked(w);
	harness_unasked(w);
}

static void
work_ended(struct ipc_chan *chan, int err, void *ctx)
{
	if (err < 0)
		log_error("connectd's channel: %s", strerror(-err));
	drop(ctx);
	if (err < 0)
		privchan_fault(ctx);
	else
		privchan_again(ctx);
}

static void
writable(struct ipc_chan *chan, void *ctx)
{
	struct workerd *w = ctx;

	w->blocked = false;
	output_send_all(w);
}

static struct ipc_conf conf = { .rules = rules, .nrules = sizeof(rules) / sizeof(rules[0]),
	.max_payload = IPC_MAX_WORK, .queue_max = QUEUE_MAX, .ended = work_ended, .writable = writable };

void
workchan_open(struct workerd *w, int fd, const struct priv_peer *peer)
{
	int r;

	drop(w);
	conf.ctx = w;
	r = ipc_chan_init(&w->work, w->loop, fd, &conf);
	if (r == 0)
		r = ipc_send_hello(&w->work, IPC_ROLE_WORKERD, 0);
	if (r < 0) {
		log_error("work channel: %s", strerror(-r));
		drop(w);
		privchan_again(w);
		return;
	}
	w->pair = peer->pair;
	w->max_data = peer->max_data;
}

void
workchan_done(struct workerd *w)
{
	ipc_chan_done(&w->work);
}
