/*
 * Who calls: workchan.c for connectd, which may have been taken over; privchan.c for privhelper, which is trusted and whose records
 * are checked all the same; life.c. A device has a lease: it ends with its workload, with its stream (connectd says so, or is gone),
 * with privhelper. Whatever ends it, privhelper is told to detach.
 *
 * Its nodes come as drivers find it, the disk behind an adapter a second later than the adapter. Hence privhelper is asked again and
 * again, and the device counts as ready when nothing new has come for a turn.
 */
#include "workerd/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "common/vhci.h"
#include "workerd/workerd.h"

#define VHCI_DIR	"/sys/devices/platform/vhci_hcd.0"
#define LOOK_SOON_MS	250	/* for nodes, at first */
#define LOOK_MS		2000
#define LOOK_SOON_FOR	10000
#define SETTLE_MS	5000	/* a device without a driver of this kernel is ready after this time */

/* ---- what could be lent ---- */

static void
count_ports(struct device_offer *caps)
{
	static struct vhci_port ports[VHCI_PORTS];
	_cleanup_close_ int dir = open(VHCI_DIR, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	size_t n = 0;

	if (dir < 0 || vhci_read(dir, ports, VHCI_PORTS, &n) < 0)
		return;
	for (size_t i = 0; i < n; i++) {
		uint32_t free = ports[i].state == VHCI_FREE;

		*(ports[i].hub == VHCI_HIGH ? &caps->hs : &caps->ss) += 1;
		*(ports[i].hub == VHCI_HIGH ? &caps->hs_free : &caps->ss_free) += free;
	}
}

void
devices_caps(struct workerd *w, struct device_offer *c)
{
	const struct priv_state *priv = &w->devices.priv;
	char where[POLICY_WHERE];

	*c = (struct device_offer){ .audit_seq = priv->audit_seq };
	memcpy(c->audit_head, priv->audit_head, sizeof(c->audit_head));
	count_ports(c);
	if (!w->policy.usb)
		snprintf(c->issue, sizeof(c->issue), "%.100s = no", policy_where(&w->policy, POLICY_USB, where));
	else if (c->hs + c->ss == 0)
		snprintf(c->issue, sizeof(c->issue), "no vhci_hcd: modprobe vhci-hcd, then restart edgeward-privhelper");
	else if ((priv->flags & PRIV_STATE_USB) == 0)
		snprintf(c->issue, sizeof(c->issue), "privhelper %s", w->priv_pid == 0 ? "does not answer" :
		    "attaches none: restart edgeward-privhelper; its log says more");
	else
		c->usb = 1;
	l2_issue(w, c->l2_issue, sizeof(c->l2_issue));
	c->l2 = c->l2_issue[0] == '\0';
}

void
devices_tell_caps(struct workerd *w)
{
	struct device_offer caps;

	if (!ipc_chan_is_open(&w->work))
		return;
	devices_caps(w, &caps);
	ipc_send(&w->work, WORK_EV_DEVICE_CAPS, &caps, sizeof(caps));
}

/* ---- one device ---- */

static struct device *
find(struct workerd *w, const char *id)
{
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++)
		if (d->used && !d->closing && strcmp(d->info.id, id) == 0)
			return d;
	return NULL;
}

static void
tell(struct device *d)
{
	if (ipc_chan_is_open(&d->w->work))
		ipc_send(&d->w->work, WORK_EV_DEVICE, &d->info, sizeof(d->info));
}

static void
answer(struct device *d, int fd, const char *error)
{
	struct ipc_hdr hdr = { .type = WORK_ANS_DEVICE, .id = d->asker };
	struct device_answer ans = { .ok = fd >= 0, .port = d->info.port };

	snprintf(ans.error, sizeof(ans.error), "%s", error);
	if (d->asker != 0 && ipc_chan_is_open(&d->w->work))
		ipc_send_fds(&d->w->work, &hdr, &ans, sizeof(ans), &fd, fd >= 0);
	d->asker = 0;
}

/* For privhelper: its port is not ours any more. */
static void
detach(struct device *d)
{
	struct priv_usb_detach req = { .port = d->info.port };
	uint32_t id;

	if (d->attached && ipc_chan_is_open(&d->w->priv))
		ipc_request(&d->w->priv, PRIV_REQ_USB_DETACH, &req, sizeof(req), NULL, 0, &id);
	d->attached = false;
}

__attribute__((format(printf, 2, 3))) static void
end(struct device *d, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(d->info.error, sizeof(d->info.error), fmt, ap);
	va_end(ap);
	log_info("device %s (%s): closed: %s", d->info.id, d->info.busid, d->info.error);
	d->info.state = DEVICE_CLOSED;
	d->info.nnodes = 0;
	if (d->asker != 0)
		answer(d, -1, d->info.error);
	else
		tell(d);
	detach(d);
	loop_timer_del(d->w->loop, &d->timer);
	d->closing = d->attach_id != 0;
	d->used = d->closing;
}

static void
ask_nodes(struct device *d)
{
	const struct workload *wl = d->info.handle[0] != '\0' ? workload_by_handle(d->w, d->info.handle) : NULL;
	struct priv_usb_grant req = { .port = d->info.port };

	if (!d->lends || wl == NULL || wl->rec.h == NULL || d->grant_id != 0)
		return;
	req.slot = d->info.slot = wl->rec.h->slot;
	if (ipc_request(&d->w->priv, PRIV_REQ_USB_GRANT, &req, sizeof(req), NULL, 0, &d->grant_id) < 0)
		d->grant_id = 0;
}

static void
look_due(struct loop_timer *timer)
{
	ask_nodes(timer->ctx);
}

static void
look_later(struct device *d)
{
	int64_t age = monotime_diff_ms(monotime_now(), d->since);

	loop_timer_set_ms(d->w->loop, &d->timer, age < LOOK_SOON_FOR ? LOOK_SOON_MS : LOOK_MS);
}

/* ---- from connectd ---- */

static void
refuse(struct workerd *w, uint32_t asker, const struct device_open *open, const char *why)
{
	struct device none = { .w = w, .asker = asker };

	log_warn("device %s (%s) is refused: %s", open->id, open->busid, why);
	answer(&none, -1, why);
}

/* Another workload of this runner id, which would see the nodes as well: they lie in a directory of the id, not of the workload. */
static const struct workload *
beside(const struct workerd *w, uint32_t slot, const char *handle)
{
	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		if (wl->state < ST_ENDED && wl->rec.h != NULL && wl->rec.h->slot == slot && strcmp(wl->info.handle, handle) != 0)
			return wl;
	return NULL;
}

static const char *
cure(const struct workerd *w)
{
	return w->ids.count <= 1 ? "all work runs under one account here; wait until it has ended" :
	    "start one of them in a work directory of its own: run --workdir";
}

/* May a device be lent to this workload, or to one that starts with this runner id? */
static bool
alone(const struct workerd *w, uint32_t slot, const char *handle, char why[208])
{
	const struct workload *other = beside(w, slot, handle);

	if (other != NULL)
		snprintf(why, 208, "workload %.64s would see it, too: %s", other->info.handle, cure(w));
	return other == NULL;
}

/* NULL, and why: nothing is asked of root for this. */
static struct device *
admit_device(struct workerd *w, const struct device_open *open, char why[208])
{
	const struct workload *wl = open->handle[0] != '\0' ? workload_by_handle(w, open->handle) : NULL;
	struct device_offer caps;
	struct device *free = NULL;

	devices_caps(w, &caps);
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX && free == NULL; d++)
		free = d->used ? NULL : d;
	if (caps.usb == 0)
		snprintf(why, 208, "%s", caps.issue);
	else if (find(w, open->id) != NULL)
		snprintf(why, 208, "a device of this id is attached already");
	else if (open->handle[0] != '\0' && (wl == NULL || wl->state >= ST_DRAINING || wl->rec.h == NULL))
		snprintf(why, 208, "no workload %.64s is there to lease it", open->handle);
	else if (free == NULL)
		snprintf(why, 208, "%u devices are attached, as many as this agent holds", DEVICES_MAX);
	else if (wl == NULL || alone(w, wl->rec.h->slot, open->handle, why))
		return free;
	return NULL;
}

int
devices_on_open(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct priv_usb_attach req;
	struct device_open open;
	char why[208] = "";
	struct device *d;

	memcpy(&open, msg->data, sizeof(open));
	if (msg->hdr.id == 0 || !device_open_ok(&open))
		return -EPROTO;
	d = admit_device(w, &open, why);
	if (d == NULL) {
		refuse(w, msg->hdr.id, &open, why);
		return 0;
	}
	*d = (struct device){ .w = w, .used = true, .asker = msg->hdr.id, .info = { .state = DEVICE_ATTACHING, .speed = open.speed,
		.vendor = open.vendor, .product = open.product, .refused_class = 256 } };
	memcpy(d->info.id, open.id, sizeof(open.id));
	memcpy(d->info.handle, open.handle, sizeof(open.handle));
	memcpy(d->info.busid, open.busid, sizeof(open.busid));
	loop_timer_init(&d->timer, look_due, d);
	req = (struct priv_usb_attach){ open.devid, open.speed };
	if (ipc_request(&w->priv, PRIV_REQ_USB_ATTACH, &req, sizeof(req), NULL, 0, &d->attach_id) < 0) {
		d->attach_id = 0;
		end(d, "privhelper does not answer");
	}
	return 0;
}

int
devices_on_close(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct device_ref ref;
	struct device *d;

	memcpy(&ref, msg->data, sizeof(ref));
	if (!device_ref_ok(&ref))
		return -EPROTO;
	d = find(ctx, ref.id);
	if (d != NULL)
		end(d, "%s", ref.reason[0] != '\0' ? ref.reason : "closed by the hub");
	return 0;
}

static void
end_all(struct workerd *w, const char *why)
{
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++)
		if (d->used && !d->closing)
			end(d, "%s", why);
}

void
devices_work_down(struct workerd *w)
{
	end_all(w, "connectd is gone, and its stream with it");
}

/* ---- from privhelper ---- */

static struct device *
by_request(struct workerd *w, uint32_t id, bool attach)
{
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++)
		if (d->used && id != 0 && (attach ? d->attach_id : d->grant_id) == id)
			return d;
	return NULL;
}

static void
attach_failed(struct device *d, int r, const struct priv_usb_attached *a)
{
	if (r == -EBUSY)
		end(d, "%u of %u %s ports in use", a->used, a->ports, d->info.speed >= 5 ? "super-speed" : "high-speed");
	else if (r == -EAGAIN)
		end(d, "devices are attached too often; try again in some seconds");
	else
		end(d, "privhelper cannot attach it: %s; its log says more", strerror(-r));
}

int
devices_on_attached(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct device *d = by_request(ctx, msg->hdr.id, true);
	struct priv_usb_attached a;

	memcpy(&a, msg->data, sizeof(a));
	if (msg->hdr.status > 0 || (msg->hdr.status == 0) != (msg->nfds == 1) || a.used > a.ports)
		return -EPROTO;
	if (d == NULL)
		return 0;
	d->attach_id = 0;
	d->attached = msg->hdr.status == 0;
	d->info.port = a.port;
	if (d->closing) {
		detach(d);
		d->used = d->closing = false;
	} else if (!d->attached) {
		attach_failed(d, msg->hdr.status, &a);
	} else {
		log_info("device %s (%s, %04x:%04x): attached to port %u", d->info.id, d->info.busid, d->info.vendor, d->info.product,
		    a.port);
		answer(d, msg->fds[0], "");
		tell(d);
	}
	devices_tell_caps(ctx);
	return 0;
}

static struct device *
by_port(struct workerd *w, uint32_t port)
{
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++)
		if (d->used && !d->closing && d->attached && d->info.port == port)
			return d;
	return NULL;
}

static void
enumerated(struct device *d, const struct priv_usb_device *what)
{
	d->info.bus = what->bus;
	d->info.dev = what->dev;
	d->info.interfaces = what->interfaces;
	d->info.authorized = what->authorized;
	d->info.refused_class = what->refused_class;
	d->lends = true;
	d->since = monotime_now();
	if (d->info.handle[0] == '\0') {
		d->info.state = DEVICE_READY;
		tell(d);
	}
	ask_nodes(d);
}

int
devices_on_device(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	const struct workerd *w = ctx;
	char where[POLICY_WHERE];
	struct priv_usb_device what;
	struct device *d;

	memcpy(&what, msg->data, sizeof(what));
	d = by_port(ctx, what.port);
	if (d == NULL)
		return 0;
	if (what.outcome == PRIV_USB_READY && !d->lends) {
		enumerated(d, &what);
	} else if (what.outcome == PRIV_USB_UNAUTHORIZED && what.refused_class < 256) {
		end(d, "%s: interface class %02x is not in the list", policy_where(&w->policy, POLICY_USB_CLASSES, where), what.refused_class);
	} else if (what.outcome == PRIV_USB_UNAUTHORIZED) {
		end(d, "its descriptors are not plain: it stays unauthorized");
	} else if (what.outcome == PRIV_USB_GONE || what.outcome == PRIV_USB_TIMEOUT) {
		d->attached = false;
		end(d, "%s", what.outcome == PRIV_USB_GONE ? "the far side ended it" : "it did not say in time what it is");
	}
	devices_tell_caps(ctx);
	return 0;
}

int
devices_on_granted(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct device *d = by_request(ctx, msg->hdr.id, false);
	struct priv_usb_granted g;
	bool changed;

	memcpy(&g, msg->data, sizeof(g));
	if (msg->hdr.status > 0 || !priv_usb_granted_ok(&g))
		return -EPROTO;
	if (d == NULL)
		return 0;
	d->grant_id = 0;
	if (d->closing)
		return 0;
	if (msg->hdr.status < 0 && msg->hdr.status != -ENODEV) {
		end(d, "its nodes cannot be made: %s", msg->hdr.status == -EDOM ? "privhelper does not know this runner id; restart "
		    "edgeward-privhelper" : strerror(-msg->hdr.status));
		return 0;
	}
	changed = d->info.nnodes != g.n || memcmp(d->info.nodes, g.nodes, sizeof(g.nodes)) != 0;
	d->info.nnodes = g.n;
	memcpy(d->info.nodes, g.nodes, sizeof(g.nodes));
	if (d->info.state == DEVICE_ATTACHING && ((!changed && g.n > 1) ||
	    monotime_diff_ms(monotime_now(), d->since) > SETTLE_MS)) {
		d->info.state = DEVICE_READY;
		changed = true;
	}
	if (changed && d->info.state == DEVICE_READY)
		tell(d);
	look_later(d);
	return 0;
}

int
devices_on_state(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct priv_state state;

	memcpy(&state, msg->data, sizeof(state));
	if (!priv_state_ok(&state))
		return -EPROTO;
	w->devices.priv = state;
	devices_tell_caps(w);
	return 0;
}

void
devices_priv_down(struct workerd *w)
{
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++) {
		d->attached = false;
		d->attach_id = d->grant_id = 0;
		d->used = d->used && !d->closing;
	}
	w->devices.priv.flags = 0;
	end_all(w, "privhelper was restarted");
	devices_tell_caps(w);
}

/* ---- workloads ---- */

bool
devices_slot_ok(struct workerd *w, const char *handle, uint32_t slot, char error[208])
{
	for (const struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++) {
		const struct workload *wl = d->used && d->info.handle[0] != '\0' ? workload_by_handle(w, d->info.handle) : NULL;

		if (d->closing || wl == NULL || wl->rec.h == NULL || wl->rec.h->slot != slot || strcmp(d->info.handle, handle) == 0)
			continue;
		snprintf(error, 208, "it would see device %.31s of workload %.64s: %s", d->info.id, d->info.handle, cure(w));
		return false;
	}
	return true;
}

enum work_refusal
devices_check(struct workerd *w, const struct work_spec *spec, uint32_t slot, char error[208])
{
	char copy[DEVICE_LIST_SIZE], *p = copy, *id;

	snprintf(copy, sizeof(copy), "%s", spec->devices);
	while ((id = strsep(&p, " ")) != NULL && id[0] != '\0') {
		const struct device *d = find(w, id);
		bool segment = d == NULL && l2_has(w, id, spec->handle, error);
		enum work_refusal r = WORK_REFUSED_UNSUPPORTED;

		if (segment && spec->network == WORK_NETWORK_NONE)
			continue;
		if (segment) {
			snprintf(error, 208, "device %s is an interface, for a start without a network; ask for network none", id);
		} else if (error[0] != '\0') {		/* another workload has the interface */
			r = WORK_REFUSED_BUSY;
		} else if (d == NULL || d->info.state == DEVICE_CLOSED) {
			snprintf(error, 208, "device %s is not attached here; open it first", id);
		} else if (d->info.handle[0] != '\0' && strcmp(d->info.handle, spec->handle) != 0) {
			snprintf(error, 208, "device %s is leased to workload %.64s", id, d->info.handle);
			r = WORK_REFUSED_BUSY;
		} else if (alone(w, slot, spec->handle, error)) {
			continue;
		} else {
			r = WORK_REFUSED_BUSY;
		}
		return r;
	}
	return WORK_OK;
}

void
devices_lease(struct workload *wl, const char *list)
{
	l2_lease(wl, list);
	for (struct device *d = wl->w->devices.list; d < wl->w->devices.list + DEVICES_MAX; d++) {
		if (!d->used || d->closing || !device_listed(list, d->info.id))
			continue;
		memcpy(d->info.handle, wl->info.handle, sizeof(d->info.handle));
		d->since = monotime_now();
		ask_nodes(d);
		tell(d);
	}
}

void
devices_workload_ended(const struct workload *wl)
{
	for (struct device *d = wl->w->devices.list; d < wl->w->devices.list + DEVICES_MAX; d++)
		if (d->used && !d->closing && strcmp(d->info.handle, wl->info.handle) == 0)
			end(d, "its workload has ended");
	devices_tell_caps(wl->w);
}

void
devices_init(struct workerd *w)
{
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++)
		loop_timer_init(&d->timer, look_due, d);
}

void
devices_done(struct workerd *w)
{
	for (struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX; d++)
		loop_timer_del(w->loop, &d->timer);
}
