/*
 * What is known of vhci_hcd's ports: the status files, the ledger, and which port is ours.
 * B112 (ports were not counted before a job was accepted): status files of one and several controllers, cut off, with columns that are
 * not known, with a port in error. B115 (a port that outlives a crash): ours, a foreign one of the same device, one that the
 * kernel does not show yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/usbledger.h"
#include "tests/unit/unit.h"

#define HEAD	"hub port sta spd dev      sockfd local_busid\n"

static const char one[] = HEAD
    "hs  0000 006 003 00010002 000700 1-1\n"
    "hs  0001 004 000 00000000 000000 0-0\n"
    "hs  0002 005 000 00000000 000000 0-0\n"
    "ss  0003 007 000 00000000 000000 0-0\n";

static struct vhci_port ports[8];

static int
parse(const char *text, uint32_t controller, size_t *n)
{
	return vhci_parse(text, controller, ports, 8, n);
}

static void
test_status(void **state)
{
	size_t n = 0;

	assert_int_equal(parse(one, 0, &n), 0);
	assert_int_equal(n, 4);
	assert_int_equal(ports[0].state, VHCI_USED);
	assert_int_equal(ports[0].devid, 0x10002);
	assert_int_equal(ports[0].sockfd, 700);
	assert_int_equal(ports[0].bus, 1);
	assert_int_equal(ports[0].place, 1);
	assert_int_equal(ports[3].hub, VHCI_SUPER);
	assert_int_equal(ports[3].state, VHCI_ERROR);
	/* A second controller's are behind them; there must be room. */
	assert_int_equal(parse(HEAD "hs  0030 004 000 00000000 000000 0-0\n", 1, &n), 0);
	assert_int_equal(ports[4].controller, 1);
	assert_int_equal(ports[4].port, 30);
	assert_int_equal(parse(one, 2, &n), -ENOSPC);
}

static void
test_b112_strange_status(void **state)
{
	static const char *const bad[] = {
		"", "hs  0000 004 000 00000000 000000 0-0\n", HEAD "hs  0000 004 000 00000000 000000 0-0",
		HEAD "hs  0000 004 000 00000000 000000\n", HEAD "hs  0000 004 000 00000000 000000 0-0 new\n",
		HEAD "us  0000 004 000 00000000 000000 0-0\n", HEAD "hs  -001 004 000 00000000 000000 0-0\n",
		HEAD "hs  0000 004 000 0000000 000000 0-0\n", HEAD "hs  0000 004 000 0000000g 000000 0-0\n",
		HEAD "hs  0000 004 000 00000000 000000 00\n", HEAD "hs  0000 006 003 00010002 000700 0-0\n",
		HEAD "hs  9999999999 004 000 00000000 000000 0-0\n",
	};
	char cut[sizeof(one)];
	size_t n;

	for (size_t i = 0; i < COUNT(bad); i++) {
		n = 0;
		assert_int_equal(parse(bad[i], 0, &n), -EBADMSG);
	}
	/* Cut off anywhere but behind a line it is refused. */
	for (size_t i = 0; i < sizeof(one) - 1; i++) {
		n = 0;
		snprintf(cut, sizeof(cut), "%.*s", (int)i, one);
		assert_int_equal(parse(cut, 0, &n), i > 0 && one[i - 1] == '\n' ? 0 : -EBADMSG);
	}
}

static void
test_speeds(void **state)
{
	enum vhci_hub hub;
	uint32_t speed;

	for (uint32_t s = 0; s < 9; s++)
		assert_int_equal(vhci_hub_of(s, &hub, &speed), s == 0 || s == 4 || s > 6 ? -EINVAL : 0);
	assert_int_equal(vhci_hub_of(3, &hub, &speed), 0);
	assert_int_equal(hub, VHCI_HIGH);
	assert_int_equal(vhci_hub_of(6, &hub, &speed), 0);
	assert_int_equal(hub, VHCI_SUPER);
	assert_int_equal(speed, 5);
}

static void
test_b115_ledger(void **state)
{
	static struct usbledger l, again;
	char dir[] = "/tmp/edgeward-unit-XXXXXX", path[64];
	int fd = open(mkdtemp(dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct usb_slot *s;
	size_t n = 0;

	assert_int_equal(usbledger_open(&l, fd, "usb", MONOTIME_NEVER), 0);
	assert_int_equal(parse(one, 0, &n), 0);
	s = usbledger_take(&l);
	assert_non_null(s);
	*s = (struct usb_slot){ USB_THERE, 0, 0x10002, 700, monotime_add_ms(monotime_now(), 60000) };
	assert_int_equal(usbledger_keep(&l, s), 0);
	assert_ptr_equal(usbledger_find(&l, 0), s);
	assert_null(usbledger_find(&l, 1));
	assert_int_equal(usbledger_is_ours(s, ports, n, NULL), 1);
	/* The next process knows it, and that it is not its own. */
	assert_int_equal(usbledger_open(&again, fd, "usb", MONOTIME_NEVER), 1);
	assert_int_equal(again.slots[0].state, USB_STALE);
	assert_int_equal(again.slots[0].mark, 700);
	assert_int_equal(usbledger_is_ours(&again.slots[0], ports, n, NULL), 1);
	/* The same device on the same port, attached by another: the mark tells. Free; not shown yet; no such port. */
	ports[0].sockfd = 3;
	assert_int_equal(usbledger_is_ours(s, ports, n, NULL), 0);
	s->port = 1;
	assert_int_equal(usbledger_is_ours(s, ports, n, NULL), 0);
	s->port = 2;
	assert_int_equal(usbledger_is_ours(s, ports, n, NULL), 0);	/* it was there, and another begins */
	s->state = USB_WAITING;
	assert_int_equal(usbledger_is_ours(s, ports, n, NULL), -EAGAIN);
	s->port = 3;
	assert_int_equal(usbledger_is_ours(s, ports, n, NULL), -EAGAIN);
	s->port = 99;
	assert_int_equal(usbledger_is_ours(s, ports, n, NULL), 0);
	/* One that was given up is nobody's to ask for. One that is free is given out again, and its row is gone. */
	assert_ptr_equal(usbledger_find(&l, 99), s);
	s->until = MONOTIME_NEVER;
	assert_null(usbledger_find(&l, 99));
	assert_true(usbledger_busy(&l));
	s->state = USB_FREE;
	assert_false(usbledger_busy(&l));
	assert_int_equal(usbledger_keep(&l, s), 0);
	assert_ptr_equal(usbledger_take(&l), s);
	assert_int_equal(usbledger_open(&again, fd, "usb", MONOTIME_NEVER), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/usb", dir);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

static void
test_ledger_of_rubbish(void **state)
{
	static struct usbledger l;
	char dir[] = "/tmp/edgeward-unit-XXXXXX", path[64];
	int fd;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/usb", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(fd, "this is no ledger, and it is cut off", 36), 36);
	close(fd);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(usbledger_open(&l, fd, "usb", MONOTIME_NEVER), 0);
	/* A link is not followed. */
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink("/etc/passwd", path), 0);
	assert_int_equal(usbledger_open(&l, fd, "usb", MONOTIME_NEVER), -ELOOP);
	close(fd);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_status), cmocka_unit_test(test_b112_strange_status), cmocka_unit_test(test_speeds),
		cmocka_unit_test(test_b115_ledger), cmocka_unit_test(test_ledger_of_rubbish),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
