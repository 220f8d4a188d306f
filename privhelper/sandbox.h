/* privhelper's own narrowing, in two steps because its thread is made in between. */
#ifndef EDGEWARD_PRIVHELPER_SANDBOX_H
#define EDGEWARD_PRIVHELPER_SANDBOX_H

#include "privhelper/usb.h"

/* Capabilities, and Landlock: nothing can be opened afterwards but what vhci_hcd has in sysfs and the nodes lent. 0 or -errno. */
int sandbox_narrow(const struct usb_conf *conf);

/* The system call filter, of the calling thread. 0 or -errno. */
int sandbox_filter(void);

#endif
