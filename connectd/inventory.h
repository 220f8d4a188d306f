/* What workerd has told of this machine, and its part of the capabilities: cloop.md section 9. */
#ifndef EDGEWARD_CONNECTD_INVENTORY_H
#define EDGEWARD_CONNECTD_INVENTORY_H

#include <stdbool.h>

#include "common/policy.h"
#include "proto/hub/json.h"
#include "proto/ipc/inventory.h"

struct inventory {
	bool known;
	struct work_inventory head;
	struct work_usb *usb, *coming;	/* head.usb of them; those of a list that is not complete yet */
	uint32_t ncoming;
};

/* A new work channel: what was coming is not complete any more. */
void inventory_begin(struct inventory *inv);
void inventory_done(struct inventory *inv);

/* One device, then the head that ends the list. -EBADMSG: not what workerd says; -ENOMEM. */
int inventory_take_usb(struct inventory *inv, const struct work_usb *usb);
int inventory_take(struct inventory *inv, const struct work_inventory *head);

/* Writes members of "capabilities". extended: with the object "inventory" that edgeward.1 adds. */
#define INVENTORY_ROOM	(96u << 10)	/* bytes of JSON at most */
void inventory_put(struct json_w *w, const struct inventory *inv, const struct policy *policy, bool extended);

#endif
