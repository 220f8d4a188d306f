/* The USB verbs: attach a device that speaks USB/IP on a socket made here, lend its nodes, detach it; and the ledger of what is attached. */
#ifndef EDGEWARD_PRIVHELPER_USB_H
#define EDGEWARD_PRIVHELPER_USB_H

#include <stdio.h>
#include <string.h>

#include "common/audit.h"
#include "common/loop.h"
#include "common/pace.h"
#include "common/tap.h"
#include "common/usbauth.h"
#include "common/usbgrant.h"
#include "common/usbledger.h"
#include "privhelper/introduce.h"

#define PACE_MS		250	/* one attachment or interface in this time, after the first PACE_BURST */
#define PACE_BURST	64
#define AUDIT_MAX	(4u << 20)	/* bytes; then a new file is begun at the next start */
#define TURN_MS		200	/* how often the status is read while something is under way */
#define SETTLE_MS	30000	/* for enumeration, and for what the one before has left */
#define REFUSED_MS	10000	/* in so much time one line for each kind of refusal */

/*
 * What is refused before anything is tried: a verb asked for too often, of no port of ours, or not lent; a record that ended its channel, of
 * each side by itself, so that neither hides the other.
 */
enum usb_refusal { REFUSED_ATTACH, REFUSED_DETACH, REFUSED_GRANT, REFUSED_TAP, REFUSED_RECORD, REFUSALS = REFUSED_RECORD + TABLES };

struct usb_refused {
	char what[AUDIT_TEXT - 20];	/* of the last one */
	unsigned times;			/* not on record yet */
};

struct usb {
	struct loop *loop;
	struct loop_timer timer;
	struct loop_timer refusals;	/* armed while they are only counted */
	struct usb_refused refused[REFUSALS];
	struct loop_io answers;
	struct hcd hcd;
	struct usbauth auth;
	struct usbdesc_classes set;
	bool permitted, l2;		/* policy: usb = yes, l2 = yes */
	struct tap_maker taps;
	struct pace tap_pace;
	bool asked;			/* the thread has a job */
	bool ready;			/* ledger and audit are there: without them no verb is possible */
	struct usbledger ledger;
	struct usb_slot *attaching;	/* in hcd_attach_free() */
	struct audit audit;
	struct usbgrants grants;
	struct pace pace;		/* of verbs */
	struct peer *const *asker;	/* workerd's place, NULL while it is away */
};

struct usb_conf {
	const char *rundir, *statedir;
	const char *sysroot, *devroot;	/* "/sys", "/dev" */
	const char *classes;		/* see usbdesc.h; NULL: no device is attached */
	bool l2;			/* TAPs are made */
	bool used;			/* something is lent, or may have been */
	struct pool pool;		/* who may be lent nodes and interfaces */
};

/*
 * At start, while files can still be opened. What an earlier privhelper left attached is detached from the loop, the nodes it had
 * lent are removed here, whether anything is lent now or not. A directory that is not there, or not root's alone, costs the verbs, not the introduction. -errno: anything else.
 */
int usb_open(struct usb *usb, const struct usb_conf *conf);

/* When capabilities are gone: starts the thread, and the loop's part. */
int usb_start(struct usb *usb, struct loop *loop, struct peer *const *asker, int (*narrow)(void));

/* workerd has come, or has gone: what was attached for it is let go. */
void usb_asker_here(const struct usb *usb);
void usb_asker_gone(struct usb *usb);

/* At the end: nothing stays lent, and all that was refused is on record. */
void usb_stop(struct usb *usb);

/* A macro, so that the format is checked where it stands. 0, or -EIO: it is not on record. */
#define USB_RECORD(u, ...)	usb_recorded(u, audit_append(&(u)->audit, __VA_ARGS__))
int usb_recorded(const struct usb *u, int r);

#define USB_RESULT(r)	((r) < 0 ? strerrorname_np(-(r)) : "ok")

/* The same with who asked; and of what is refused, which is counted, and recorded later where there is much of it. */
#define USB_WHO(fmt, who, chan)	"%s pid=%d uid=%u " fmt, who, (chan)->peer.pid, (chan)->peer.uid
#define USB_VERB(u, chan, fmt, ...)	USB_RECORD(u, USB_WHO(fmt, "workerd", chan), __VA_ARGS__)
#define USB_REFUSE(u, kind, who, chan, fmt, ...)	\
	(snprintf((u)->refused[kind].what, sizeof((u)->refused[kind].what), USB_WHO(fmt, who, chan), __VA_ARGS__), usb_refused(u, kind))
void usb_refused(struct usb *u, enum usb_refusal kind);

/* Handlers of rules.c. */
int op_usb_attach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int op_usb_detach(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int op_usb_grant(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);
int op_tap(struct ipc_chan *chan, struct ipc_msg *msg, void *ctx);	/* tap.c */

#endif
