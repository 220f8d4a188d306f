/*
 * Who calls: workchan.c for connectd, which may have been taken over; launchchan.c for workinit, which runs as the runner, so its
 * namespace is shown to privhelper, who looks whose it is; privchan.c. The steps: workinit passes its network namespace, privhelper makes the
 * interface there, workinit sets the addresses, connectd gets the descriptor. It lives with that, so nothing is to be undone: what fails
 * closes it. One that no workload was named for is parked until a start does.
 */
#include "workerd/l2.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "proto/ipc/priv.h"
#include "workerd/workerd.h"

#define STAGE_MS	10000

static struct l2_link *
find(struct workerd *w, const char *id)
{
	for (struct l2_link *l = w->l2.list; l < w->l2.list + L2_LINKS_MAX; l++)
		if (l->used && strcmp(l->open.id, id) == 0)
			return l;
	return NULL;
}

/* handle NULL: privhelper answers, whose channel is one for all. */
static struct l2_link *
awaiting(struct workerd *w, enum l2_stage stage, uint32_t request, const char *handle)
{
	for (struct l2_link *l = w->l2.list; l < w->l2.list + L2_LINKS_MAX; l++)
		if (l->used && l->stage == stage && l->request == request && (handle == NULL || strcmp(l->open.handle, handle) == 0))
			return l;
	return NULL;
}

static void
answer(const struct l2_link *l, enum l2_word word, int fd, const char *error)
{
	struct ipc_hdr hdr = { .type = WORK_ANS_L2, .id = l->asker };
	struct l2_answer ans = { .ok = word, .offload = word == L2_IS_UP ? l->open.offload : 0 };

	snprintf(ans.error, sizeof(ans.error), "%s", error);
	if (ipc_chan_is_open(&l->w->work))
		ipc_send_fds(&l->w->work, &hdr, &ans, sizeof(ans), &fd, fd >= 0);
}

static void
forget(struct l2_link *l)
{
	loop_timer_del(l->w->loop, &l->timer);
	cleanup_close(&l->fd);
	l->fd = -1;
	l->used = false;
}

static void
fail(struct l2_link *l, const char *why)
{
	log_warn("interface %s (%s) for %s: %s", l->open.id, l->open.name, l->open.handle, why);
	if (l->stage != L2_UP)
		answer(l, L2_NO, -1, why);
	forget(l);
}

static void
fail_errno(struct l2_link *l, int r)
{
	char why[208];
	bool tap = l->stage == L2_TAP;

	if (tap && r == -EEXIST)
		snprintf(why, sizeof(why), "an interface %s is there already", l->open.name);
	else if (tap && r == -ENODEV)
		snprintf(why, sizeof(why), "this kernel has no /dev/net/tun: modprobe tun");
	else if (tap && r == -EAGAIN)
		snprintf(why, sizeof(why), "interfaces are asked for too often; try again in some seconds");
	else if (l->stage == L2_NETNS && r == -EOPNOTSUPP)
		snprintf(why, sizeof(why), "this workload was started without a network of its own, or before policy.conf had l2 = yes");
	else
		snprintf(why, sizeof(why), "%s: %s", tap ? "privhelper" : l->stage == L2_NETNS ? "its network namespace" : "its addresses",
		    strerror(-r));
	fail(l, why);
}

static void
too_late(struct loop_timer *timer)
{
	struct l2_link *l = timer->ctx;

	fail(l, l->stage == L2_TAP ? "privhelper does not answer" : "the workload's first process does not answer");
}

/* To the next stage; r is that of asking for it. */
static void
advance(struct l2_link *l, enum l2_stage stage, int r)
{
	l->stage = stage;
	if (r < 0)
		fail_errno(l, r);
	else
		loop_timer_set_ms(l->w->loop, &l->timer, STAGE_MS);
}

static void
is_up(struct l2_link *l)
{
	log_info("interface %s (%s) for %s: up", l->open.id, l->open.name, l->open.handle);
	loop_timer_del(l->w->loop, &l->timer);
	answer(l, L2_IS_UP, l->fd, "");
	cleanup_close(&l->fd);
	l->fd = -1;
	l->stage = L2_UP;
}

/* ---- what is possible ---- */

void
l2_issue(const struct workerd *w, char *buf, size_t size)
{
	char where[POLICY_WHERE];

	buf[0] = '\0';
	if (!w->policy.l2)
		snprintf(buf, size, "%s = no", policy_where(&w->policy, POLICY_L2, where));
	else if (w->priv_pid == 0 || (w->devices.priv.flags & PRIV_STATE_L2) == 0)
		snprintf(buf, size, "privhelper %s", w->priv_pid == 0 ? "does not answer" : "makes none: restart edgeward-privhelper");
}

/* NULL is right where no workload is named. */
static struct workload *
admit_link(struct workerd *w, const struct l2_open *open, char why[208])
{
	struct workload *wl = workload_by_handle(w, open->handle);

	l2_issue(w, why, 208);
	if (why[0] == '\0' && open->handle[0] != '\0' && (wl == NULL || wl->state != ST_RUNNING || !ipc_chan_is_open(&wl->init)))
		snprintf(why, 208, "no workload %.64s runs here", open->handle);
	if (why[0] == '\0' && find(w, open->id) != NULL)
		snprintf(why, 208, "%s is open already", open->id);
	return why[0] == '\0' ? wl : NULL;
}

static void
ask_netns(struct l2_link *l, struct workload *wl)
{
	advance(l, L2_NETNS, ipc_request(&wl->init, INIT_REQ_NETNS, NULL, 0, NULL, 0, &l->request));
}

/* ---- from connectd ---- */

int
l2_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct l2_link *l = w->l2.list;
	struct l2_open open;
	struct workload *wl;
	char why[208];

	memcpy(&open, msg->data, sizeof(open));
	if (msg->hdr.id == 0 || !l2_open_ok(&open))
		return -EPROTO;
	wl = admit_link(w, &open, why);
	while (l < w->l2.list + L2_LINKS_MAX && l->used)
		l++;
	if (why[0] == '\0' && l == w->l2.list + L2_LINKS_MAX)
		snprintf(why, sizeof(why), "%u interfaces are open, as many as this agent holds", L2_LINKS_MAX);
	if (why[0] != '\0') {
		log_warn("interface %s (%s) is refused: %s", open.id, open.name, why);
		answer(&(struct l2_link){ .w = w, .asker = msg->hdr.id }, L2_NO, -1, why);
		return 0;
	}
	l->used = true;
	l->open = open;
	l->asker = msg->hdr.id;
	if (wl != NULL) {
		ask_netns(l, wl);
		return 0;
	}
	l->stage = L2_PARKED;
	l->open.offload = 0;	/* the hub is told now how frames come, and an older kernel would not have it so */
	answer(l, L2_WAITS, -1, "");
	return 0;
}

int
l2_on_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct l2_ref ref;
	struct l2_link *l;

	memcpy(&ref, msg->data, sizeof(ref));
	if (!l2_ref_ok(&ref))
		return -EPROTO;
	l = find(ctx, ref.id);
	if (l != NULL && l->stage == L2_UP)
		log_info("interface %s (%s) for %s: closed", l->open.id, l->open.name, l->open.handle);
	if (l != NULL)
		forget(l);
	return 0;
}

/* ---- the steps ---- */

/* fd is the namespace now. */
static void
ask_tap(struct l2_link *l)
{
	struct priv_tap req = { .mtu = l->open.mtu, .offload = l->open.offload };
	struct ipc_chan *priv = &l->w->priv;

	memcpy(req.name, l->open.name, sizeof(req.name));
	memcpy(req.mac, l->open.mac, sizeof(req.mac));
	advance(l, L2_TAP, ipc_chan_is_open(priv) ? ipc_request(priv, PRIV_REQ_TAP, &req, sizeof(req), &l->fd, 1, &l->request) : -ENOTCONN);
}

int
l2_on_netns(struct workload *wl, struct ipc_msg *msg)
{
	struct workerd *w = wl->w;
	struct l2_link *l = awaiting(w, L2_NETNS, msg->hdr.id, wl->info.handle);

	if (msg->hdr.status > 0 || (msg->hdr.status == 0) != (msg->nfds == 1))
		return -EPROTO;
	if (l == NULL)
		return 0;
	if (msg->hdr.status < 0) {
		fail_errno(l, msg->hdr.status);
		return 0;
	}
	l->fd = ipc_take_fd(msg, 0);
	ask_tap(l);
	return 0;
}

int
l2_on_tap(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct l2_link *l = awaiting(w, L2_TAP, msg->hdr.id, NULL);
	struct workload *wl = l != NULL ? workload_by_handle(w, l->open.handle) : NULL;
	struct l2_addresses what = { 0 };

	if (msg->hdr.status > 0 || (msg->hdr.status == 0) != (msg->nfds == 1))
		return -EPROTO;
	if (l == NULL)
		return 0;
	if (msg->hdr.status == -EOPNOTSUPP && l->open.offload != 0) {	/* an option: without it, then */
		l->open.offload = 0;
		ask_tap(l);
		return 0;
	}
	if (msg->hdr.status < 0 || wl == NULL || !ipc_chan_is_open(&wl->init)) {
		fail_errno(l, msg->hdr.status < 0 ? msg->hdr.status : -ESRCH);
		return 0;
	}
	cleanup_close(&l->fd);
	l->fd = ipc_take_fd(msg, 0);
	if (l->open.naddrs == 0) {
		is_up(l);
		return 0;
	}
	memcpy(what.name, l->open.name, sizeof(what.name));
	what.n = l->open.naddrs;
	memcpy(what.addrs, l->open.addrs, sizeof(what.addrs));
	advance(l, L2_ADDRESSES, ipc_request(&wl->init, INIT_REQ_ADDRESSES, &what, sizeof(what), NULL, 0, &l->request));
	return 0;
}

int
l2_on_addresses(struct workload *wl, struct ipc_msg *msg)
{
	struct l2_link *l = awaiting(wl->w, L2_ADDRESSES, msg->hdr.id, wl->info.handle);

	if (msg->hdr.status > 0)
		return -EPROTO;
	if (l == NULL)
		return 0;
	if (msg->hdr.status < 0)
		fail_errno(l, msg->hdr.status);
	else
		is_up(l);
	return 0;
}

/* ---- a start that names one ---- */

bool
l2_has(struct workerd *w, const char *id, const char *handle, char error[208])
{
	const struct l2_link *l = find(w, id);

	if (l == NULL || strcmp(l->open.handle, handle) == 0)
		return l != NULL;
	if (l->stage == L2_PARKED && l->open.handle[0] == '\0')
		return true;
	snprintf(error, 208, "device %s is leased to workload %.64s", id, l->open.handle);
	return false;
}

void
l2_lease(const struct workload *wl, const char *list)
{
	for (struct l2_link *l = wl->w->l2.list; l < wl->w->l2.list + L2_LINKS_MAX; l++)
		if (l->used && l->stage == L2_PARKED && device_listed(list, l->open.id))
			memcpy(l->open.handle, wl->info.handle, sizeof(l->open.handle));
}

void
l2_workload_runs(struct workload *wl)
{
	for (struct l2_link *l = wl->w->l2.list; l < wl->w->l2.list + L2_LINKS_MAX; l++)
		if (l->used && l->stage == L2_PARKED && strcmp(l->open.handle, wl->info.handle) == 0)
			ask_netns(l, wl);
}

/* ---- ends ---- */

void
l2_work_down(struct workerd *w)
{
	for (struct l2_link *l = w->l2.list; l < w->l2.list + L2_LINKS_MAX; l++)
		if (l->used)
			forget(l);
}

void
l2_priv_down(struct workerd *w)
{
	for (struct l2_link *l = w->l2.list; l < w->l2.list + L2_LINKS_MAX; l++)
		if (l->used && l->stage == L2_TAP)
			fail(l, "privhelper was restarted");
}

void
l2_workload_ended(const struct workload *wl)
{
	for (struct l2_link *l = wl->w->l2.list; l < wl->w->l2.list + L2_LINKS_MAX; l++)
		if (l->used && strcmp(l->open.handle, wl->info.handle) == 0)
			fail(l, "its workload has ended");
}

void
l2_init(struct workerd *w)
{
	for (struct l2_link *l = w->l2.list; l < w->l2.list + L2_LINKS_MAX; l++) {
		*l = (struct l2_link){ .w = w, .fd = -1 };
		loop_timer_init(&l->timer, too_late, l);
	}
}

void
l2_done(struct workerd *w)
{
	l2_work_down(w);
}
