/* The USB verbs: attach a device that speaks USB/IP on a socket made here, detach it, and the ledger of what is attached. */
#ifndef EDGEWARD_PRIVHELPER_USB_H
#define EDGEWARD_PRIVHELPER_USB_H

#include "common/audit.h"
#include "common/loop.h"
#include "common/usbledger.h"
#include "privhelper/auth.h"
#include "privhelper/introduce.h"

struct usb {
	struct loop *loop;
	struct loop_timer timer;
	struct loop_io answers;
	struct hcd hcd;
	struct auth auth;
	struct usbdesc_classes set;
	bool permitted;			/* policy: usb = yes */
	bool asked;			/* the thread has a job */
	bool ready;			/* ledger and audit are there: without them no verb is possible */
	struct usbledger ledger;
	struct audit audit;
	monotime_t next;		/* pace of verbs */
	struct peer *const *asker;	/* workerd's place, NULL while it is away */
};

/*
 * At start, while files can still be opened. classes: see usbdesc.h; NULL: no device is attached. What an earlier privhelper
 * left attached is detached from the loop. A directory that is not there, or not root's alone, costs the verbs, not the
 * introduction. -errno: anything else.
 */
int usb_open(struct usb *usb, const char *rundir, const char *statedir, const char *sysroot, const char *classes);

/* When capabilities are gone: starts the thread, and the loop's part. */
int usb_start(struct usb *usb, struct loop *loop, struct peer *const *asker, int (*narrow)(void));

/* Handlers of rules.c. */
int op_usb_attach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int op_usb_detach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);

#endif
