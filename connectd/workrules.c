/* What workerd may say on the work channel, and what becomes of it. A record that breaks a rule ends the channel. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "connectd/results.h"
#include "connectd/workchan.h"
#include "proto/ipc/launch.h"

#define L(wc, member)	((wc)->listener != NULL && (wc)->listener->member != NULL)

/* Copies a fixed record out of the receive buffer, which may be a place in the link's buffer and is given back here. */
static void
take(struct workchan *wc, const struct ipc_msg *msg, void *dst, size_t len)
{
	if (len > 0)
		memcpy(dst, msg->data, len);
	if (L(wc, rx_unused))
		wc->listener->rx_unused(wc->listener_ctx);
}

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	int r = ipc_take_hello(chan, msg, IPC_ROLE_WORKERD, NULL);

	if (r < 0)
		return r;
	wc->up = true;
	wc->changed(wc->changed_ctx);
	return 0;
}

static int
on_caps(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_caps caps;

	take(wc, msg, &caps, sizeof(caps));
	if (!ipc_str_ok(caps.work_root, sizeof(caps.work_root)) || caps.cgroup > 2 ||
	    (caps.sandbox & ~LAUNCH_PARTS_KNOWN) != 0 || caps.landlock_abi < 0)
		return -EBADMSG;
	wc->mirror->caps = caps;
	wc->mirror->have_caps = true;
	return 0;
}

static int
on_usb(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_usb usb;

	take(wc, msg, &usb, sizeof(usb));
	return inventory_take_usb(&wc->mirror->inventory, &usb);
}

static int
on_inventory(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_inventory inv;

	take(wc, msg, &inv, sizeof(inv));
	return inventory_take(&wc->mirror->inventory, &inv);
}

static int
on_inventory_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;

	take(wc, msg, NULL, 0);
	if (L(wc, inventory))
		wc->listener->inventory(msg->hdr.id, wc->listener_ctx);
	return 0;
}

static int
on_workload(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_workload w;
	struct mirror_entry *e;
	bool is_new;

	take(wc, msg, &w, sizeof(w));
	if (!work_workload_ok(&w))
		return -EBADMSG;
	e = mirror_by_wid(wc->mirror, w.wid);
	if (e != NULL && strcmp(e->w.handle, w.handle) != 0)
		return -EPROTO;
	e = mirror_update(wc->mirror, &w, &is_new);
	if (e == NULL) {
		log_error("more than %u workloads: one is not shown to the hub", MIRROR_MAX);
		return 0;
	}
	if (L(wc, workload))
		wc->listener->workload(e, is_new, wc->listener_ctx);
	return 0;
}

static int
on_result(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_result res;
	struct mirror_entry *e;
	int fd = ipc_take_fd(msg, 0), r;

	take(wc, msg, &res, sizeof(res));
	e = mirror_by_wid(wc->mirror, res.wid);
	if (!work_result_ok(&res) || (res.bundle_bytes > 0) != (fd >= 0) || e == NULL) {
		cleanup_close(&fd);
		return e == NULL && work_result_ok(&res) ? 0 : -EBADMSG;
	}
	r = results_take(e, &res, fd);
	if (r == 0 && L(wc, workload))
		wc->listener->workload(e, false, wc->listener_ctx);
	return r;
}

static void
forget(struct workchan *wc, struct mirror_entry *e)
{
	if (L(wc, gone))
		wc->listener->gone(e, wc->listener_ctx);
	mirror_remove(wc->mirror, e);
}

static int
on_gone(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_ref ref;
	struct mirror_entry *e;

	take(wc, msg, &ref, sizeof(ref));
	e = mirror_by_wid(wc->mirror, ref.wid);
	if (e != NULL)
		forget(wc, e);
	return 0;
}

/* What the new workerd did not name is no more. */
static int
on_snap_end(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;

	take(wc, msg, NULL, 0);
	if (wc->synced || !wc->mirror->have_caps)
		return -EPROTO;
	for (struct mirror_entry *e = wc->mirror->head, *next; e != NULL; e = next) {
		next = e->next;
		if (!e->here)
			forget(wc, e);
	}
	wc->synced = wc->mirror->known = true;
	wc->away_since = MONOTIME_NEVER;
	if (L(wc, synced))
		wc->listener->synced(wc->listener_ctx);
	wc->changed(wc->changed_ctx);
	return 0;
}

static int
on_sync(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;

	take(wc, msg, NULL, 0);
	if (wc->synced && L(wc, synced))
		wc->listener->synced(wc->listener_ctx);
	return 0;
}

static int
on_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_answer a;

	take(wc, msg, &a, sizeof(a));
	if (!ipc_str_ok(a.error, sizeof(a.error)) || a.refusal > WORK_REFUSED_UNKNOWN_HANDLE)
		return -EBADMSG;
	if (L(wc, answer))
		wc->listener->answer(msg->hdr.type, msg->hdr.id, &a, wc->listener_ctx);
	return 0;
}

static int
on_report(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	static uint8_t copy[WORK_REPORT_MAX];
	struct workchan *wc = ctx;
	struct work_report rep;

	take(wc, msg, copy, msg->hdr.len);
	if (work_report_decode(&rep, copy, msg->hdr.len) < 0)
		return -EBADMSG;
	if (L(wc, report))
		wc->listener->report(msg->hdr.id, &rep, wc->listener_ctx);
	return 0;
}

static int
on_harness(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct harness_done done;

	take(wc, msg, &done, sizeof(done));
	if (!harness_done_ok(&done))
		return -EBADMSG;
	if (L(wc, harness))
		wc->listener->harness(msg->hdr.id, &done, wc->listener_ctx);
	return 0;
}

/* The one record that is used where it landed. */
static int
on_output(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_output o;
	struct mirror_entry *e;
	int r = 0;

	memcpy(&o, msg->data, sizeof(o));
	e = mirror_by_wid(wc->mirror, o.wid);
	/* What has been seen is offered to the next session even if workerd is away then and cannot say it. */
	if (e != NULL && o.offset + (msg->hdr.len - sizeof(o)) > e->w.produced)
		e->w.produced = o.offset + (msg->hdr.len - sizeof(o));
	if (e != NULL && o.epoch == e->epoch && L(wc, output))
		r = wc->listener->output(e, msg->data, msg->hdr.len - sizeof(o), wc->listener_ctx);
	/* Not used, or used up: then this does nothing. */
	if (L(wc, rx_unused))
		wc->listener->rx_unused(wc->listener_ctx);
	return r;
}

static int
on_gap(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_gap gap;
	struct mirror_entry *e;

	take(wc, msg, &gap, sizeof(gap));
	if (gap.to <= gap.from || gap.reason < WORK_GAP_MEMORY || gap.reason > WORK_GAP_LOST)
		return -EBADMSG;
	e = mirror_by_wid(wc->mirror, gap.wid);
	if (e == NULL || gap.epoch != e->epoch || !L(wc, gap))
		return 0;
	return wc->listener->gap(e, &gap, wc->listener_ctx);
}

static int
on_output_end(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct work_output_end end;
	struct mirror_entry *e;

	take(wc, msg, &end, sizeof(end));
	if (end.has_digest > 1)
		return -EBADMSG;
	e = mirror_by_wid(wc->mirror, end.wid);
	if (e == NULL || end.epoch != e->epoch || !L(wc, output_end))
		return 0;
	return wc->listener->output_end(e, &end, wc->listener_ctx);
}

static int
on_device_caps(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct device_offer caps;

	take(wc, msg, &caps, sizeof(caps));
	if (!device_offer_ok(&caps))
		return -EBADMSG;
	wc->mirror->devices = caps;
	return 0;
}

static int
on_device(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct device_info info;

	take(wc, msg, &info, sizeof(info));
	if (!device_info_ok(&info))
		return -EBADMSG;
	if (L(wc, device))
		wc->listener->device(&info, wc->listener_ctx);
	return 0;
}

static int
on_l2_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct l2_answer a;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0);

	take(wc, msg, &a, sizeof(a));
	if (!l2_answer_ok(&a) || (a.ok == L2_IS_UP) != (fd >= 0))
		return -EBADMSG;
	if (L(wc, l2_answer))
		wc->listener->l2_answer(msg->hdr.id, &a, &fd, wc->listener_ctx);
	return 0;
}

static int
on_file_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct file_answer a;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0);

	take(wc, msg, &a, sizeof(a));
	if (!file_answer_ok(&a) || (a.ok == 1) != (fd >= 0))
		return -EBADMSG;
	if (L(wc, file_answer))
		wc->listener->file_answer(msg->hdr.id, &a, &fd, wc->listener_ctx);
	return 0;
}

static int
on_device_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct device_answer a;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0);

	take(wc, msg, &a, sizeof(a));
	if (!device_answer_ok(&a) || (a.ok == 1) != (fd >= 0))
		return -EBADMSG;
	if (L(wc, device_answer))
		wc->listener->device_answer(msg->hdr.id, &a, &fd, wc->listener_ctx);
	return 0;
}

static int
on_attach_answer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct attach_answer a;
	_cleanup_close_ int fd = ipc_take_fd(msg, 0);

	take(wc, msg, &a, sizeof(a));
	if (!attach_answer_ok(&a) || (a.refusal == WORK_OK) != (fd >= 0))
		return -EBADMSG;
	if (L(wc, attach_answer))
		wc->listener->attach_answer(msg->hdr.id, &a, &fd, wc->listener_ctx);
	return 0;
}

static int
on_attach_end(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workchan *wc = ctx;
	struct attach_end e;

	take(wc, msg, &e, sizeof(e));
	if (!attach_end_ok(&e))
		return -EBADMSG;
	if (L(wc, attach_end))
		wc->listener->attach_end(&e, wc->listener_ctx);
	return 0;
}

#define FIXED(t, size, fn)	{ .type = (t), .states = IPC_ST_OPEN, .min = (size), .max = (size), .handler = (fn) }

const struct ipc_rule workchan_rules[] = {
	{ .type = IPC_HELLO, .states = IPC_ST_HELLO, .min = sizeof(struct ipc_hello), .max = sizeof(struct ipc_hello),
	    .handler = on_hello },
	FIXED(WORK_EV_CAPS, sizeof(struct work_caps), on_caps),
	FIXED(WORK_EV_WORKLOAD, sizeof(struct work_workload), on_workload),
	FIXED(WORK_EV_USB, sizeof(struct work_usb), on_usb),
	FIXED(WORK_EV_INVENTORY, sizeof(struct work_inventory), on_inventory),
	FIXED(WORK_ANS_INVENTORY, 0, on_inventory_answer),
	FIXED(WORK_EV_DEVICE_CAPS, sizeof(struct device_offer), on_device_caps),
	FIXED(WORK_EV_DEVICE, sizeof(struct device_info), on_device),
	{ .type = WORK_ANS_FILE, .states = IPC_ST_OPEN, .max_fds = 1, .min = sizeof(struct file_answer), .max = sizeof(struct file_answer),
	    .handler = on_file_answer },
	{ .type = WORK_ANS_L2, .states = IPC_ST_OPEN, .max_fds = 1, .min = sizeof(struct l2_answer), .max = sizeof(struct l2_answer),
	    .handler = on_l2_answer },
	{ .type = WORK_ANS_DEVICE, .states = IPC_ST_OPEN, .max_fds = 1, .min = sizeof(struct device_answer),
	    .max = sizeof(struct device_answer), .handler = on_device_answer },
	{ .type = WORK_ANS_ATTACH, .states = IPC_ST_OPEN, .max_fds = 1, .min = sizeof(struct attach_answer),
	    .max = sizeof(struct attach_answer), .handler = on_attach_answer },
	FIXED(WORK_EV_ATTACH_END, sizeof(struct attach_end), on_attach_end),
	FIXED(WORK_EV_SNAP_END, 0, on_snap_end),
	{ .type = WORK_EV_RESULT, .states = IPC_ST_OPEN, .min = sizeof(struct work_result), .max = sizeof(struct work_result),
	    .max_fds = 1, .handler = on_result },
	FIXED(WORK_EV_GONE, sizeof(struct work_ref), on_gone),
	FIXED(WORK_ANS_START, sizeof(struct work_answer), on_answer),
	FIXED(WORK_ANS_SIGNAL, sizeof(struct work_answer), on_answer),
	FIXED(WORK_ANS_SYNC, 0, on_sync),
	FIXED(WORK_ANS_HARNESS, sizeof(struct harness_done), on_harness),
	{ .type = WORK_ANS_REVOKE, .states = IPC_ST_OPEN, .min = 1, .max = WORK_REPORT_MAX, .handler = on_report },
	{ .type = WORK_ANS_REFRESH, .states = IPC_ST_OPEN, .min = 1, .max = WORK_REPORT_MAX, .handler = on_report },
	{ .type = WORK_EV_OUTPUT, .states = IPC_ST_OPEN, .min = sizeof(struct work_output) + 1,
	    .max = sizeof(struct work_output) + WORK_DATA_MAX, .handler = on_output },
	FIXED(WORK_EV_GAP, sizeof(struct work_gap), on_gap),
	FIXED(WORK_EV_OUTPUT_END, sizeof(struct work_output_end), on_output_end),
};
const size_t workchan_nrules = sizeof(workchan_rules) / sizeof(workchan_rules[0]);
