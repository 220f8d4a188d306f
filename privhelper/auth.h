/* The thread that authorizes: the one thing here that waits for the far side of a device. */
#ifndef EDGEWARD_PRIVHELPER_AUTH_H
#define EDGEWARD_PRIVHELPER_AUTH_H

#include "common/hcd.h"

struct auth_job {
	struct vhci_port at;
	uint32_t slot;
	int32_t result;			/* of hcd_authorize() */
	struct priv_usb_device what;
};

struct auth {
	const struct hcd *hcd;
	const struct usbdesc_classes *set;
	int (*narrow)(void);		/* the filter of the thread */
	int ask, asked;			/* pipe: a job a write */
	int done, answer;		/* and back; answer is what the loop watches */
};

/* Starts the thread and waits until it has narrowed itself. hcd and set must outlive it. -errno. */
int auth_start(struct auth *auth, const struct hcd *hcd, const struct usbdesc_classes *set, int (*narrow)(void));

/* One job at a time; it comes back through auth->answer. */
int auth_ask(const struct auth *auth, const struct auth_job *job);

#endif
