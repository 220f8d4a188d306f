/*
 * The TAP verb. Who calls: workerd, through rules.c. What is trusted: nothing of it is: name, address and MTU are checked again, and the
 * namespace must belong to a user namespace that a runner made. On error: -errno, and no interface is left; it lives with its
 * descriptor, so there is no ledger of it.
 */
#include <errno.h>
#include <string.h>

#include "common/cleanup.h"
#include "privhelper/usb.h"	/* what the verbs share */
#include "proto/ipc/priv.h"

int
op_tap(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx)
{
	struct usb *u = ((struct introducer *)ctx)->usb;
	struct ipc_hdr hdr = { .type = PRIV_ANS_TAP, .id = msg->hdr.id };
	struct priv_tap req;
	_cleanup_close_ int fd = -1;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_tap_ok(&req))
		return -EPROTO;
	if (u == NULL || !u->l2 || !u->ready || !pace_take(&u->tap_pace, PACE_MS, PACE_BURST))
		return ipc_answer(chan, &msg->hdr, u == NULL || !u->l2 ? -EPERM : u->ready ? -EAGAIN : -EIO, NULL, 0);
	fd = tap_make(&u->taps, &(struct tap_wish){ req.name, req.mac, req.mtu, req.offload != 0, msg->fds[0] });
	hdr.status = USB_RECORD(u, "workerd pid=%d uid=%u tap name=%s mtu=%u offload=%u result=%s", chan->peer.pid, chan->peer.uid,
	    req.name, req.mtu, req.offload, fd < 0 ? strerrorname_np(-fd) : "ok");
	hdr.status = fd < 0 ? fd : hdr.status;
	/* If it is gone by now, the loop will tell, and the end that closes takes the interface along. */
	ipc_send_fds(chan, &hdr, NULL, 0, &fd, hdr.status == 0);
	return 0;
}
