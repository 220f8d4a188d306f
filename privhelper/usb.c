/*
 * The USB verbs.
 *
 * Who calls: workerd, through rules.c. What is trusted: two numbers are taken from it, and both are checked again. On error: it is
 * answered with -errno; a record whose content cannot be costs it its channel.
 *
 * The socket is made here, so that no descriptor of another process ever reaches the kernel; workerd gets the other end. When that
 * end is closed, for whatever reason, the kernel frees the port: nothing is left behind by a workerd that dies.
 *
 * A privhelper that is started after a crash detaches what the ledger names and the marks confirm (common/usbledger.h), and touches
 * no port of anybody else's.
 */
#include "privhelper/usb.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/fdutil.h"
#include "common/log.h"
#include "proto/ipc/priv.h"

static struct vhci_port ports[VHCI_PORTS];

struct attaching {
	struct usb *usb;
	struct usb_slot *slot;
};

static void
keep(struct usb *u, const struct usb_slot *s)
{
	if (usbledger_keep(&u->ledger, s) < 0)
		fatal("cannot write the ledger: %s", strerror(errno));
}

static void
set_free(struct usb *u, struct usb_slot *s)
{
	usbgrant_take(&u->grants, usbledger_row(&u->ledger, s));
	s->state = USB_FREE;
	keep(u, s);
}

void
usb_asker_here(const struct usb *u)
{
	struct priv_state st = { .flags = (u->ready && u->permitted && u->hcd.n > 0 ? PRIV_STATE_USB : 0) | (u->ready && u->l2 ? PRIV_STATE_L2 : 0),
		.audit_seq = u->audit.head.seq };

	memcpy(st.audit_head, u->audit.head.digest, st.audit_seq != 0 ? AUDIT_HEX : 0);
	if (*u->asker != NULL)
		ipc_send(&(*u->asker)->chan, PRIV_EV_STATE, &st, sizeof(st));
}

int
usb_recorded(const struct usb *u, int r)
{
	if (r < 0)
		log_error("what was done cannot be recorded: %s", strerror(-r));
	usb_asker_here(u);
	return r < 0 ? -EIO : 0;
}

static void
tell(const struct usb *u, const struct usb_slot *s, struct priv_usb_device *what)
{
	what->port = s->port;
	/* A send that fails needs no answer: that channel is about to end, and with it the device. */
	if (*u->asker != NULL)
		ipc_send(&(*u->asker)->chan, PRIV_EV_USB_DEVICE, what, sizeof(*what));
}

static void
give_up(struct usb *u, struct usb_slot *s, struct priv_usb_device *what, bool detach, const char *why)
{
	int r;

	usbgrant_take(&u->grants, usbledger_row(&u->ledger, s));	/* first: the numbers of its nodes are not for the next device's owner */
	r = detach ? hcd_detach(&u->hcd, s->port) : 0;
	USB_RECORD(u, "privhelper usb-detach port=%u devid=%08x why=%s result=%s", s->port, s->devid, why,
	    r < 0 ? strerrorname_np(-r) : "ok");
	if (what != NULL)
		tell(u, s, what);
	set_free(u, s);
}

/* One slot that is under way. */
static void
advance(struct usb *u, struct usb_slot *s, size_t nports)
{
	const struct vhci_port *p = NULL;
	struct priv_usb_device what = { .outcome = PRIV_USB_GONE, .refused_class = USBDESC_NONE };
	struct usbauth_job job = { .slot = usbledger_row(&u->ledger, s), .what = { .refused_class = USBDESC_NONE } };
	int ours = usbledger_is_ours(s, ports, nports, &p);
	bool late = !monotime_before(monotime_now(), s->until);

	if (s->state == USB_STALE) {
		if (ours == 1)
			give_up(u, s, NULL, true, "stale");
		else if (ours == 0 || late)
			set_free(u, s);
	} else if (s->state == USB_THERE) {
		if (ours == 0)
			give_up(u, s, &what, false, "gone");
		else
			usbgrant_follow(&u->grants, usbledger_row(&u->ledger, s), ours == 1 ? hcd_open_device(&u->hcd, p) : -1);
	} else if (late && ours != 0) {
		what.outcome = PRIV_USB_TIMEOUT;
		hcd_detach(&u->hcd, s->port);
		s->until = MONOTIME_NEVER;
		if (s->state == USB_WAITING)	/* else the thread comes back now */
			give_up(u, s, &what, false, "timeout");
	} else if (s->state == USB_WAITING && ours == 0) {
		give_up(u, s, &what, false, "gone");
	} else if (s->state == USB_WAITING && ours == 1 && !u->asked) {
		job.at = *p;
		if (usbauth_ask(&u->auth, &job) < 0)
			fatal("cannot ask the thread: %s", strerror(errno));
		s->state = USB_ASKED;
		u->asked = true;
	}
}

/* Reads the status and takes every slot on. -errno: it cannot be read. */
static int
look(struct usb *u, size_t *ret_n)
{
	int r = u->hcd.n > 0 ? vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, ret_n) : 0;

	for (struct usb_slot *s = u->ledger.slots; r == 0 && s < u->ledger.slots + USBLEDGER_SLOTS; s++)
		if (s->state != USB_FREE)
			advance(u, s, *ret_n);
	return r;
}

static void
on_timer(struct loop_timer *timer)
{
	struct usb *u = timer->ctx;
	size_t n = 0;
	int r = look(u, &n);

	if (r < 0)	/* rmmod, or a kernel that writes it otherwise */
		fatal("cannot read the status of vhci_hcd: %s", strerror(-r));
	if (usbledger_busy(&u->ledger))
		loop_timer_set_ms(u->loop, &u->timer, TURN_MS);
}

static void
on_answer(struct loop_io *io, uint32_t events)
{
	struct usb *u = io->ctx;
	struct usbauth_job job;
	struct usb_slot *s;
	bool given_up;
	size_t n = 0;

	if (read(io->fd, &job, sizeof(job)) != sizeof(job))
		fatal("the thread that authorizes devices is gone");
	s = &u->ledger.slots[job.slot];
	given_up = usbledger_given_up(s);
	u->asked = false;
	if (job.result == -EAGAIN && !given_up) {
		s->state = USB_WAITING;
	} else if (job.result < 0 || given_up) {
		job.what = (struct priv_usb_device){ .refused_class = USBDESC_NONE, .outcome = given_up ? PRIV_USB_TIMEOUT : PRIV_USB_GONE };
		/* It may have ended meanwhile, and its port be another's. */
		give_up(u, s, &job.what, vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, &n) == 0 && usbledger_is_ours(s, ports, n, NULL) != 0,
		    job.result < 0 ? strerrorname_np(-job.result) : "late");
	} else {
		USB_RECORD(u, "privhelper usb-authorize port=%u device=%04x:%04x interfaces=%u authorized=%u refused-class=%02x", s->port,
		    job.what.vendor, job.what.product, job.what.interfaces, job.what.authorized, job.what.refused_class);
		s->state = USB_THERE;
		tell(u, s, &job.what);
	}
}

/* The row is on disk before the port is asked for. */
static void
before_attach(uint32_t port, void *ctx)
{
	struct attaching *a = ctx;

	a->slot->port = port;
	a->slot->state = USB_WAITING;
	keep(a->usb, a->slot);
}

static int
attach(struct usb *u, const struct priv_usb_attach *req, struct priv_usb_attached *ans, int *ret_end)
{
	struct usb_slot *s;
	size_t n = 0;
	int ends[2], r;

	if (!u->permitted || u->hcd.n == 0)
		return u->permitted ? -ENODEV : -EPERM;
	r = hcd_forbid(&u->hcd);
	/* What has ended is let go first, and its nodes, whose numbers are the next device's. */
	r = r < 0 ? r : look(u, &n);
	s = r < 0 ? NULL : usbledger_take(&u->ledger);
	if (s == NULL)
		return r < 0 ? r : -ENOSPC;
	r = usbledger_socket(ends);
	if (r < 0)
		return r;
	*s = (struct usb_slot){ .devid = req->devid, .mark = (uint32_t)ends[0], .until = monotime_add_ms(monotime_now(), SETTLE_MS) };
	r = hcd_attach_free(&u->hcd, ports, n, ends[0], req, before_attach, &(struct attaching){ u, s }, ans);
	close(ends[0]);		/* the kernel has a reference of its own */
	if (r < 0) {
		close(ends[1]);
		set_free(u, s);
		return r;
	}
	*ret_end = ends[1];
	loop_timer_set_ms(u->loop, &u->timer, TURN_MS);
	return 0;
}

int
op_usb_attach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct usb *u = ((struct introducer *)ctx)->usb;
	struct ipc_hdr hdr = { .type = PRIV_ANS_USB_ATTACH, .id = msg->hdr.id };
	struct priv_usb_attached ans = { 0 };
	struct priv_usb_attach req;
	_cleanup_close_ int end = -1;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_usb_attach_ok(&req))
		return -EPROTO;
	/* A peer that asks without end fills no disk with records of it. */
	r = u == NULL || !u->ready ? -EIO : !pace_take(&u->pace, PACE_MS, PACE_BURST) ? -EAGAIN : 1;
	if (r == 1) {
		r = attach(u, &req, &ans, &end);
		if (USB_RECORD(u, "workerd pid=%d uid=%u usb-attach devid=%08x speed=%u port=%u result=%s", chan->peer.pid,
		    chan->peer.uid, req.devid, req.speed, ans.port, r < 0 ? strerrorname_np(-r) : "ok") < 0 && r == 0)
			r = -EIO;	/* its end is closed, and the kernel frees the port */
	}
	hdr.status = r;
	/* If it is gone by now, the loop will tell, and the end that closes frees the port. */
	ipc_send_fds(chan, &hdr, &ans, sizeof(ans), &end, r == 0);
	return 0;
}

int
op_usb_detach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct usb *u = ((struct introducer *)ctx)->usb;
	struct priv_usb_detach req;
	struct usb_slot *s;
	size_t n = 0;
	int r = 0;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_usb_detach_ok(&req))
		return -EPROTO;
	s = u == NULL ? NULL : usbledger_find(&u->ledger, req.port);
	if (s != NULL) {
		usbgrant_take(&u->grants, usbledger_row(&u->ledger, s));
		r = vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, &n);
		if (r == 0 && usbledger_is_ours(s, ports, n, NULL) != 0)
			r = hcd_detach(&u->hcd, req.port);
		USB_RECORD(u, "workerd pid=%d uid=%u usb-detach port=%u devid=%08x result=%s", chan->peer.pid, chan->peer.uid, s->port,
		    s->devid, r < 0 ? strerrorname_np(-r) : "ok");
		s->until = MONOTIME_NEVER;
		if (s->state != USB_ASKED)	/* else the thread's answer frees it */
			set_free(u, s);
	}
	return ipc_answer(chan, &msg->hdr, r, NULL, 0);
}

int
op_usb_grant(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct usb *u = ((struct introducer *)ctx)->usb;
	struct priv_usb_granted ans = { 0 };
	const struct vhci_port *at = NULL;
	struct priv_usb_grant req;
	struct usb_slot *s;
	size_t n = 0;
	int dev, r = -ENODEV;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_usb_grant_ok(&req))
		return -EPROTO;
	s = u == NULL ? NULL : usbledger_find(&u->ledger, req.port);
	/* The same runner asks again and again for what drivers find; a new one is as rare as an attachment. */
	if (s != NULL && s->state == USB_THERE && (u->grants.rows[usbledger_row(&u->ledger, s)].slot == req.slot || pace_take(&u->pace, PACE_MS, PACE_BURST)) &&
	    vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, &n) == 0 &&
	    usbledger_is_ours(s, ports, n, &at) == 1 && (dev = hcd_open_device(&u->hcd, at)) >= 0) {
		r = usbgrant_give(&u->grants, usbledger_row(&u->ledger, s), dev, req.slot, &ans);
		close(dev);
		if (r != 0)
			USB_RECORD(u, "workerd pid=%d uid=%u usb-grant port=%u slot=%u nodes=%u result=%s", chan->peer.pid, chan->peer.uid,
			    req.port, req.slot, ans.n, r < 0 ? strerrorname_np(-r) : "ok");
	}
	return ipc_answer(chan, &msg->hdr, r < 0 ? r : 0, &ans, sizeof(ans));
}

void
usb_asker_gone(struct usb *u)
{
	if (u == NULL)
		return;
	for (unsigned i = 0; i < USBLEDGER_SLOTS; i++)
		usbgrant_take(&u->grants, i);
	usbledger_abandon(&u->ledger, monotime_add_ms(monotime_now(), SETTLE_MS));
	loop_timer_set_ms(u->loop, &u->timer, 0);
}

int
usb_open(struct usb *u, const struct usb_conf *conf)
{
	_cleanup_close_ int run = fd_open_own_dir(conf->rundir, "privhelper", 0700), state = fd_open_own_dir(conf->statedir, "privhelper", 0750);
	int r;

	*u = (struct usb){ .permitted = conf->classes != NULL, .l2 = conf->l2, .grants.dir = -1 };
	r = u->l2 ? tap_init(&u->taps, conf->pool.first, conf->pool.count) : 0;
	r = r < 0 ? r : usbdesc_classes_parse(conf->classes != NULL ? conf->classes : "", &u->set);
	r = r < 0 ? r : hcd_open(&u->hcd, conf->sysroot);
	if (r < 0)
		return r;
	r = run < 0 ? run : state < 0 ? state : audit_open(state, "audit", AUDIT_MAX, &u->audit);
	r = r < 0 ? r : usbledger_open(&u->ledger, run, "usb", monotime_add_ms(monotime_now(), SETTLE_MS));
	if (r < 0)
		log_warn("ledger in %s/privhelper, audit record in %s/privhelper: %s; no devices are lent", conf->rundir, conf->statedir, strerror(-r));
	u->ready = r >= 0;
	usbgrant_open(&u->grants, conf->devroot, u->permitted ? &conf->pool : NULL);
	if (u->permitted && u->grants.dir < 0)
		log_warn("%s/" USBGRANT_DIR ": %s; no workload sees a device", conf->devroot, strerror(-u->grants.problem));
	return 0;
}

int
usb_start(struct usb *u, struct loop *loop, struct peer *const *asker, int (*narrow)(void))
{
	int r = u->permitted ? usbauth_start(&u->auth, &u->hcd, &u->set, narrow) : narrow();

	u->loop = loop;
	u->asker = asker;
	loop_timer_init(&u->timer, on_timer, u);
	loop_timer_set_ms(loop, &u->timer, 0);
	return r < 0 || !u->permitted ? r : loop_io_add(loop, &u->answers, u->auth.answer, EPOLLIN, on_answer, u);
}
