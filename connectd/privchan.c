#include "connectd/privchan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "connectd/jitter.h"
#include "proto/ipc/priv.h"

#define RETRY_MIN_MS	100
#define RETRY_MAX_MS	5000
#define FAULT_MIN_MS	200
#define FAULT_MAX_MS	30000
#define FAULT_QUIET_MS	10000	/* a work channel that lived so long was a good one */
#define QUEUE_MAX	4096

static void chan_ended(struct ipc_chan *chan, int err, void *ctx);
static void retry_due(struct loop_timer *timer);

static struct ipc_conf chan_conf;

int
privchan_init(struct privchan *pc, struct loop *loop, struct workchan *work, const char *rundir)
{
	int n;

	*pc = (struct privchan){ .loop = loop, .work = work, .chan.io.fd = -1,
		.faults = { .min_ms = FAULT_MIN_MS, .max_ms = FAULT_MAX_MS, .quiet_ms = FAULT_QUIET_MS } };
	loop_timer_init(&pc->retry, retry_due, pc);
	chan_conf = (struct ipc_conf){ .rules = privchan_rules, .nrules = privchan_nrules, .max_payload = IPC_MAX_PRIV,
		.queue_max = QUEUE_MAX, .ctx = pc, .ended = chan_ended };
	n = snprintf(pc->path, sizeof(pc->path), "%s/introduce.sock", rundir);
	return n < 0 || (size_t)n >= sizeof(pc->path) ? -ENAMETOOLONG : 0;
}

static void
drop(struct privchan *pc)
{
	ipc_chan_done(&pc->chan);
	pc->up = false;
	pc->pid = 0;
	memset(pc->build, 0, sizeof(pc->build));
}

void
privchan_done(struct privchan *pc)
{
	drop(pc);
	loop_timer_del(pc->loop, &pc->retry);
}

static void
retry_later(struct privchan *pc)
{
	int64_t wait = RETRY_MIN_MS;

	for (unsigned i = 0; i < pc->failures && wait < RETRY_MAX_MS; i++)
		wait *= 2;
	if (wait > RETRY_MAX_MS)
		wait = RETRY_MAX_MS;
	pc->failures++;
	loop_timer_set_ms(pc->loop, &pc->retry, jitter_between(wait / 2, wait));
}

static void
failed(struct privchan *pc, int err)
{
	if (err != pc->last_err)
		log_warn("no introduction at %s: %s; trying again", pc->path, strerror(-err));
	pc->last_err = err;
	retry_later(pc);
}

void
privchan_start(struct privchan *pc)
{
	int fd, r;

	if (pc->chan.loop != NULL || loop_timer_armed(&pc->retry))
		return;
	fd = ipc_connect(pc->path);
	r = fd < 0 ? fd : ipc_chan_init(&pc->chan, pc->loop, fd, &chan_conf);
	if (r == 0)
		r = ipc_send_hello(&pc->chan, IPC_ROLE_CONNECTD, pc->work->pair);
	if (r < 0) {
		drop(pc);
		failed(pc, r);
	}
}

static void
retry_due(struct loop_timer *timer)
{
	privchan_start(timer->ctx);
}

void
privchan_reintroduce(struct privchan *pc, bool fault)
{
	drop(pc);
	if (fault)
		loop_timer_set_ms(pc->loop, &pc->retry, grow_fault(&pc->faults));
	else if (!loop_timer_armed(&pc->retry))
		retry_later(pc);
}

static void
chan_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct privchan *pc = ctx;
	bool was = pc->up;

	if (was && err < 0)
		log_error("privhelper's channel: %s", strerror(-err));
	else if (was)
		log_info("privhelper closed its channel; work goes on, waiting for it");
	drop(pc);
	retry_later(pc);
}

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct privchan *pc = ctx;
	struct ipc_hello hello;
	int r = ipc_take_hello(chan, msg, IPC_ROLE_PRIVHELPER, &hello);

	if (r < 0)
		return r;
	pc->up = true;
	pc->pid = hello.pid;
	pc->last_err = 0;
	memcpy(pc->build, hello.build, sizeof(pc->build));
	return 0;
}

static int
on_peer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct privchan *pc = ctx;
	struct priv_peer peer;

	memcpy(&peer, msg->data, sizeof(peer));
	if (peer.pair == 0)
		return -EBADMSG;
	pc->failures = 0;
	return workchan_take(pc->work, ipc_take_fd(msg, 0), peer.pair);
}

/* Only news: our own end of the work channel tells when workerd is gone. */
static int
on_gone(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	log_debug("workerd has left privhelper");
	return 0;
}

const struct ipc_rule privchan_rules[] = {
	{ .type = IPC_HELLO, .states = IPC_ST_HELLO, .min = sizeof(struct ipc_hello), .max = sizeof(struct ipc_hello),
	    .handler = on_hello },
	{ .type = PRIV_EV_PEER, .states = IPC_ST_OPEN, .min = sizeof(struct priv_peer), .max = sizeof(struct priv_peer),
	    .min_fds = 1, .max_fds = 1, .handler = on_peer },
	{ .type = PRIV_EV_GONE, .states = IPC_ST_OPEN, .handler = on_gone },
};
const size_t privchan_nrules = sizeof(privchan_rules) / sizeof(privchan_rules[0]);
