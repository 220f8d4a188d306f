/*
 * usbdesc_parse: what a far USB device says it is. Whatever it is, an interface is permitted only if no setting of it, wherever it
 * stands, has a class outside of the set: found here again by a walk of its own.
 */
#include <stdlib.h>

#include "common/usbdesc.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool
has_foreign(const uint8_t *p, size_t len, const struct usbdesc_classes *set, uint8_t config, uint8_t number)
{
	uint8_t now = 0;

	for (size_t at = 18; at + 2 <= len && p[at] >= 2; at += p[at]) {
		if (p[at + 1] == 2)
			now = p[at + 5];
		if (p[at + 1] == 4 && now == config && p[at + 2] == number && !usbdesc_class_in(set, p[at + 5]))
			return true;
	}
	return false;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct usbdesc_classes set;
	struct usbdesc d;

	if (usbdesc_classes_parse("ff 07 08", &set) < 0 || usbdesc_parse(data, size, &set, &d) < 0)
		return 0;
	if (d.n > USBDESC_IFS)
		abort();
	for (unsigned i = 0; i < d.n; i++)
		if (has_foreign(data, size, &set, d.ifs[i].config, d.ifs[i].number) != (d.ifs[i].refused != USBDESC_NONE))
			abort();
	for (unsigned c = 0; c < 256; c++)
		if (usbdesc_count(&d, (uint8_t)c).permitted > usbdesc_count(&d, (uint8_t)c).interfaces)
			abort();
	return 0;
}
