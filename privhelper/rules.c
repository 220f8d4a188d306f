/*
 * The rows of records privhelper accepts.
 *
 * Who calls: common/ipc.c, for every record of a connected peer. What is trusted: nothing; a record reaches a handler
 * only if its type, its size, its descriptors and the channel's state fit a row here. On error: the channel ends, and
 * introduce.c refuses the side for a time.
 *
 * connectd's table has the introduction and nothing else, and stays that way: what the network side wants from root
 * it must ask of workerd. The verbs are rows of workerd's table only. Where both daemons run under one uid a channel
 * begins with connectd's table and gets that of its side once HELLO has told which it is.
 */
#include "privhelper/rules.h"

#include "privhelper/usb.h"
#include "proto/ipc/priv.h"

/* Once, first, and no descriptor with it. */
#define HELLO_ROW	{ .type = IPC_HELLO, .states = IPC_ST_HELLO, .min = sizeof(struct ipc_hello), \
			  .max = sizeof(struct ipc_hello), .handler = introduce_hello }
#define TABLE(rules)	{ rules, sizeof(rules) / sizeof((rules)[0]) }

static const struct ipc_rule priv_rules_connectd[] = { HELLO_ROW };
static const struct ipc_rule priv_rules_workerd[] = {
	HELLO_ROW,
	{ .type = PRIV_REQ_USB_ATTACH, .states = IPC_ST_OPEN, .min = sizeof(struct priv_usb_attach),
	    .max = sizeof(struct priv_usb_attach), .handler = op_usb_attach },
	{ .type = PRIV_REQ_USB_DETACH, .states = IPC_ST_OPEN, .min = sizeof(struct priv_usb_detach),
	    .max = sizeof(struct priv_usb_detach), .handler = op_usb_detach },
	{ .type = PRIV_REQ_USB_GRANT, .states = IPC_ST_OPEN, .min = sizeof(struct priv_usb_grant),
	    .max = sizeof(struct priv_usb_grant), .handler = op_usb_grant },
};

const struct priv_table priv_tables[TABLES] = {
	[SIDE_CONNECTD] = TABLE(priv_rules_connectd),
	[SIDE_WORKERD] = TABLE(priv_rules_workerd),
	[SIDE_EITHER] = TABLE(priv_rules_connectd),
};
