/* OP_REP_IMPORT as a forwarder may send it, and what workerd is then asked: the checks of both sides. */
#include <stdlib.h>
#include <string.h>

#include "proto/hub/usbip.h"
#include "proto/ipc/device.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct usbip_device d;
	struct device_open open = { .id = "d" };
	uint32_t status = 0;
	ssize_t r = usbip_parse_reply(data, size, &d, &status);

	if (r > 0 && ((size_t)r > size || strnlen(d.path, sizeof(d.path)) == sizeof(d.path) || d.devid >> 16 == 0 || d.speed > 6))
		abort();
	if (r > 0) {
		open.devid = d.devid;
		open.speed = d.speed;
		memcpy(open.busid, d.busid, sizeof(open.busid));
		device_open_ok(&open);
	}
	/* The records of device.h, laid over the same bytes. */
	if (size >= sizeof(open)) {
		memcpy(&open, data, sizeof(open));
		if (device_open_ok(&open) && !device_id_ok(open.id))
			abort();
	}
	if (size >= sizeof(struct device_info)) {
		struct device_info info;

		memcpy(&info, data, sizeof(info));
		device_info_ok(&info);
	}
	return 0;
}
