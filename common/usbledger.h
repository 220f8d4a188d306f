/*
 * Which ports of vhci_hcd are ours: a table in memory and the same in a file, so that a process that is started after a crash knows what
 * the one before it had attached.
 *
 * A port is known by its mark: the number that its socket had in the process that attached it, drawn at random there, which the
 * kernel shows in the status file. A row is in the file before the port is asked for.
 */
#ifndef EDGEWARD_USBLEDGER_H
#define EDGEWARD_USBLEDGER_H

#include "common/monotime.h"
#include "common/vhci.h"

#define USBLEDGER_SLOTS	64u	/* attachments at a time */

enum usb_state {
	USB_FREE,
	USB_WAITING,	/* attached, not enumerated yet */
	USB_ASKED,	/* its authorization is under way */
	USB_THERE,
	USB_STALE,	/* of the process before this one */
};

struct usb_slot {
	enum usb_state state;
	uint32_t port, devid, mark;
	monotime_t until;	/* deadline of USB_WAITING, USB_ASKED, USB_STALE; NEVER: it was given up already, and waits for the thread */
};

struct usbledger {
	int fd;			/* of the file, for reading and writing */
	struct usb_slot slots[USBLEDGER_SLOTS];
};

/* The file dirfd/name as it was left, or a new one (0600): its rows become USB_STALE. Number of rows, -errno. */
int usbledger_open(struct usbledger *ledger, int dirfd, const char *name, monotime_t until);

/* True when rundir/privhelper/usb is there: somebody may have left something attached. */
bool usbledger_left(const char *rundir);

/* Writes the slot's row. -errno. */
int usbledger_keep(const struct usbledger *ledger, const struct usb_slot *slot);

/*
 * A pair of connected stream sockets; the number of ends[0], which the kernel will show, is the mark: drawn at random, and above those
 * at which usual tools hold theirs. -errno.
 */
int usbledger_socket(int ends[2]);

/* A free slot, or NULL. */
struct usb_slot *usbledger_take(struct usbledger *ledger);
/* True while one is not free. */
bool usbledger_busy(const struct usbledger *ledger);
/* The index of a slot, and of its row in the file. */
unsigned usbledger_row(const struct usbledger *ledger, const struct usb_slot *slot);

/* Whoever asked for them is gone: all become USB_STALE until then; one whose authorization is under way is out of time now. */
void usbledger_abandon(struct usbledger *ledger, monotime_t until);

/* Its time is over, or nobody wants it any more. */
bool usbledger_given_up(const struct usb_slot *slot);

/* The live slot of a port that was not given up, or NULL. Of two, the later one: the other has ended while its authorization is under way. */
struct usb_slot *usbledger_find(struct usbledger *ledger, uint32_t port);

/* 1: the port is this slot's; *ret_port (may be NULL) is its line. 0: it is free or another's. -EAGAIN: the kernel does not show it yet. */
int usbledger_is_ours(const struct usb_slot *slot, const struct vhci_port *ports, size_t n, const struct vhci_port **ret_port);

#endif
