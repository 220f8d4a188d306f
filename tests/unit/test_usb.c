/*
 * USB devices from a tree that looks like sysfs. It could go wrong where a device's own words are taken (workerd/usb.c) and where
 * they are checked again (proto/ipc/inventory.c).
 */
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/unit.h"
#include "workerd/inventory.h"
#include "workerd/usb.h"

static char root[64], devices[96], classes[96], dev[96];
static struct work_usb seen[INVENTORY_USB_MAX + 1];
static unsigned nseen;

static void
put(const char *dir, const char *name, const void *content, size_t len)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, len), len);
	close(fd);
}

static void
device(const char *port, const char *bus, const char *number, const char *product)
{
	char dir[200];

	snprintf(dir, sizeof(dir), "%s/%s", devices, port);
	assert_int_equal(mkdir(dir, 0755), 0);
	put(dir, "busnum", bus, strlen(bus));
	put(dir, "devnum", number, strlen(number));
	put(dir, "idVendor", "0403\n", 5);
	put(dir, "idProduct", "6001\n", 5);
	put(dir, "bDeviceClass", "00\n", 3);
	put(dir, "speed", "12\n", 3);
	put(dir, "product", product, strlen(product));
}

static int
setup(void **state)
{
	snprintf(root, sizeof(root), "/tmp/edgeward-usb.XXXXXX");
	assert_non_null(mkdtemp(root));
	snprintf(devices, sizeof(devices), "%s/devices", root);
	snprintf(classes, sizeof(classes), "%s/class", root);
	snprintf(dev, sizeof(dev), "%s/dev", root);
	mkdir(devices, 0755);
	mkdir(classes, 0755);
	mkdir(dev, 0755);
	nseen = 0;
	return 0;
}

static int
drop_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static int
teardown(void **state)
{
	return nftw(root, drop_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void
tell(const struct work_usb *usb, void *ctx)
{
	assert_true(nseen < INVENTORY_USB_MAX);
	assert_true(inventory_usb_ok(usb));
	seen[nseen++] = *usb;
}

static uint32_t
scan(void)
{
	const struct usb_places places = { devices, classes, dev };

	return usb_scan(&places, "root:x:0:\nme:x:4711:a,b\n", tell, NULL);
}

static void
a_serial_adapter(void **state)
{
	char path[200], target[256];

	device("1-1.2", "1\n", "7\n", "FT232R USB UART\n");
	device("usb1", "1\n", "1\n", "root hub\n");	/* no port of its own */
	device("1-1.2:1.0", "1\n", "7\n", "interface\n");
	snprintf(path, sizeof(path), "%s/tty", classes);
	mkdir(path, 0755);
	snprintf(target, sizeof(target), "%s/tty/ttyUSB0", classes);
	assert_int_equal(symlink("../../devices/pci0/usb1/1-1/1-1.2/1-1.2:1.0/ttyUSB0/tty/ttyUSB0", target), 0);
	snprintf(target, sizeof(target), "%s/tty/ttyUSB1", classes);	/* of another device, with a name that begins alike */
	assert_int_equal(symlink("../../devices/pci0/usb1/1-1/1-1.22/1-1.22:1.0/ttyUSB1/tty/ttyUSB1", target), 0);
	for (const char *const *p = (const char *const[]){ "bus", "bus/usb", "bus/usb/001", NULL }; *p != NULL; p++) {
		snprintf(path, sizeof(path), "%s/%s", dev, *p);
		mkdir(path, 0755);
	}
	put(path, "007", "", 0);
	snprintf(target, sizeof(target), "%s/007", path);
	assert_int_equal(chmod(target, 0664), 0);
	assert_int_equal(scan(), 0);
	assert_int_equal(nseen, 1);
	assert_string_equal(seen[0].port, "1-1.2");
	assert_int_equal(seen[0].bus, 1);
	assert_int_equal(seen[0].dev, 7);
	assert_string_equal(seen[0].vendor_id, "0403");
	assert_string_equal(seen[0].product, "FT232R USB UART");
	assert_string_equal(seen[0].serial, "");
	assert_int_equal(seen[0].mode, 0664);
	assert_int_equal(seen[0].nnodes, 1);
	assert_string_equal(seen[0].nodes[0].path, "/dev/ttyUSB0");
	assert_string_equal(seen[0].nodes[0].subsystem, "tty");
}

static void
what_a_device_says_is_text_and_bounded(void **state)
{
	char large[300];

	memset(large, 'x', sizeof(large) - 1);
	large[sizeof(large) - 1] = '\0';
	device("1-1", "1", "2", "a\x1b[31m\xe2\x80\xae\x07" "b");
	device("1-2", "1", "3", large);
	device("1-3", "0", "3", "bus 0");
	device("1-4", "1", "1000", "no such number");
	device("1-5", "1", "5", "");
	put(devices, "1-6", "a file", 6);	/* no directory */
	assert_int_equal(scan(), 0);
	assert_int_equal(nseen, 3);
	for (unsigned i = 0; i < nseen; i++) {
		if (strcmp(seen[i].port, "1-1") == 0)
			assert_string_equal(seen[i].product, "a?[31m????b");
		else if (strcmp(seen[i].port, "1-2") == 0)
			assert_int_equal(strlen(seen[i].product), 128);
		else
			assert_string_equal(seen[i].product, "");
	}
}

static void
many_devices_are_counted(void **state)
{
	char port[16], number[8];

	for (unsigned i = 0; i < INVENTORY_USB_MAX + 3; i++) {
		snprintf(port, sizeof(port), "2-%u", i + 1);
		snprintf(number, sizeof(number), "%u", i + 1);
		device(port, "2", number, "x");
	}
	assert_int_equal(scan(), 3);
	assert_int_equal(nseen, INVENTORY_USB_MAX);
}

/* As sysfs has it: a link to where the device sits. */
static void
device_at(const char *below, const char *port)
{
	char path[256], link[256], part[128];

	for (const char *p = strchr(below, '/'); p != NULL; p = strchr(p + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(p - below), below);
		snprintf(path, sizeof(path), "%s/%s", root, part);
		mkdir(path, 0755);
	}
	device(port, "4\n", "2\n", "x\n");
	snprintf(link, sizeof(link), "%s/%s", devices, port);
	snprintf(path, sizeof(path), "%s/%s%s", root, below, port);
	assert_int_equal(rename(link, path), 0);
	snprintf(path, sizeof(path), "../%s%s", below, port);
	assert_int_equal(symlink(path, link), 0);
}

/* B114: what was forwarded to this machine is not this machine's to lend on. */
static void
b114_forwarded_devices_are_left_out(void **state)
{
	char link[256];

	device_at("sys/platform/vhci_hcd.0/usb4/", "4-1");
	device_at("sys/platform/vhci_hcd.1/usb6/6-1/", "6-1.2");
	device_at("sys/pci0000:00/0000:00:14.0/usb1/", "1-1");
	device_at("sys/pci0000:00/0000:00:14.0/usb1/1-2/", "1-2.3");
	snprintf(link, sizeof(link), "%s/1-9", devices);
	assert_int_equal(symlink("1-9", link), 0);
	assert_int_equal(scan(), 0);
	assert_int_equal(nseen, 2);
	for (unsigned i = 0; i < nseen; i++)
		assert_true(strcmp(seen[i].port, "1-1") == 0 || strcmp(seen[i].port, "1-2.3") == 0);
}

static void
nothing_there(void **state)
{
	const struct usb_places places = { "/nonexistent", "/nonexistent", "/nonexistent" };

	assert_int_equal(usb_scan(&places, "", tell, NULL), 0);
	assert_int_equal(nseen, 0);
}

static void
ports(void **state)
{
	static const char *const good[] = { "1-1", "1-1.2", "12-3.4.5", "999-1" };
	static const char *const bad[] = { "", "1", "usb1", "1-", "1-.", "1-1.", "1-1..2", "1-1:1.0", "-1", "1-a", "../1-1", "1-1/..",
		"1234-1", "1-1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1.1" };

	for (size_t i = 0; i < COUNT(good); i++)
		assert_true(inventory_port_ok(good[i]));
	for (size_t i = 0; i < COUNT(bad); i++)
		assert_false(inventory_port_ok(bad[i]));
}

static void
groups_and_fields(void **state)
{
	char text[INVENTORY_TEXT];

	inventory_field("NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nPRETTY_NAME=later\n", "PRETTY_NAME", text, sizeof(text));
	assert_string_equal(text, "Debian GNU/Linux 12 (bookworm)");
	inventory_field("processor\t: 0\nmodel name\t: Some CPU @ 3 GHz\n", "model name", text, sizeof(text));
	assert_string_equal(text, "Some CPU @ 3 GHz");
	inventory_field("model names: x\nmodel name", "model name", text, sizeof(text));
	assert_string_equal(text, "");
	inventory_field("A=\"\nB='x", "A", text, sizeof(text));
	assert_string_equal(text, "\"");
}

static void
programs_are_found_by_name(void **state)
{
	char dirs[300], path[200];

	put(root, "claude", "#!/bin/sh\n", 10);
	put(root, "gemini", "", 0);	/* no program */
	snprintf(path, sizeof(path), "%s/claude", root);
	assert_int_equal(chmod(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/codex", root);
	mkdir(path, 0755);		/* a directory is none */
	snprintf(dirs, sizeof(dirs), "/nonexistent::%s", root);
	assert_int_equal(inventory_find(INVENTORY_HARNESSES, dirs), 1);
	assert_string_equal(inventory_name(INVENTORY_HARNESSES, 0), "claude");
	assert_int_equal(inventory_find(INVENTORY_HARNESSES, ""), 0);
	assert_null(inventory_name(INVENTORY_ENGINES, 3));
	assert_null(inventory_name(INVENTORY_LISTS, 0));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_serial_adapter, setup, teardown),
		cmocka_unit_test_setup_teardown(what_a_device_says_is_text_and_bounded, setup, teardown),
		cmocka_unit_test_setup_teardown(many_devices_are_counted, setup, teardown),
		cmocka_unit_test_setup_teardown(b114_forwarded_devices_are_left_out, setup, teardown),
		cmocka_unit_test_setup_teardown(nothing_there, setup, teardown),
		cmocka_unit_test_setup_teardown(programs_are_found_by_name, setup, teardown),
		cmocka_unit_test(ports),
		cmocka_unit_test(groups_and_fields),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
