/* privhelper's thread that authorizes devices: the one thing there that waits for the far side of a device. */
#ifndef EDGEWARD_USBAUTH_H
#define EDGEWARD_USBAUTH_H

#include "common/hcd.h"

struct usbauth_job {
	struct vhci_port at;
	uint32_t slot;
	int32_t result;			/* of hcd_authorize() */
	struct priv_usb_device what;
};

struct usbauth {
	const struct hcd *hcd;
	const struct usbdesc_classes *set;
	int (*narrow)(void);		/* the filter of the thread */
	int ask, asked;			/* pipe: a job a write */
	int done, answer;		/* and back; answer is what the loop watches */
};

/* Starts the thread and waits until it has narrowed itself. hcd and set must outlive it. -errno. */
int usbauth_start(struct usbauth *auth, const struct hcd *hcd, const struct usbdesc_classes *set, int (*narrow)(void));

/* One job at a time; it comes back through auth->answer. */
int usbauth_ask(const struct usbauth *auth, const struct usbauth_job *job);

#endif
