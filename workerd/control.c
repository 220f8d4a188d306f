/*
 * Who calls: root or the group edgeward, by the mode of the socket. Everything is answered at once but a LOGS request that
 * wants to wait. A client that breaks the protocol, or does not read its answers, is dropped.
 */
#include "workerd/control.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/ctlevents.h"
#include "common/log.h"
#include "common/monotime.h"
#include "proto/ipc/ctl.h"
#include "version.h"
#include "workerd/admit.h"
#include "workerd/confinement.h"
#include "workerd/ctlpolicy.h"
#include "workerd/life.h"
#include "workerd/spill.h"
#include "workerd/tally.h"

#define QUEUE_MAX	(4u << 20)	/* a list of everything */
#define SIZE(type)	sizeof(struct type), sizeof(struct type)

static struct control_client *
client_of(struct ipc_chan *chan)
{
	return (struct control_client *)(void *)((char *)chan - offsetof(struct control_client, chan));
}

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	int r = ipc_take_hello(chan, msg, IPC_ROLE_CONTROL, NULL);

	return r < 0 ? r : ipc_send_hello(chan, IPC_ROLE_WORKERD, 0);
}

/* Whether edgeward.conf says another thing than what is in force here: what stands in other sections is connectd's. */
static bool
conf_is_other(const struct workerd *w)
{
	static struct conf now;
	char err[CONF_ERR_SIZE];

	return keyfile_changed(&w->conf.mark) && (conf_load(&now, w->conf_file, err) < 0 || !conf_same(&now, &w->conf, "work") ||
	    !conf_same(&now, &w->conf, "log"));
}

/* What is wrong, if anything, with the next step. */
static void
cause(const struct workerd *w, struct ctl_workerd_status *s)
{
	const char *code = "", *detail = "";
	char text[208];
	uint32_t parts;

	if (!w->up) {
		code = "launcher-starting";
		detail = "the launcher has not said yet what it holds";
	} else if (w->priv_pid == 0) {
		code = "privhelper-down";
		detail = "no answer from privhelper: see the unit edgeward-privhelper.service";
	} else if (w->pair == 0) {
		code = "connectd-down";
		detail = "connectd is not there: see the unit edgeward-connectd.service";
	} else if (s->disk_free < w->conf.work_disk_low) {
		code = "disk-full";
		detail = "new work is refused until there is room under the work root";
	} else if (s->inodes_free < ADMIT_INODES_LOW) {
		code = "inodes-full";
		detail = "new work is refused until files are removed under the work root";
	} else if (w->journal.fd < 0) {
		code = "state-unwritable";
		detail = "the journal in the state directory cannot be written: new work is refused";
	} else if ((w->spool.off && w->conf.work_spool != 0) || w->spool.error != 0) {
		code = "spool-unwritable";
		detail = "output cannot be spooled and waits in memory: workerd's log says why";
	} else if (w->policy.problem[0] != '\0') {
		code = "policy-bad";
		detail = w->policy.problem;
	} else if (w->journal.drain) {
		code = "draining";
		detail = "new work is refused until edgectl undrain";
	} else if (w->ready.tree == LAUNCH_TREE_NONE) {
		code = "no-tree";
		detail = "no cgroup is delegated, and no pid namespace can take its place here";
	} else if (w->up && confinement_decide(&w->conf, &w->policy, &w->ready, confinement_network(&w->policy),
	    &parts, text) != WORK_OK) {
		code = "no-sandbox";
		detail = text;
	} else if (keyfile_changed(&w->policy.mark) || conf_is_other(w)) {
		code = "config-changed";
		snprintf(text, sizeof(text), "%.110s was changed after workerd read it: systemctl reload edgeward-workerd puts it in force",
		    keyfile_changed(&w->policy.mark) ? w->policy_file : w->conf_file);
		detail = text;
	}
	snprintf(s->cause, sizeof(s->cause), "%s", code);
	snprintf(s->detail, sizeof(s->detail), "%.*s", (int)sizeof(s->detail) - 1, detail);
}

static int
on_status(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	const struct workerd *w = ctx;
	const uint32_t *n = w->all.counts;
	struct ctl_workerd_status s = { .pid = getpid(), .launcher_pid = w->ready.pid, .slots = w->slots,
		.running = n[ST_RUNNING] + n[ST_DRAINING], .pending = n[ST_ACCEPTED] + n[ST_HELD],
		.undelivered = n[ST_ENDED], .draining = w->journal.drain,
		.uptime_s = (uint32_t)(monotime_diff_ms(monotime_now(), w->since) / 1000), .started = w->started,
		.refused = w->refused, .output_bytes = w->output_bytes, .gap_bytes = w->gap_bytes, .work_up = w->pair != 0,
		.priv_up = w->priv_pid != 0, .launcher_up = w->up, .uid_pool = w->caps.uid_pool,
		.cgroup = w->ready.cgroup, .tree = w->ready.tree, .priv_pid = w->priv_pid,
		.landlock_abi = w->ready.landlock_abi, .sandbox_level = (uint8_t)w->policy.sandbox_level };
	struct confinement sandbox = confinement(&w->conf, &w->policy, &w->ready);
	struct statvfs st;

	s.sandbox = (uint16_t)sandbox.parts;
	s.sandbox_missing = (uint16_t)sandbox.missing;
	for (const struct workload *wl = w->all.first; wl != NULL; wl = wl->next)
		s.retained_bytes += workload_in_memory(wl);
	s.spool_bytes = w->spool.used;
	s.spool_max = w->conf.work_spool != 0 ? w->conf.work_spool_total : 0;
	if (fstatvfs(w->ids.root, &st) == 0)
		admit_free(&st, &s.disk_free, &s.inodes_free);
	snprintf(s.build, sizeof(s.build), "%s", EDGEWARD_VERSION);
	snprintf(s.launcher_build, sizeof(s.launcher_build), "%s", w->ready.build);
	snprintf(s.work_root, sizeof(s.work_root), "%.*s", (int)sizeof(s.work_root) - 1, w->ids.configured);
	cause(w, &s);
	return ipc_answer(chan, &msg->hdr, 0, &s, sizeof(s));
}

static int
on_events(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;

	return ctlevents_answer(chan, msg, &w->events);
}

static int
on_workloads(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	const struct workerd *w = ctx;
	struct ipc_hdr hdr = { .type = CTL_EV_WORKLOAD, .id = msg->hdr.id };
	struct {
		struct work_workload info;
		char command[WORK_COMMAND_SIZE];
	} out;
	int r = 0;

	if (!w->up)	/* the launcher has not told all it holds: a list would look complete */
		return ipc_answer(chan, &msg->hdr, -EAGAIN, NULL, 0);
	for (const struct workload *wl = w->all.first; wl != NULL && r == 0; wl = wl->next) {
		workload_info(wl, &out.info);
		out.info.flags |= wl->full ? WORK_F_WAITS : 0;
		snprintf(out.command, sizeof(out.command), "%.*s", WORK_COMMAND_SIZE - 1, wl->rec.h != NULL ? wl->rec.h->command : "");
		r = ipc_send_fds(chan, &hdr, &out, sizeof(out.info) + strlen(out.command), NULL, 0);
	}
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, NULL, 0);
}

static int
answer_logs(struct ipc_chan *chan, const struct ipc_hdr *req, struct workload *wl, uint64_t from, uint32_t max)
{
	struct {
		struct ctl_log_data head;
		uint8_t bytes[CTL_LOG_MAX];
	} out = { .head.offset = from };
	uint64_t head = workload_head(wl), n;
	struct retained at = { .len = 0 };

	out.head.offset = from < head ? from : head;
	while (out.head.offset < head) {
		spill_at(wl, out.head.offset, &at);
		if (at.len > 0)
			break;
		out.head.offset = at.gap_to;
		out.head.flags |= CTL_LOG_GAP;
		out.head.reason = at.reason;
	}
	n = at.len < max ? at.len : max;
	n = n < CTL_LOG_MAX ? n : CTL_LOG_MAX;
	if (n > 0)
		memcpy(out.bytes, at.data, (size_t)n);
	if (wl->state == ST_ENDED && out.head.offset + n == head)
		out.head.flags |= CTL_LOG_EOF;
	return ipc_answer(chan, req, 0, &out, sizeof(out.head) + (size_t)n);
}

static bool
has_news(const struct workload *wl, uint64_t from)
{
	return from < workload_head(wl) || wl->state == ST_ENDED;
}

static int
on_logs(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct control_client *c = client_of(chan);
	struct workload *wl;
	struct ctl_logs req;

	memcpy(&req, msg->data, sizeof(req));
	if (!ipc_str_ok(req.handle, sizeof(req.handle)) || msg->hdr.id == 0 || c->waiting.id != 0)
		return -EPROTO;
	wl = workload_by_handle(ctx, req.handle);
	if (wl == NULL)
		return ipc_answer(chan, &msg->hdr, -ENOENT, &(struct ctl_log_data){ 0 }, sizeof(struct ctl_log_data));
	if ((req.flags & CTL_LOGS_WAIT) == 0 || has_news(wl, req.from))
		return answer_logs(chan, &msg->hdr, wl, req.from, req.max);
	c->waiting = msg->hdr;
	c->waits_for = wl->info.wid;
	c->waits_from = req.from;
	c->waits_max = req.max;
	return 0;
}

static int
on_signal(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct work_answer ans = { 0 };
	struct work_signal sig;
	struct workload *wl;

	memcpy(&sig, msg->data, sizeof(sig));
	if (!ipc_str_ok(sig.handle, sizeof(sig.handle)) ||
	    (sig.signo != SIGINT && sig.signo != SIGTERM && sig.signo != SIGKILL))
		return -EPROTO;
	wl = workload_by_handle(ctx, sig.handle);
	if (wl != NULL) {
		ans.wid = wl->info.wid;
		workload_signal(wl, sig.signo);
	} else {
		ans.refusal = WORK_REFUSED_UNKNOWN_HANDLE;
		snprintf(ans.error, sizeof(ans.error), "no workload of that handle");
	}
	return ipc_answer(chan, &msg->hdr, 0, &ans, sizeof(ans));
}

static int
on_drain(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct journal_record rec = { .type = JOURNAL_DRAIN };
	struct ctl_drain d;
	int r;

	memcpy(&d, msg->data, sizeof(d));
	rec.outcome = d.on != 0;
	r = journal_append(&w->journal, &rec);
	if (r < 0)
		log_warn("drain is not remembered over a restart: %s", strerror(-r));
	log_info("%s by an operator", d.on != 0 ? "drained" : "undrained");
	eventlog_add(&w->events, d.on != 0 ? "drain" : "undrain", "", "by uid %u", (unsigned)chan->peer.uid);
	d.on = w->journal.drain;
	d.active = w->all.counts[ST_ACCEPTED] + w->all.counts[ST_HELD] + w->all.counts[ST_RUNNING] +
	    w->all.counts[ST_DRAINING];
	return ipc_answer(chan, &msg->hdr, 0, &d, sizeof(d));
}

static int
on_devices(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct ipc_hdr hdr = { .type = CTL_EV_DEVICE, .id = msg->hdr.id };
	struct device_offer caps;
	int r = 0;

	for (const struct device *d = w->devices.list; d < w->devices.list + DEVICES_MAX && r == 0; d++)
		if (d->used && !d->closing)
			r = ipc_send_fds(chan, &hdr, &d->info, sizeof(d->info), NULL, 0);
	hdr.type = CTL_EV_LINK;
	for (const struct l2_link *l = w->l2.list; l < w->l2.list + L2_LINKS_MAX && r == 0; l++)
		if (l->used && (l->stage == L2_UP || l->stage == L2_PARKED))
			r = ipc_send_fds(chan, &hdr, &l->open, sizeof(l->open), NULL, 0);
	devices_caps(w, &caps);
	return r < 0 ? r : ipc_answer(chan, &msg->hdr, 0, &caps, sizeof(caps));
}

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, SIZE(ipc_hello), on_hello },
	{ CTL_REQ_STATUS, IPC_ST_OPEN, 0, 0, 0, 0, on_status },
	{ CTL_REQ_METRICS, IPC_ST_OPEN, 0, 0, 0, 0, tally_metrics },
	{ CTL_REQ_EVENTS, IPC_ST_OPEN, 0, 0, SIZE(ctl_events), on_events },
	{ CTL_REQ_WORKLOADS, IPC_ST_OPEN, 0, 0, 0, 0, on_workloads },
	{ CTL_REQ_LOGS, IPC_ST_OPEN, 0, 0, SIZE(ctl_logs), on_logs },
	{ CTL_REQ_SIGNAL, IPC_ST_OPEN, 0, 0, SIZE(work_signal), on_signal },
	{ CTL_REQ_DRAIN, IPC_ST_OPEN, 0, 0, SIZE(ctl_drain), on_drain },
	{ CTL_REQ_DEVICES, IPC_ST_OPEN, 0, 0, 0, 0, on_devices },
	{ CTL_REQ_ATTACH, IPC_ST_OPEN, 0, 1, SIZE(attach_open), attach_on_open },
	{ CTL_EV_ATTACH_SIZE, IPC_ST_OPEN, 0, 0, SIZE(attach_size), attach_on_size },
	{ CTL_EV_ATTACH_CLOSE, IPC_ST_OPEN, 0, 0, SIZE(attach_ref), attach_on_close },
	{ CTL_REQ_POLICY, IPC_ST_OPEN, 0, 0, 0, 0, ctlpolicy_show },
	{ CTL_REQ_POLICY_TEST, IPC_ST_OPEN, 0, 1, 0, IPC_MAX_CTL, ctlpolicy_test },
};

static void
client_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct control_client *c = client_of(chan);

	ipc_chan_done(chan);
	attach_client_gone(c->w, c);
	c->used = false;
	c->waiting.id = 0;
}

static struct ipc_conf conf = { .rules = rules, .nrules = sizeof(rules) / sizeof(rules[0]),
	.max_payload = IPC_MAX_CTL, .queue_max = QUEUE_MAX, .ended = client_ended };

static void
new_client(struct loop_io *io, uint32_t events)
{
	struct workerd *w = io->ctx;
	int fd = ipc_accept(io->fd);

	if (fd < 0)
		return;
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
		struct control_client *c = &w->clients[i];

		if (c->used)
			continue;
		*c = (struct control_client){ .w = w };
		c->used = ipc_chan_init(&c->chan, w->loop, fd, &conf) == 0;
		return;
	}
	close(fd);	/* all places are taken: the client sees the end and tries again */
}

int
control_open(struct workerd *w, int listener)
{
	conf.ctx = w;
	return loop_io_add(w->loop, &w->control, listener, EPOLLIN, new_client, w);
}

void
control_output(struct workload *wl)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
		struct control_client *c = &wl->w->clients[i];
		struct ipc_hdr req = c->waiting;

		if (req.id == 0 || c->waits_for != wl->info.wid || !has_news(wl, c->waits_from))
			continue;
		c->waiting.id = 0;
		answer_logs(&c->chan, &req, wl, c->waits_from, c->waits_max);
	}
}

void
control_gone(const struct workload *wl)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++) {
		struct control_client *c = &wl->w->clients[i];
		struct ctl_log_data none = { .offset = c->waits_from, .flags = CTL_LOG_EOF };

		if (c->waiting.id == 0 || c->waits_for != wl->info.wid)
			continue;
		ipc_answer(&c->chan, &c->waiting, 0, &none, sizeof(none));
		c->waiting.id = 0;
	}
}

void
control_done(struct workerd *w)
{
	for (unsigned i = 0; i < CONTROL_CLIENTS; i++)
		ipc_chan_done(&w->clients[i].chan);
	loop_io_del(w->loop, &w->control);
}
