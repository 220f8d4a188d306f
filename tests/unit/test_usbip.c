/* The import exchange of USB/IP, and the names and records that follow from it. B110: every field is bounded before it is used. */
#include <errno.h>
#include <string.h>

#include "proto/hub/usbip.h"
#include "proto/ipc/device.h"
#include "proto/ipc/spec.h"
#include "tests/unit/unit.h"

static uint8_t reply[USBIP_REP_SIZE];

static void
put32(size_t at, uint32_t v)
{
	for (int i = 3; i >= 0; i--, v >>= 8)
		reply[at + (size_t)i] = (uint8_t)v;
}

static void
make(uint32_t bus, uint32_t dev, uint32_t speed)
{
	static const uint8_t head[8] = { 1, 0x11, 0, 3, 0, 0, 0, 0 };

	memset(reply, 0, sizeof(reply));
	memcpy(reply, head, sizeof(head));
	memcpy(reply + 8, "/sys/devices/usb1/1-2", 21);
	memcpy(reply + 264, "1-2", 3);
	put32(296, bus);
	put32(300, dev);
	put32(304, speed);
	memcpy(reply + 308, "\x12\x34\x56\x78", 4);
	reply[314] = 8;
}

static void
test_request(void **state)
{
	uint8_t req[USBIP_REQ_SIZE];

	usbip_put_request(req, "1-2.4:1");
	assert_memory_equal(req, "\x01\x11\x80\x03\0\0\0\0" "1-2.4:1\0", 16);
	usbip_put_request(req, "1234567890123456789012345678901234567890");
	assert_int_equal(req[USBIP_REQ_SIZE - 1], 0);
}

static void
test_reply(void **state)
{
	struct usbip_device d;
	uint32_t status;

	make(1, 5, 3);
	for (size_t len = 0; len < sizeof(reply); len++)
		assert_int_equal(usbip_parse_reply(reply, len, &d, &status), 0);
	assert_int_equal(usbip_parse_reply(reply, sizeof(reply), &d, &status), USBIP_REP_SIZE);
	assert_string_equal(d.busid, "1-2");
	assert_string_equal(d.path, "/sys/devices/usb1/1-2");
	assert_int_equal(d.devid, 0x10005);
	assert_int_equal(d.speed, 3);
	assert_int_equal(d.vendor, 0x1234);
	assert_int_equal(d.product, 0x5678);
	assert_int_equal(d.class, 8);
	reply[7] = 2;
	assert_int_equal(usbip_parse_reply(reply, 8, &d, &status), -ECONNREFUSED);
	assert_int_equal(status, 2);
	assert_string_equal(usbip_status_text(2), "it is in use by another");
	assert_non_null(usbip_status_text(UINT32_MAX));
}

static void
test_b110_what_is_none(void **state)
{
	static const struct { uint32_t bus, dev, speed; } bad[] = { { 0, 5, 3 }, { 1, 0, 3 }, { 65536, 5, 3 }, { 1, 65536, 3 }, { 1, 5, 7 },
		{ UINT32_MAX, 5, 3 }, { 1, 5, UINT32_MAX } };
	struct usbip_device d;
	uint32_t status;

	for (size_t i = 0; i < COUNT(bad); i++) {
		make(bad[i].bus, bad[i].dev, bad[i].speed);
		assert_int_equal(usbip_parse_reply(reply, sizeof(reply), &d, &status), -EBADMSG);
	}
	for (size_t i = 0; i < 4; i++) {	/* another version, another command */
		make(1, 5, 3);
		reply[i] ^= 0x40;
		assert_int_equal(usbip_parse_reply(reply, 8, &d, &status), -EBADMSG);
	}
	make(1, 5, 3);
	memset(reply + 264, '1', 32);		/* a bus id without an end */
	assert_int_equal(usbip_parse_reply(reply, sizeof(reply), &d, &status), -EBADMSG);
	make(1, 5, 3);
	reply[10] = '\x1b';
	assert_int_equal(usbip_parse_reply(reply, sizeof(reply), &d, &status), -EBADMSG);
	make(1, 5, 3);
	reply[8] = '\0';
	assert_int_equal(usbip_parse_reply(reply, sizeof(reply), &d, &status), -EBADMSG);
}

static void
test_names(void **state)
{
	static const char *const ids[] = { "a", "usb1-2-00ff", "0123456789012345678901234567890" };
	static const char *const none[] = { "", "-a", "A", "a b", "a/b", "01234567890123456789012345678901", "a\n" };

	for (size_t i = 0; i < COUNT(ids); i++)
		assert_true(device_id_ok(ids[i]));
	for (size_t i = 0; i < COUNT(none); i++)
		assert_false(device_id_ok(none[i]));
	assert_true(device_busid_ok("1-1.4:1.0"));
	assert_false(device_busid_ok(""));
	assert_false(device_busid_ok("../1"));
	assert_true(device_list_ok(""));
	assert_true(device_list_ok("a b-c d"));
	assert_false(device_list_ok(" a"));
	assert_false(device_list_ok("a "));
	assert_false(device_list_ok("a  b"));
	assert_true(device_listed("a b-c d", "b-c"));
	assert_true(device_listed("a b-c d", "d"));
	assert_false(device_listed("ab b-c", "b"));
	assert_false(device_listed("", "b"));
}

/* What privhelper and workerd say is checked by who hears it: a node's name becomes part of a path. */
static void
test_records(void **state)
{
	static const char *const names[] = { "../sda", "/dev/sda", "bus//usb", "bus/../x", ".", "a/", "", "a b" };
	struct priv_usb_granted g = { .n = 1, .nodes = { { "bus/usb/001/002", "usb" } } };
	struct priv_state st = { .flags = PRIV_STATE_USB, .audit_seq = 1 };
	struct device_open o = { .id = "a", .handle = "run", .busid = "1-1", .devid = 0x10002, .speed = 3 };

	assert_true(priv_usb_granted_ok(&g));
	for (size_t i = 0; i < COUNT(names); i++) {
		memset(g.nodes[0].name, 0, sizeof(g.nodes[0].name));
		memcpy(g.nodes[0].name, names[i], strlen(names[i]));
		assert_false(priv_usb_granted_ok(&g));
	}
	g.n = PRIV_USB_NODES + 1;
	assert_false(priv_usb_granted_ok(&g));
	assert_false(priv_state_ok(&st));
	memset(st.audit_head, 'a', 64);
	assert_true(priv_state_ok(&st));
	st.flags = 4;
	assert_false(priv_state_ok(&st));
	assert_true(device_open_ok(&o));
	o.speed = 4;
	assert_false(device_open_ok(&o));
	o.speed = 3;
	o.devid = 2;
	assert_false(device_open_ok(&o));
	o.devid = 0x10002;
	memset(o.handle, 'a', sizeof(o.handle));
	assert_false(device_open_ok(&o));
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_request), cmocka_unit_test(test_reply),
		cmocka_unit_test(test_b110_what_is_none), cmocka_unit_test(test_names), cmocka_unit_test(test_records) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
