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
#define HELLO_ROW	{ IPC_HELLO, IPC_ST_HELLO, 0, 0, sizeof(struct ipc_hello), sizeof(struct ipc_hello), introduce_hello }
#define VERB(t, fds, s, op)	{ t, IPC_ST_OPEN, fds, fds, sizeof(struct s), sizeof(struct s), op }
#define TABLE(rules)	{ rules, sizeof(rules) / sizeof((rules)[0]) }

static const struct ipc_rule priv_rules_connectd[] = { HELLO_ROW };
static const struct ipc_rule priv_rules_workerd[] = {
	HELLO_ROW,
	VERB(PRIV_REQ_USB_ATTACH, 0, priv_usb_attach, op_usb_attach),
	VERB(PRIV_REQ_USB_DETACH, 0, priv_usb_detach, op_usb_detach),
	VERB(PRIV_REQ_USB_GRANT, 0, priv_usb_grant, op_usb_grant),
	VERB(PRIV_REQ_TAP, 1, priv_tap, op_tap),
};

const struct priv_table priv_tables[TABLES] = {
	[SIDE_CONNECTD] = TABLE(priv_rules_connectd),
	[SIDE_WORKERD] = TABLE(priv_rules_workerd),
	[SIDE_EITHER] = TABLE(priv_rules_connectd),
};
