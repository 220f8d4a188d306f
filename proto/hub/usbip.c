#include "proto/hub/usbip.h"

#include <errno.h>
#include <string.h>

#define VERSION		0x0111u
#define REQ_IMPORT	0x8003u
#define REP_IMPORT	0x0003u
#define SPEED_MAX	6u

static uint32_t
be(const uint8_t *p, unsigned n)
{
	uint32_t v = 0;

	while (n-- > 0)
		v = v << 8 | *p++;
	return v;
}

void
usbip_put_request(uint8_t dst[USBIP_REQ_SIZE], const char *busid)
{
	size_t len = strnlen(busid, USBIP_BUSID_SIZE - 1);

	memset(dst, 0, USBIP_REQ_SIZE);
	dst[0] = VERSION >> 8;
	dst[1] = VERSION & 0xff;
	dst[2] = REQ_IMPORT >> 8;
	dst[3] = REQ_IMPORT & 0xff;
	memcpy(dst + USBIP_REP_HEAD, busid, len);
}

/* A string that ends within its field and has nothing in it that a terminal would obey. What is behind its end is left alone. */
static int
take_text(char *dst, const uint8_t *src, size_t size)
{
	size_t len = strnlen((const char *)src, size);

	if (len == 0 || len == size)
		return -EBADMSG;
	for (size_t i = 0; i < len; i++)
		if (src[i] < ' ' || src[i] > '~')
			return -EBADMSG;
	memcpy(dst, src, len);
	memset(dst + len, 0, size - len);
	return 0;
}

ssize_t
usbip_parse_reply(const uint8_t *data, size_t len, struct usbip_device *ret, uint32_t *ret_status)
{
	struct usbip_device d = { .devid = 0 };
	const uint8_t *p = data + USBIP_REP_HEAD;
	uint32_t bus, dev;

	if (len < USBIP_REP_HEAD)
		return 0;
	if (be(data, 2) != VERSION || be(data + 2, 2) != REP_IMPORT)
		return -EBADMSG;
	*ret_status = be(data + 4, 4);
	if (*ret_status != 0)
		return -ECONNREFUSED;
	if (len < USBIP_REP_SIZE)
		return 0;
	if (take_text(d.path, p, sizeof(d.path)) < 0 || take_text(d.busid, p + 256, sizeof(d.busid)) < 0)
		return -EBADMSG;
	p += 288;
	bus = be(p, 4);
	dev = be(p + 4, 4);
	d.speed = be(p + 8, 4);
	if (bus == 0 || bus > 0xffff || dev == 0 || dev > 0xffff || d.speed > SPEED_MAX)
		return -EBADMSG;
	d.devid = bus << 16 | dev;
	d.vendor = (uint16_t)be(p + 12, 2);
	d.product = (uint16_t)be(p + 14, 2);
	d.class = p[18];
	*ret = d;
	return USBIP_REP_SIZE;
}

const char *
usbip_status_text(uint32_t status)
{
	static const char *const texts[] = { "it is ready", "it is not exported; bind it with usbip bind", "it is in use by another",
		"it is in an error state", "there is no such device", "it refuses for a reason it does not tell" };

	return texts[status < sizeof(texts) / sizeof(texts[0]) ? status : sizeof(texts) / sizeof(texts[0]) - 1];
}
