/* Checks of the verbs' requests, the same for who asks and for privhelper. */
#include "proto/ipc/priv.h"

#include <string.h>

#include "proto/ipc/ipc.h"

#define PORT_MAX	4095u	/* the kernel's own bound is 128 controllers of 30 */
#define SLOT_MAX	4095u	/* the largest pool */
#define HEX		64

bool
priv_usb_attach_ok(const struct priv_usb_attach *req)
{
	return req->devid >> 16 != 0 && (req->devid & 0xffff) != 0 && req->speed >= 1 && req->speed <= 6 && req->speed != 4;
}

bool
priv_usb_detach_ok(const struct priv_usb_detach *req)
{
	return req->port <= PORT_MAX && req->reserved == 0;
}

bool
priv_usb_grant_ok(const struct priv_usb_grant *req)
{
	return req->port <= PORT_MAX && req->slot <= SLOT_MAX;
}

/* What becomes part of a path and of a frame: plain characters, no empty step and no "..". */
static bool
name_ok(const char *s)
{
	return s[0] != '\0' && s[0] != '/' && s[0] != '.' && strstr(s, "//") == NULL && strstr(s, "/.") == NULL &&
	    s[strlen(s) - 1] != '/' && s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-/")] == '\0';
}

bool
priv_usb_granted_ok(const struct priv_usb_granted *granted)
{
	if (granted->n > PRIV_USB_NODES || granted->reserved != 0)
		return false;
	for (uint32_t i = 0; i < granted->n; i++) {
		const struct priv_usb_node *node = &granted->nodes[i];

		if (!ipc_str_ok(node->name, sizeof(node->name)) || !name_ok(node->name) ||
		    !ipc_str_ok(node->subsystem, sizeof(node->subsystem)) || !name_ok(node->subsystem))
			return false;
	}
	return true;
}

bool
priv_tap_name_ok(const char name[16])
{
	const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	return ipc_str_ok(name, 16) && strspn(name, letters) == strlen(name) && name[0] > '9' && name[0] != '_' &&
	    strcmp(name, "lo") != 0 && strcmp(name, "all") != 0 && strcmp(name, "default") != 0;
}

bool
priv_tap_ok(const struct priv_tap *req)
{
	return priv_tap_name_ok(req->name) && (req->mac[0] & 3) == 2 && req->mtu >= PRIV_MTU_MIN && req->mtu <= PRIV_MTU_MAX &&
	    req->offload <= 1 && req->reserved == 0;
}

bool
priv_state_ok(const struct priv_state *state)
{
	size_t len = ipc_str_ok(state->audit_head, sizeof(state->audit_head)) ? strlen(state->audit_head) : 1;

	return (state->flags & ~(PRIV_STATE_USB | PRIV_STATE_L2)) == 0 && state->reserved == 0 && len == (state->audit_seq != 0 ? HEX : 0) &&
	    strspn(state->audit_head, "0123456789abcdef") == len;
}
