/* USB 2.0, chapter 9.6: a device descriptor, then each configuration with all that belongs to it. */
#include "common/usbdesc.h"

#include <errno.h>
#include <string.h>

#define TYPE_DEVICE	1
#define TYPE_CONFIG	2
#define TYPE_INTERFACE	4
#define CONFIG_LEN	9
#define INTERFACE_LEN	9
#define CLASS_BY_IF	0x00	/* of a device: its interfaces say */
#define CLASS_MISC	0xef	/* the same, with interface associations */

static int
nibble(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int
usbdesc_classes_parse(const char *s, struct usbdesc_classes *ret_set)
{
	struct usbdesc_classes set = { { 0 } };

	while (*s != '\0') {
		int high = nibble(s[0]), low = high < 0 ? -1 : nibble(s[1]);

		if (low < 0 || (s[2] != '\0' && (s[2] != ' ' || s[3] == '\0')))
			return -EINVAL;
		set.bits[(high << 4 | low) / 8] |= (uint8_t)(1u << low % 8);
		s += s[2] == '\0' ? 2 : 3;
	}
	*ret_set = set;
	return 0;
}

bool
usbdesc_class_in(const struct usbdesc_classes *set, unsigned class)
{
	return class < 256 && (set->bits[class / 8] >> class % 8 & 1) != 0;
}

static unsigned
le16(const uint8_t *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

/* One alternate setting of interface p[2]. */
static int
take_interface(const uint8_t *p, uint8_t config, const struct usbdesc_classes *set, struct usbdesc *desc)
{
	struct usbdesc_if *i = desc->ifs;

	while (i < desc->ifs + desc->n && (i->config != config || i->number != p[2]))
		i++;
	if (i == desc->ifs + USBDESC_IFS)
		return -EBADMSG;
	if (i == desc->ifs + desc->n) {
		*i = (struct usbdesc_if){ config, p[2], USBDESC_NONE };
		desc->n++;
	}
	if (i->refused == USBDESC_NONE && !usbdesc_class_in(set, p[5]))
		i->refused = p[5];
	return 0;
}

static int
take_config(const uint8_t *p, size_t len, const struct usbdesc_classes *set, struct usbdesc *desc)
{
	uint8_t config = p[5];

	for (unsigned i = 0; i < desc->n; i++)
		if (desc->ifs[i].config == config)	/* two of one number: which one is used? */
			return -EBADMSG;
	while (len > 0) {
		size_t n = p[0];

		if (len < 2 || n < 2 || n > len || p[1] == TYPE_DEVICE || (p[1] == TYPE_INTERFACE && n < INTERFACE_LEN))
			return -EBADMSG;
		if (p[1] == TYPE_INTERFACE && take_interface(p, config, set, desc) < 0)
			return -EBADMSG;
		p += n;
		len -= n;
		if (len >= 2 && p[1] == TYPE_CONFIG)	/* inside of another: the kernel would skip it */
			return -EBADMSG;
	}
	return 0;
}

int
usbdesc_parse(const uint8_t *data, size_t len, const struct usbdesc_classes *set, struct usbdesc *ret_desc)
{
	struct usbdesc desc = { .refused = USBDESC_NONE };

	if (len < USBDESC_DEVICE_LEN || len > USBDESC_SIZE || data[0] != USBDESC_DEVICE_LEN || data[1] != TYPE_DEVICE)
		return -EBADMSG;
	if (data[4] != CLASS_BY_IF && data[4] != CLASS_MISC && !usbdesc_class_in(set, data[4]))
		desc.refused = data[4];
	desc.vendor = (uint16_t)le16(data + 8);
	desc.product = (uint16_t)le16(data + 10);
	data += USBDESC_DEVICE_LEN;
	len -= USBDESC_DEVICE_LEN;
	while (len > 0) {
		size_t total = len < CONFIG_LEN ? 0 : le16(data + 2);

		if (total < CONFIG_LEN || total > len || data[0] < CONFIG_LEN || data[1] != TYPE_CONFIG ||
		    take_config(data, total, set, &desc) < 0)
			return -EBADMSG;
		data += total;
		len -= total;
	}
	*ret_desc = desc;
	return 0;
}

struct usbdesc_count
usbdesc_count(const struct usbdesc *desc, uint8_t config)
{
	struct usbdesc_count c = { .refused = desc->refused };

	for (unsigned i = 0; i < desc->n; i++) {
		if (desc->ifs[i].config != config)
			continue;
		c.interfaces++;
		if (desc->ifs[i].refused == USBDESC_NONE)
			c.permitted++;
		else if (c.refused == USBDESC_NONE)
			c.refused = desc->ifs[i].refused;
	}
	if (desc->refused != USBDESC_NONE)
		c.permitted = 0;
	return c;
}
