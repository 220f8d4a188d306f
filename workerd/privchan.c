#include "workerd/privchan.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "proto/ipc/priv.h"
#include "workerd/workchan.h"

#define DELAY_MIN	100	/* ms between attempts */
#define DELAY_MAX	5000
#define FAULT_MIN	200	/* after a fault of the work channel */
#define FAULT_MAX	30000
#define FAULT_QUIET	10000	/* a work channel that lived so long was a good one */
#define QUEUE_MAX	4096u
#define SIZE(type)	sizeof(struct type), sizeof(struct type)

static void
retry_later(struct workerd *w)
{
	if (loop_timer_armed(&w->priv_retry))
		return;
	loop_timer_set_ms(w->loop, &w->priv_retry, w->priv_delay);
	w->priv_delay = w->priv_delay * 2 < DELAY_MAX ? w->priv_delay * 2 : DELAY_MAX;
}

static int
on_hello(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct ipc_hello hello;
	int r = ipc_take_hello(chan, msg, IPC_ROLE_PRIVHELPER, &hello);

	if (r < 0)
		return r;
	w->priv_pid = hello.pid;
	log_debug("privhelper %d answers", hello.pid);
	return 0;
}

static int
on_peer(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct workerd *w = ctx;
	struct priv_peer peer;

	memcpy(&peer, msg->data, sizeof(peer));
	if (peer.pair == 0 || peer.max_data == 0 || peer.max_data > WORK_DATA_MAX)
		return -EPROTO;
	w->priv_delay = DELAY_MIN;
	workchan_open(w, ipc_take_fd(msg, 0), &peer);
	return 0;
}

static int
on_gone(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	return 0;	/* the work channel itself says when connectd has ended; a device that is detached was told as closed */
}

static void
priv_ended(struct ipc_chan *chan, int err, void *ctx)
{
	struct workerd *w = ctx;

	ipc_chan_done(chan);
	w->priv_pid = 0;
	devices_priv_down(w);
	l2_priv_down(w);
	if (err < 0)
		log_warn("privhelper's channel: %s", strerror(-err));
	retry_later(w);
}

static const struct ipc_rule rules[] = {
	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, SIZE(ipc_hello), on_hello },
	{ PRIV_EV_PEER, IPC_ST_OPEN, 1, 1, SIZE(priv_peer), on_peer },
	{ PRIV_EV_GONE, IPC_ST_OPEN, 0, 0, 0, 0, on_gone },
	{ PRIV_ANS_USB_ATTACH, IPC_ST_OPEN, 0, 1, SIZE(priv_usb_attached), devices_on_attached },
	{ PRIV_EV_USB_DEVICE, IPC_ST_OPEN, 0, 0, SIZE(priv_usb_device), devices_on_device },
	{ PRIV_ANS_USB_DETACH, IPC_ST_OPEN, 0, 0, 0, 0, on_gone },
	{ PRIV_ANS_USB_GRANT, IPC_ST_OPEN, 0, 0, SIZE(priv_usb_granted), devices_on_granted },
	{ PRIV_ANS_TAP, IPC_ST_OPEN, 0, 1, 0, 0, l2_on_tap },
	{ PRIV_EV_STATE, IPC_ST_OPEN, 0, 0, SIZE(priv_state), devices_on_state },
};

static struct ipc_conf conf = { .rules = rules, .nrules = sizeof(rules) / sizeof(rules[0]),
	.max_payload = IPC_MAX_PRIV, .queue_max = QUEUE_MAX, .ended = priv_ended };

static void
connect_now(struct loop_timer *timer)
{
	struct workerd *w = timer->ctx;
	char path[128];
	int fd, r = -ENAMETOOLONG;

	ipc_chan_done(&w->priv);
	w->priv_pid = 0;
	if (snprintf(path, sizeof(path), "%s/introduce.sock", w->rundir) < (int)sizeof(path)) {
		fd = ipc_connect(path);
		r = fd < 0 ? fd : ipc_chan_init(&w->priv, w->loop, fd, &conf);
	}
	if (r == 0)
		r = ipc_send_hello(&w->priv, IPC_ROLE_WORKERD, w->pair);
	if (r == 0)
		return;
	log_debug("%s: %s", path, strerror(-r));
	ipc_chan_done(&w->priv);
	retry_later(w);
}

void
privchan_open(struct workerd *w)
{
	conf.ctx = w;
	w->priv_delay = DELAY_MIN;
	w->faults = (struct grow){ .min_ms = FAULT_MIN, .max_ms = FAULT_MAX, .quiet_ms = FAULT_QUIET };
	loop_timer_init(&w->priv_retry, connect_now, w);
	connect_now(&w->priv_retry);
}

void
privchan_again(struct workerd *w)
{
	retry_later(w);
}

void
privchan_fault(struct workerd *w)
{
	ipc_chan_done(&w->priv);	/* else the pair that connectd asks for would end the pause */
	w->priv_pid = 0;
	devices_priv_down(w);
	l2_priv_down(w);
	loop_timer_set_ms(w->loop, &w->priv_retry, grow_fault(&w->faults));
}

void
privchan_done(struct workerd *w)
{
	loop_timer_del(w->loop, &w->priv_retry);
	ipc_chan_done(&w->priv);
}
