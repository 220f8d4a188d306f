/*
 * Who may connect is decided by the socket's owner and mode (root:edgeward 0660), so SO_PEERCRED is only for the log. All
 * clients are equal; when sixteen are connected the one that has been quiet longest makes room.
 */
#include "connectd/control.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/ctlevents.h"
#include "common/log.h"
#include "connectd/enroll.h"
#include "connectd/upgrader.h"

#define QUEUE_MAX	65536

static void
drop(struct control_client *cl)
{
	link_enroll_forget(cl->control->link, cl);
	ipc_chan_done(&cl->chan);
	cl->in_use = cl->enrolling = false;
}

static void
client_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct control_client *cl = ctx;

	if (err < 0)
		log_warn("control client, pid %d, dropped: %s", chan->peer.pid, strerror(-err));
	drop(cl);
}

static struct control_client *
free_client(struct control *c)
{
	struct control_client *oldest = &c->clients[0];

	for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
		if (!c->clients[i].in_use)
			return &c->clients[i];
		if (c->clients[i].used < oldest->used)
			oldest = &c->clients[i];
	}
	drop(oldest);
	return oldest;
}

static void
listener_ready(struct loop_io *io, uint32_t events)
{
	struct control *c = io->ctx;
	int fd = ipc_accept(io->fd);
	struct control_client *cl;

	(void)events;
	if (fd < 0)
		return;
	cl = free_client(c);
	*cl = (struct control_client){ .control = c, .in_use = true, .used = ++c->count };
	cl->conf = (struct ipc_conf){ .rules = control_rules, .nrules = control_nrules, .max_payload = IPC_MAX_CTL,
		.queue_max = QUEUE_MAX, .ctx = cl, .ended = client_ended };
	if (ipc_chan_init(&cl->chan, c->loop, fd, &cl->conf) < 0)
		cl->in_use = false;
}

int
control_init(struct control *c, struct loop *loop, int listener, struct link *link, struct privchan *priv)
{
	*c = (struct control){ .loop = loop, .link = link, .priv = priv, .started = monotime_now(), .listener.fd = -1 };
	return listener < 0 ? 0 : loop_io_add(loop, &c->listener, listener, EPOLLIN, listener_ready, c);
}

void
control_done(struct control *c)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		if (c->clients[i].in_use)
			drop(&c->clients[i]);
	loop_io_del(c->loop, &c->listener);
}

/* ---- requests ---- */

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	int r = ipc_take_hello(chan, msg, IPC_ROLE_CONTROL, NULL);

	return r < 0 ? r : ipc_send_hello(chan, IPC_ROLE_CONNECTD, 0);
}

static int
on_status(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct control_client *cl = ctx;
	struct ctl_connectd_status st;

	cl->used = ++cl->control->count;
	status_fill(cl->control->link, cl->control->priv, cl->control->started, &st);
	return ipc_answer(chan, &msg->hdr, 0, &st, sizeof(st));
}

static int
on_metrics(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct control_client *cl = ctx;

	return counts_answer(chan, msg, &cl->control->link->counts);
}

static int
on_events(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct control_client *cl = ctx;

	return ctlevents_answer(chan, msg, cl->control->link->p.events);
}

static int
on_reconnect(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct control_client *cl = ctx;

	cl->used = ++cl->control->count;
	log_info("reconnect asked for by uid %u", (unsigned)chan->peer.uid);
	eventlog_add(cl->control->link->p.events, "reconnect", "", "asked for by uid %u", (unsigned)chan->peer.uid);
	link_reconnect(cl->control->link);
	return ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}

static int
answer_text(struct ipc_chan *chan, const struct ipc_hdr *req, int status, const char *text)
{
	struct ctl_text t = { 0 };

	snprintf(t.text, sizeof(t.text), "%s", text);
	return ipc_answer(chan, req, status, &t, sizeof(t));
}

static void
enroll_done(int status, const char *text, void *ctx)
{
	struct control_client *cl = ctx;

	if (!cl->enrolling)
		return;
	cl->enrolling = false;
	answer_text(&cl->chan, &cl->enroll, status == 0 ? 0 : -EACCES, text);
}

/* What stands beside a bundle overrides nothing in it; a plain token takes the rest from the request. */
static int
merge(const struct ctl_enroll *req, int64_t now_ns, struct enroll *e, char err[ENROLL_ERR])
{
	int r = enroll_parse(req->token, strlen(req->token), now_ns, e, err);

	if (r < 0)
		return r;
	if (e->server[0] == '\0')
		snprintf(e->server, sizeof(e->server), "%s", req->url);
	if (e->pin[0] == '\0')
		snprintf(e->pin, sizeof(e->pin), "%s", req->pin);
	if (req->name[0] != '\0')
		snprintf(e->name, sizeof(e->name), "%s", req->name);
	return 0;
}

static int
on_enroll(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct control_client *cl = ctx;
	struct ctl_enroll req;
	struct enroll e = { 0 };
	char err[ENROLL_ERR] = "";
	int r = -EBADMSG;

	memcpy(&req, msg->data, sizeof(req));
	explicit_bzero(msg->data, sizeof(req));
	cl->used = ++cl->control->count;
	if (!ipc_str_ok(req.url, sizeof(req.url)) || !ipc_str_ok(req.token, sizeof(req.token)) ||
	    !ipc_str_ok(req.pin, sizeof(req.pin)) || !ipc_str_ok(req.name, sizeof(req.name)) || req.replace > 1) {
		explicit_bzero(&req, sizeof(req));
		return r;
	}
	r = cl->enrolling ? -EBUSY : merge(&req, clock_check_ns(cl->control->link->p.clock, monotime_wall_ns()), &e, err);
	if (r == 0)
		r = link_enroll(cl->control->link, &e, req.replace == 1, err, enroll_done, cl);
	explicit_bzero(&req, sizeof(req));
	enroll_wipe(&e);
	if (r < 0)
		return answer_text(chan, &msg->hdr, r, err[0] != '\0' ? err : "an enrollment is under way already");
	cl->enroll = msg->hdr;
	cl->enrolling = true;
	return 0;
}

static int
on_upgrade(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct control_client *cl = ctx;
	struct upgrader *u = cl->control->link->p.upgrader;
	struct ctl_upgrade req;
	char text[sizeof(((struct ctl_text *)NULL)->text)];

	memcpy(&req, msg->data, sizeof(req));
	cl->used = ++cl->control->count;
	if (req.cancel > 1 || req.reserved != 0)
		return -EBADMSG;
	if (u == NULL || !upgrader_fetching(u, text, sizeof(text)))
		return answer_text(chan, &msg->hdr, -ENOENT, "");
	if (req.cancel == 1) {
		log_info("upgrade cancelled by uid %u", (unsigned)chan->peer.uid);
		upgrader_fail(u, "cancelled", "an operator of the device cancelled it");
	}
	return answer_text(chan, &msg->hdr, 0, text);
}

const struct ipc_rule control_rules[] = {
	{ .type = IPC_HELLO, .states = IPC_ST_HELLO, .min = sizeof(struct ipc_hello), .max = sizeof(struct ipc_hello),
	    .handler = on_hello },
	{ .type = CTL_REQ_STATUS, .states = IPC_ST_OPEN, .handler = on_status },
	{ .type = CTL_REQ_METRICS, .states = IPC_ST_OPEN, .handler = on_metrics },
	{ .type = CTL_REQ_EVENTS, .states = IPC_ST_OPEN, .min = sizeof(struct ctl_events), .max = sizeof(struct ctl_events),
	    .handler = on_events },
	{ .type = CTL_REQ_RECONNECT, .states = IPC_ST_OPEN, .handler = on_reconnect },
	{ .type = CTL_REQ_ENROLL, .states = IPC_ST_OPEN, .min = sizeof(struct ctl_enroll),
	    .max = sizeof(struct ctl_enroll), .handler = on_enroll },
	{ .type = CTL_REQ_UPGRADE, .states = IPC_ST_OPEN, .min = sizeof(struct ctl_upgrade), .max = sizeof(struct ctl_upgrade),
	    .handler = on_upgrade },
};
const size_t control_nrules = sizeof(control_rules) / sizeof(control_rules[0]);
