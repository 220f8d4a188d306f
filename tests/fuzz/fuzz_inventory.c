/*
 * What devices say and files of the system hold, from any bytes: it becomes printable and bounded. And records of a workerd that was
 * taken over: what connectd takes is JSON that fits its room.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "connectd/inventory.h"
#include "workerd/usb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_json(const struct inventory *inv)
{
	static char buf[INVENTORY_ROOM];
	static struct policy policy;
	struct json_doc *doc;
	struct json_w w;
	size_t len;

	json_w_init(&w, buf, sizeof(buf));
	json_w_obj(&w, NULL);
	inventory_put(&w, inv, &policy, true);
	json_w_end_obj(&w);
	if (json_w_done(&w, &len) < 0 || json_parse(buf, len, &doc) < 0)
		abort();
	json_doc_free(doc);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct inventory inv = { 0 };
	struct work_inventory head = { 0 };
	struct work_usb usb = { .bus = 1, .dev = 2, .port = "1-1", .vendor_id = "0403", .product_id = "6001", .class = "00" };

	usb_text(usb.product, sizeof(usb.product), (const char *)data, size);
	usb_text(usb.serial, 8, (const char *)data, size);
	if (!inventory_usb_ok(&usb))
		abort();
	inventory_take_usb(&inv, &usb);
	memcpy(&usb, data, size < sizeof(usb) ? size : sizeof(usb));
	if (size > sizeof(usb))
		memcpy(&head, data + sizeof(usb), size - sizeof(usb) < sizeof(head) ? size - sizeof(usb) : sizeof(head));
	for (int i = 0; i < 200; i++)
		inventory_take_usb(&inv, &usb);
	if (inventory_take(&inv, &head) < 0) {
		head = (struct work_inventory){ .usb = inv.ncoming };
		if (inventory_take(&inv, &head) < 0)
			abort();
	}
	check_json(&inv);
	inventory_done(&inv);
	return 0;
}
