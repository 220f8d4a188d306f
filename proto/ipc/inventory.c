#include "proto/ipc/inventory.h"

#include <stddef.h>
#include <string.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/launch.h"

#define ID_MAX	999u
#define HEX	"0123456789abcdef"

static const char *const names[INVENTORY_LISTS][8] = {
	[INVENTORY_HARNESSES] = { "claude", "codex", "gemini", "cloop" },
	[INVENTORY_ENGINES] = { "docker", "podman", "nerdctl" },
	[INVENTORY_RUNTIMES] = { "runc", "crun", "runsc", "kata-runtime", "youki" },
};

const char *
inventory_name(enum inventory_list list, unsigned bit)
{
	return list < INVENTORY_LISTS && bit < 8 ? names[list][bit] : NULL;
}

static bool
digits_ok(const char *s, size_t size, const char *set, size_t least, size_t most)
{
	size_t len = ipc_str_ok(s, size) ? strlen(s) : SIZE_MAX;

	return len >= least && len <= most && strspn(s, set) == len;
}

bool
inventory_port_ok(const char *s)
{
	size_t bus = strspn(s, "0123456789"), len = strlen(s);

	if (bus == 0 || bus > 3 || s[bus] != '-' || len > 31 || s[len - 1] == '.' || s[bus + 1] == '.' || s[bus + 1] == '\0')
		return false;
	return strspn(s + bus + 1, "0123456789.") == len - bus - 1 && strstr(s, "..") == NULL;
}

bool
inventory_ok(const struct work_inventory *inv)
{
	for (unsigned list = 0; list < INVENTORY_LISTS; list++)
		for (unsigned bit = 0; bit < 32; bit++)
			if ((inv->found[list] >> bit & 1) != 0 && inventory_name((enum inventory_list)list, bit) == NULL)
				return false;
	return (inv->flags & ~(INVENTORY_F_KVM | INVENTORY_F_NFT | INVENTORY_F_GIT)) == 0 && inv->usb <= INVENTORY_USB_MAX &&
	    inv->filter_issue < FILTER_ISSUES && (inv->engines & ~inv->found[INVENTORY_ENGINES]) == 0 &&
	    ipc_text_ok(inv->os, sizeof(inv->os)) && ipc_text_ok(inv->cpu, sizeof(inv->cpu));
}

static bool
node_ok(const struct work_usb_node *node)
{
	return ipc_text_ok(node->path, sizeof(node->path)) && strncmp(node->path, "/dev/", 5) == 0 && node->path[5] != '\0' &&
	    strstr(node->path, "..") == NULL && ipc_text_ok(node->subsystem, sizeof(node->subsystem)) && node->subsystem[0] != '\0';
}

bool
inventory_usb_ok(const struct work_usb *usb)
{
	if (usb->bus < 1 || usb->bus > ID_MAX || usb->dev < 1 || usb->dev > ID_MAX || usb->mode > 07777 ||
	    usb->nnodes > INVENTORY_NODES_MAX || !ipc_str_ok(usb->port, sizeof(usb->port)) || !inventory_port_ok(usb->port) ||
	    !digits_ok(usb->vendor_id, sizeof(usb->vendor_id), HEX, 4, 4) ||
	    !digits_ok(usb->product_id, sizeof(usb->product_id), HEX, 4, 4) ||
	    !digits_ok(usb->class, sizeof(usb->class), HEX, 2, 2) || !digits_ok(usb->speed, sizeof(usb->speed), "0123456789.", 0, 11))
		return false;
	for (unsigned i = 0; i < usb->nnodes; i++)
		if (!node_ok(&usb->nodes[i]))
			return false;
	return ipc_text_ok(usb->manufacturer, sizeof(usb->manufacturer)) && ipc_text_ok(usb->product, sizeof(usb->product)) &&
	    ipc_text_ok(usb->serial, sizeof(usb->serial)) && ipc_text_ok(usb->group, sizeof(usb->group));
}
