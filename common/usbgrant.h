/*
 * The device nodes that a workload gets for a USB device that was attached for it: PARENT/edgeward/SLOT/NAME, one directory for
 * each runner id. The launcher shows that directory in the workload's /dev, so that a node made later appears there as well.
 *
 * Which nodes there are is read from sysfs here and nowhere else: nobody names a device number. What belongs to the device ends
 * with it: the caller takes the nodes away as soon as the port is not its own any more, because the kernel gives their numbers to
 * the next device.
 */
#ifndef EDGEWARD_USBGRANT_H
#define EDGEWARD_USBGRANT_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/hcd.h"
#include "common/pool.h"
#include "common/usbledger.h"

#define USBGRANT_DIR	"edgeward"

struct usbgrant_node {
	dev_t number;
	mode_t type;			/* S_IFCHR or S_IFBLK */
	struct priv_usb_node what;
};

struct usbgrant_row {			/* of the ledger's slot with this index */
	bool given;
	uint32_t slot;			/* runner id */
	unsigned n;
	struct usbgrant_node nodes[PRIV_USB_NODES];
};

struct usbgrants {
	int dir;			/* PARENT/edgeward; -1: none could be made, problem says why */
	int problem;			/* -errno */
	struct pool pool;
	struct usbgrant_row rows[USBLEDGER_SLOTS];
};

/*
 * At start: empties the directories of all runner ids below parent ("/dev"), those of an earlier pool too, and makes those of this
 * one, root's alone to change. Sets the umask to 022, since what is made here is for others to read. What goes wrong is kept in
 * problem. pool NULL: nothing is lent; what an earlier process had lent goes all the same.
 */
void usbgrant_open(struct usbgrants *g, const char *parent, const struct pool *pool);
void usbgrant_close(struct usbgrants *g);

/* The nodes that a device has in sysfs, at most max: those of the device itself, and of subsystems that a workload may be lent. */
unsigned usbgrant_find(int devdir, struct usbgrant_node *nodes, unsigned max);

/*
 * Gives row's device (its directory in sysfs) to the runner of slot: makes what is missing, removes what is gone. Repeated to follow
 * what drivers do. The number of changes, and what there is now; -errno: nothing is left there. -EDOM: no such runner.
 */
int usbgrant_give(struct usbgrants *g, unsigned row, int devdir, uint32_t slot, struct priv_usb_granted *ret);

/* True while it is given to the runner of slot. */
static inline bool
usbgrant_is(const struct usbgrants *g, unsigned row, uint32_t slot)
{
	return g->rows[row].given && g->rows[row].slot == slot;
}

/* Removes what the device has no more: its number may be another one's next. Adds nothing. Takes devdir over; -1 = there is none. */
void usbgrant_follow(struct usbgrants *g, unsigned row, int devdir);

/* Removes all nodes of a row. */
void usbgrant_take(struct usbgrants *g, unsigned row);

#endif
