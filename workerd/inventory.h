/* What this machine has, for connectd's hello: gathered at start as far as the sandbox would forbid it later, the rest when asked. */
#ifndef EDGEWARD_WORKERD_INVENTORY_H
#define EDGEWARD_WORKERD_INVENTORY_H

#include <limits.h>
#include <stdbool.h>

#include "common/ipc.h"
#include "common/machine.h"
#include "proto/ipc/inventory.h"

#define INVENTORY_GROUPS	16384u	/* bytes of /etc/group that are looked at */

struct workerd;

struct inventory {
	struct work_inventory at_start;	/* cpu, and os where it cannot be read again */
	char groups[INVENTORY_GROUPS];
	int switches[MACHINE_SWITCHES];
	uint32_t machine;		/* inventory_machine() at the start */
};

/* Before the sandbox closes. */
void inventory_init(struct inventory *inv);

/* Looks now and sends WORK_EV_USB for each device, then WORK_EV_INVENTORY. 0 or -errno of the channel. */
int inventory_send(const struct workerd *w, struct ipc_chan *chan);

/* machine.h, of now. Another value than at the start: the launcher shall try again, which it does for the next workerd. */
uint32_t inventory_machine(const struct inventory *inv);

/* Where the executable of that name is that workloads would find; false = nowhere. path is cut at size. */
bool inventory_where(const struct workerd *w, const char *name, char *path, size_t size);

/* There is git for workspaces, now. */
bool inventory_has_git(void);

/* The bits of a list whose executables are where payloads search; and where one is: buf is empty when it is not there. */
uint32_t inventory_programs(enum inventory_list list);
void inventory_path(const char *name, char *buf, size_t size);

/* The bits of a list whose executables are in one of dirs (":" between two). For inventory_send() and its test. */
uint32_t inventory_find(enum inventory_list list, const char *dirs);

/* The value of "KEY=value" or "key : value" in a text of lines; quotes around it are taken off. Empty when there is none. */
void inventory_field(const char *text, const char *key, char *dst, size_t size);

#endif
