/*
 * Nothing is claimed that does not hold. In particular container engines that were found are told on an edgeward.1 session only: cloop's
 * field of them means "place container work here", so it has those alone by which workerd would start a container.
 */
#include "connectd/inventory.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "proto/ipc/launch.h"

#define USB_ROOM	(64u << 10)	/* then no further device: the frame has offers, too */
#define ISSUE_FILTER	"the part of this agent that runs workloads has not said yet"

void
inventory_begin(struct inventory *inv)
{
	free(inv->coming);
	inv->coming = NULL;
	inv->ncoming = 0;
}

void
inventory_done(struct inventory *inv)
{
	inventory_begin(inv);
	free(inv->usb);
	memset(inv, 0, sizeof(*inv));
}

int
inventory_take_usb(struct inventory *inv, const struct work_usb *usb)
{
	struct work_usb *more;

	if (!inventory_usb_ok(usb) || inv->ncoming == INVENTORY_USB_MAX)
		return -EBADMSG;
	more = reallocarray(inv->coming, inv->ncoming + 1, sizeof(*more));
	if (more == NULL)
		return -ENOMEM;
	more[inv->ncoming++] = *usb;
	inv->coming = more;
	return 0;
}

int
inventory_take(struct inventory *inv, const struct work_inventory *head)
{
	if (!inventory_ok(head) || head->usb != inv->ncoming)
		return -EBADMSG;
	free(inv->usb);
	inv->usb = inv->coming;
	inv->coming = NULL;
	inv->ncoming = 0;
	inv->head = *head;
	inv->known = true;
	return 0;
}

static void
put_text(struct json_w *w, const char *key, const char *text)
{
	if (text[0] != '\0')
		json_w_str(w, key, text);
}

static void
put_names(struct json_w *w, const char *key, enum inventory_list list, uint32_t found)
{
	const char *name;

	if (found == 0)
		return;
	json_w_arr(w, key);
	for (unsigned bit = 0; (name = inventory_name(list, bit)) != NULL; bit++)
		if ((found >> bit & 1) != 0)
			json_w_str(w, NULL, name);
	json_w_end_arr(w);
}

static void
put_owner(struct json_w *w, const struct work_usb *usb)
{
	char text[40];

	if (usb->mode == 0)
		return;
	snprintf(text, sizeof(text), "/dev/bus/usb/%03u/%03u", usb->bus, usb->dev);
	json_w_str(w, "node", text);
	snprintf(text, sizeof(text), "%04o", usb->mode);
	json_w_str(w, "mode", text);
	json_w_int(w, "uid", usb->uid);
	json_w_int(w, "gid", usb->gid);
	put_text(w, "group", usb->group);
}

static void
put_usb(struct json_w *w, const struct work_usb *usb)
{
	json_w_obj(w, NULL);
	json_w_str(w, "port", usb->port);
	json_w_int(w, "bus", usb->bus);
	json_w_int(w, "dev", usb->dev);
	json_w_str(w, "vendor_id", usb->vendor_id);
	json_w_str(w, "product_id", usb->product_id);
	put_text(w, "manufacturer", usb->manufacturer);
	put_text(w, "product", usb->product);
	put_text(w, "serial", usb->serial);
	json_w_str(w, "class", usb->class);
	put_text(w, "speed", usb->speed);
	put_owner(w, usb);
	if (usb->nnodes > 0) {
		json_w_arr(w, "nodes");
		for (uint32_t i = 0; i < usb->nnodes; i++) {
			json_w_obj(w, NULL);
			json_w_str(w, "path", usb->nodes[i].path);
			json_w_str(w, "subsystem", usb->nodes[i].subsystem);
			json_w_end_obj(w);
		}
		json_w_end_arr(w);
	}
	json_w_end_obj(w);
}

static void
put_found(struct json_w *w, const struct inventory *inv)
{
	const struct work_inventory *h = &inv->head;
	struct utsname uts;

	json_w_obj(w, "inventory");
	put_text(w, "os", h->os);
	if (uname(&uts) == 0)
		json_w_str(w, "kernel", uts.release);
	put_text(w, "cpu", h->cpu);
	json_w_int(w, "disk_total_mb", (int64_t)(h->disk_total >> 20));
	json_w_int(w, "disk_free_mb", (int64_t)(h->disk_free >> 20));
	put_names(w, "container_engines", INVENTORY_ENGINES, h->found[INVENTORY_ENGINES]);
	put_names(w, "oci_runtimes", INVENTORY_RUNTIMES, h->found[INVENTORY_RUNTIMES]);
	json_w_bool(w, "nft", (h->flags & INVENTORY_F_NFT) != 0);
	if (h->usb_left_out > 0)
		json_w_int(w, "usb_left_out", h->usb_left_out);
	json_w_end_obj(w);
}

void
inventory_put(struct json_w *w, const struct inventory *inv, const struct policy *policy, bool extended)
{
	size_t begin = w->len;

	json_w_bool(w, "packet_filter", inv->known && inv->head.filter_issue == FILTER_WORKS);
	if (!inv->known || inv->head.filter_issue != FILTER_WORKS)
		json_w_str(w, "packet_filter_issue", !inv->known ? ISSUE_FILTER :
		    launch_filter_issue_text((enum filter_issue)inv->head.filter_issue));
	json_w_str(w, "update_channel", policy->channel == POLICY_CHANNEL_EDGE ? "edge" : "stable");
	if (!inv->known)
		return;
	if ((inv->head.flags & INVENTORY_F_GIT) != 0) {
		json_w_bool(w, "workspace_provisioning", policy->network != POLICY_NETWORK_NONE);
		json_w_bool(w, "write_back", true);
		json_w_bool(w, "branch_bundles", true);
	}
	put_names(w, "container_runtimes", INVENTORY_ENGINES, inv->head.engines);
	if (inv->head.engines != 0)
		put_names(w, "oci_runtimes", INVENTORY_RUNTIMES, inv->head.found[INVENTORY_RUNTIMES]);
	put_names(w, "harnesses", INVENTORY_HARNESSES, inv->head.found[INVENTORY_HARNESSES]);
	if ((inv->head.flags & INVENTORY_F_KVM) != 0)
		json_w_bool(w, "virtualization", true);
	if (inv->head.usb > 0) {
		json_w_arr(w, "usb_devices");
		for (uint32_t i = 0; i < inv->head.usb && w->len - begin < USB_ROOM; i++)
			put_usb(w, &inv->usb[i]);
		json_w_end_arr(w);
	}
	if (extended)
		put_found(w, inv);
}
