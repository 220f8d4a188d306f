/* privhelper's USB verbs: nodes for workloads, made for the runner alone, followed as drivers come and go, gone with the device or with workerd. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "tests/unit/usbrig.h"

static void
test_grant(void **state)
{
	struct priv_usb_granted g;
	char path[256];
	dev_t dev;
	int end;

	if (geteuid() != 0)
		skip();
	attach_disk(&end);
	assert_int_equal(ask_grant(0, 1, &g), -ENODEV);	/* not authorized yet: nothing is lent */
	turn_until(USB_THERE);
	show_nodes();
	assert_int_equal(ask_grant(0, 2, &g), -EDOM);	/* the pool has two */
	assert_int_equal(ask_grant(1, 0, &g), -ENODEV);	/* somebody else's port */
	assert_int_equal(ask_grant(0, 4096, &g), -EPROTO);
	assert_int_equal(ask_grant(0, 1, &g), 0);
	assert_int_equal(g.n, 3);	/* no network interface */
	assert_int_equal(node("1/bus/usb/001/002", &dev), S_IFCHR | 0600);
	assert_int_equal(dev, makedev(189, 1));
	assert_int_equal(node("1/ttyUSB0", &dev), S_IFCHR | 0600);
	assert_int_equal(node("1/sda", &dev), S_IFBLK | 0600);
	assert_int_equal(dev, makedev(8, 0));
	assert_non_null(strstr(get("state/privhelper/audit"), "usb-grant port=0 slot=1 nodes=3 result=ok"));
	/* The driver went; again, to another runner; then the device ends by itself. */
	snprintf(path, sizeof(path), "%s/" HCD "/usb1/1-1/1-1:1.0/host0/block/sda/dev", top);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ask_grant(0, 1, &g), 0);
	assert_int_equal(g.n, 2);
	assert_int_equal(node("1/sda", &dev), 0);
	assert_int_equal(ask_grant(0, 0, &g), 0);
	assert_int_equal(node("1/ttyUSB0", &dev), 0);
	assert_int_equal(node("0/ttyUSB0", &dev), S_IFCHR | 0600);
	PUT(HCD "/status", HEAD "hs  0000 004 000 00000000 000000 0-0\nhs  0001 004 000 00000000 000000 0-0\n"
	    "ss  0002 004 000 00000000 000000 0-0\n");
	turn_until(USB_FREE);
	assert_int_equal(node("0/ttyUSB0", &dev), 0);
	assert_int_equal(node("0/bus/usb/001", &dev), 0);
	assert_int_equal(ask_grant(0, 0, &g), -ENODEV);
	close(end);
}

/* workerd ends: what it lent is taken back at once, its devices are detached. The same at a start after a crash. */
static void
test_grant_ends(void **state)
{
	struct priv_usb_granted g;
	char path[160];
	dev_t dev;
	int end;

	if (geteuid() != 0)
		skip();
	end = lend_disk(0, &g);
	usb_asker_gone(&usb);
	assert_int_equal(node("0/sda", &dev), 0);
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "0");
	close(end);
	PUT("dev/edgeward/1/left", "");
	snprintf(path, sizeof(path), "%s/dev/edgeward/2", top);
	assert_int_equal(mkdir(path, 0755), 0);
	PUT("dev/edgeward/2/left", "");	/* of a larger pool */
	begin("ff 07 08");
	assert_int_equal(node("1/left", &dev), 0);
	assert_int_equal(node("2/left", &dev), 0);
}

/*
 * A device ends, and the next one is attached before anybody has looked: the nodes of the first are not its runner's any more, since the next
 * device gets their numbers, and its end is told and on record.
 */
static void
test_grant_replaced(void **state)
{
	struct { struct ipc_hdr hdr; struct priv_usb_device d; } said;
	struct priv_usb_granted g;
	struct priv_usb_attach req = { 0x10003, 3 };
	struct ipc_msg msg = { .hdr = { .type = PRIV_REQ_USB_ATTACH, .id = 7, .len = sizeof(req) }, .data = (uint8_t *)&req };
	struct peer *before = nobody, asker = { 0 };
	dev_t dev;
	int end;

	if (geteuid() != 0)
		skip();
	end = lend_disk(1, &g);
	assert_int_equal(node("1/ttyUSB0", &dev), S_IFCHR | 0600);
	PUT(HCD "/status", ALL_FREE);
	asker.chan = chan;
	nobody = &asker;
	assert_int_equal(op_usb_attach(&chan, &msg, &in), 0);
	nobody = before;
	assert_int_equal(node("1/ttyUSB0", &dev), 0);
	assert_int_equal(node("1/bus/usb/001/002", &dev), 0);
	assert_non_null(strstr(get("state/privhelper/audit"), "usb-detach port=0 devid=00010002 why=gone"));
	do
		assert_true(recv(peer, &said, sizeof(said), MSG_DONTWAIT) > 0);
	while (said.hdr.type == PRIV_EV_STATE);
	assert_int_equal(said.hdr.type, PRIV_EV_USB_DEVICE);	/* before the answer, which has the same port */
	assert_int_equal(said.d.outcome, PRIV_USB_GONE);
	close(end);
}

static void
test_keyboard(void **state)
{
	uint8_t d[sizeof(disk)];
	struct priv_usb_attached a;
	int end;

	memcpy(d, disk, sizeof(d));
	d[32] = 3;
	assert_int_equal(ask_attach(0x10002, 2, &a, &end), 0);
	show_device(d, "0\n");
	turn_until(USB_THERE);
	assert_string_equal(get(HCD "/usb1/1-1/authorized"), "0\n");
	assert_string_equal(get("sys/bus/usb/drivers_probe"), "");
	close(end);
}

/* usb = no after a crash, or a smaller pool: what was lent before is nobody's, whatever runner id its directory had. */
static void
test_nothing_lent_any_more(void **state)
{
	dev_t dev;
	char path[160];

	PUT("dev/edgeward/1/left", "");
	snprintf(path, sizeof(path), "%s/dev/edgeward/9", top);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/dev/edgeward/9/bus", top);
	assert_int_equal(mkdir(path, 0755), 0);
	PUT("dev/edgeward/9/bus/left", "");
	begin(NULL);
	assert_int_equal(node("1/left", &dev), 0);
	assert_int_equal(node("9/bus/left", &dev), 0);
	assert_true(usb.grants.dir < 0);
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_grant), T(test_grant_ends), T(test_grant_replaced), T(test_keyboard), T(test_nothing_lent_any_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
