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
	struct priv_tap req;
	_cleanup_close_ int fd = -1;
	int r;

	memcpy(&req, msg->data, sizeof(req));
	if (!priv_tap_ok(&req))
		return -EPROTO;
	r = u == NULL || !u->l2 ? -EPERM : !u->ready ? -EIO : pace_take(&u->tap_pace, PACE_MS, PACE_BURST) ? 0 : -EAGAIN;
	if (r < 0 && u != NULL) {
		USB_REFUSE(u, REFUSED_TAP, "workerd", chan, "tap name=%s result=%s", req.name, USB_RESULT(r));
	} else if (r == 0) {
		r = fd = tap_make(&u->taps, &(struct tap_wish){ req.name, req.mac, req.mtu, req.offload != 0, msg->fds[0] });
		if (USB_VERB(u, chan, "tap name=%s mtu=%u offload=%u result=%s", req.name, req.mtu, req.offload, USB_RESULT(fd)) < 0 && fd >= 0)
			r = -EIO;
	}
	/* If it is gone by now, the loop will tell, and the end that closes takes the interface along. */
	ipc_answer_fd(chan, &msg->hdr, r < 0 ? r : 0, NULL, 0, fd);
	return 0;
}
