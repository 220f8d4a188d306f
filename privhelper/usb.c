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

static struct vhci_port ports[VHCI_PORTS];	/* as last read */
static size_t nports;

/* In the file, too. */
static void
set_state(struct usb *u, struct usb_slot *s, enum usb_state state)
{
	if (state == USB_FREE)
		usbgrant_take(&u->grants, usbledger_row(&u->ledger, s));
	s->state = state;
	if (usbledger_keep(&u->ledger, s) < 0)
		fatal("cannot write the ledger: %s", strerror(errno));
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
tell_refused(struct loop_timer *timer)
{
	struct usb *u = timer->ctx;

	for (struct usb_refused *f = u->refused; f < u->refused + REFUSALS; f++) {
		if (f->times > 0)
			loop_timer_set_ms(u->loop, timer, REFUSED_MS);
		if (f->times > 0 && USB_RECORD(u, "%s times=%u", f->what, f->times) < 0)
			continue;	/* tried again: who fills the disk hides nothing */
		f->times = 0;
	}
}

/* The first is on record at once, what follows in the time after it as one line of each kind: a peer that asks without end fills no disk. */
void
usb_refused(struct usb *u, enum usb_refusal kind)
{
	u->refused[kind].times += u->ready && u->refused[kind].times < UINT32_MAX;	/* else there is no record */
	if (!loop_timer_armed(&u->refusals))
		tell_refused(&u->refusals);
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
give_up(struct usb *u, struct usb_slot *s, enum priv_usb_outcome outcome, bool detach, const char *why)
{
	struct priv_usb_device what = { .outcome = outcome, .refused_class = USBDESC_NONE };

	usbgrant_take(&u->grants, usbledger_row(&u->ledger, s));	/* first: the numbers of its nodes are not for the next device's owner */
	int r = detach ? hcd_detach(&u->hcd, s->port) : 0;
	USB_RECORD(u, "privhelper usb-detach port=%u devid=%08x why=%s result=%s", s->port, s->devid, why, USB_RESULT(r));
	set_state(u, s, USB_FREE);
	if (usbledger_find(&u->ledger, s->port) == NULL)	/* else the port is another's by now */
		tell(u, s, &what);	/* a workerd that knows of none there takes no notice */
}

/* One slot that is under way. */
static void
advance(struct usb *u, struct usb_slot *s)
{
	const struct vhci_port *p = NULL;
	struct usbauth_job job = { .slot = usbledger_row(&u->ledger, s), .what = { .refused_class = USBDESC_NONE } };
	int ours = usbledger_is_ours(s, ports, nports, &p);
	bool late = !monotime_before(monotime_now(), s->until);

	if (s->state == USB_STALE) {
		if (ours == 1)
			give_up(u, s, PRIV_USB_GONE, true, "stale");
		else if (ours == 0 || late)
			set_state(u, s, USB_FREE);
	} else if (ours == 0) {		/* with USB_ASKED the thread comes back and says so */
		if (s->state != USB_ASKED)
			give_up(u, s, PRIV_USB_GONE, false, "gone");
	} else if (s->state == USB_THERE) {
		usbgrant_follow(&u->grants, job.slot, ours == 1 ? hcd_open_device(&u->hcd, p) : -1);
	} else if (late && s->state == USB_WAITING) {
		give_up(u, s, PRIV_USB_TIMEOUT, true, "timeout");
	} else if (late) {		/* the thread comes back now */
		hcd_detach(&u->hcd, s->port);
		s->until = MONOTIME_NEVER;
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
look(struct usb *u)
{
	int r = u->hcd.n > 0 ? vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, &nports) : 0;

	for (struct usb_slot *s = u->ledger.slots; r == 0 && s < u->ledger.slots + USBLEDGER_SLOTS; s++)
		if (s->state != USB_FREE)
			advance(u, s);
	return r;
}

static void
on_timer(struct loop_timer *timer)
{
	struct usb *u = timer->ctx;
	int r = look(u);

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

	if (read(io->fd, &job, sizeof(job)) != sizeof(job) || vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, &nports) < 0)
		fatal("the thread that authorizes devices, or the status of vhci_hcd, is gone");
	struct usb_slot *s = &u->ledger.slots[job.slot];
	/* It may have ended meanwhile, and its port be another's. */
	bool given_up = usbledger_given_up(s), ours = usbledger_is_ours(s, ports, nports, NULL) != 0;
	u->asked = false;
	if (job.result == -EAGAIN && !given_up) {
		s->state = USB_WAITING;
	} else if (job.result < 0 || given_up || !ours) {
		give_up(u, s, given_up ? PRIV_USB_TIMEOUT : PRIV_USB_GONE, ours, job.result < 0 ? strerrorname_np(-job.result) :
		    given_up ? "late" : "gone");
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
	struct usb *u = ctx;

	u->attaching->port = port;
	set_state(u, u->attaching, USB_WAITING);
}

static int
attach(struct usb *u, const struct priv_usb_attach *req, struct priv_usb_attached *ans, int *ret_end)
{
	struct usb_slot *s;
	int ends[2], r;

	if (!u->permitted || u->hcd.n == 0)
		return u->permitted ? -ENODEV : -EPERM;
	r = hcd_forbid(&u->hcd);
	/* What has ended is let go first, and its nodes, whose numbers are the next device's. */
	r = r < 0 ? r : look(u);
	s = u->attaching = r < 0 ? NULL : usbledger_take(&u->ledger);
	if (s == NULL)
		return r < 0 ? r : -ENOSPC;
	r = usbledger_socket(ends);
	if (r < 0)
		return r;
	*s = (struct usb_slot){ .devid = req->devid, .mark = (uint32_t)ends[0], .until = monotime_add_ms(monotime_now(), SETTLE_MS) };
	r = hcd_attach_free(&u->hcd, ports, nports, ends[0], req, before_attach, u, ans);
	close(ends[0]);		/* the kernel has a reference of its own */
	*ret_end = ends[1];	/* the caller's, who closes it where r says so */
	if (r < 0)
		set_state(u, s, USB_FREE);
	else
		loop_timer_set_ms(u->loop, &u->timer, TURN_MS);
	return r;
}

int
op_usb_attach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct usb *u = ((struct introducer *)ctx)->usb;
	struct priv_usb_attached ans = { 0 };
	struct priv_usb_attach req;
	_cleanup_close_ int end = -1;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_usb_attach_ok(&req))
		return -EPROTO;
	if (u == NULL || !u->ready) {
		r = -EIO;
	} else if (!pace_take(&u->pace, PACE_MS, PACE_BURST)) {
		r = -EAGAIN;
		USB_REFUSE(u, REFUSED_ATTACH, "workerd", chan, "usb-attach devid=%08x speed=%u result=EAGAIN", req.devid, req.speed);
	} else {
		r = attach(u, &req, &ans, &end);
		if (USB_VERB(u, chan, "usb-attach devid=%08x speed=%u port=%u result=%s", req.devid, req.speed, ans.port,
		    USB_RESULT(r)) < 0 && r == 0)
			r = -EIO;	/* its end is closed, and the kernel frees the port */
	}
	/* If it is gone by now, the loop will tell, and the end that closes frees the port. */
	ipc_answer_fd(chan, &msg->hdr, r, &ans, sizeof(ans), end);
	return 0;
}

int
op_usb_detach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct usb *u = ((struct introducer *)ctx)->usb;
	struct priv_usb_detach req;
	struct usb_slot *s;
	int r = 0;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_usb_detach_ok(&req))
		return -EPROTO;
	s = u == NULL ? NULL : usbledger_find(&u->ledger, req.port);
	if (s != NULL) {
		usbgrant_take(&u->grants, usbledger_row(&u->ledger, s));
		r = vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, &nports);
		if (r == 0 && usbledger_is_ours(s, ports, nports, NULL) != 0)
			r = hcd_detach(&u->hcd, req.port);
		USB_VERB(u, chan, "usb-detach port=%u devid=%08x result=%s", s->port, s->devid, USB_RESULT(r));
		s->until = MONOTIME_NEVER;
		if (s->state != USB_ASKED)	/* else the thread's answer frees it */
			set_state(u, s, USB_FREE);
	} else if (u != NULL) {
		USB_REFUSE(u, REFUSED_DETACH, "workerd", chan, "usb-detach port=%u result=ENODEV", req.port);
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
	int dev, r = -ENODEV;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_usb_grant_ok(&req))
		return -EPROTO;
	s = u == NULL ? NULL : usbledger_find(&u->ledger, req.port);
	/* The same runner asks again and again for what drivers find; a new one is as rare as an attachment. */
	if (s != NULL && s->state == USB_THERE && (usbgrant_is(&u->grants, usbledger_row(&u->ledger, s), req.slot) || pace_take(&u->pace, PACE_MS, PACE_BURST)) &&
	    vhci_read(u->hcd.dir[0], ports, VHCI_PORTS, &nports) == 0 &&
	    usbledger_is_ours(s, ports, nports, &at) == 1 && (dev = hcd_open_device(&u->hcd, at)) >= 0) {
		r = usbgrant_give(&u->grants, usbledger_row(&u->ledger, s), dev, req.slot, &ans);
		close(dev);
		if (r != 0)
			USB_VERB(u, chan, "usb-grant port=%u slot=%u nodes=%u result=%s", req.port, req.slot, ans.n, USB_RESULT(r));
	} else if (u != NULL) {
		USB_REFUSE(u, REFUSED_GRANT, "workerd", chan, "usb-grant port=%u slot=%u result=ENODEV", req.port, req.slot);
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

void
usb_stop(struct usb *u)
{
	usb_asker_gone(u);	/* nothing stays lent */
	tell_refused(&u->refusals);
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
	loop_timer_init(&u->refusals, tell_refused, u);
	loop_timer_set_ms(loop, &u->timer, 0);
	return r < 0 || !u->permitted ? r : loop_io_add(loop, &u->answers, u->auth.answer, EPOLLIN, on_answer, u);
}
