/*
 * privhelper's USB verbs: ports.
 * B112 (the device too many): counts and refusal, a port that another takes in between, no attach without a free port.
 * B115 (ports outlive a crash): the next process detaches what is its own and writes of no other port.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/unit/usbrig.h"

static void
test_attach(void **state)
{
	struct priv_usb_attached a;
	char expected[64];
	int end, n;

	assert_int_equal(ask_attach(0x10002, 3, &a, &end), 0);
	assert_int_equal(a.port, 0);
	assert_int_equal(a.ports, 2);
	assert_int_equal(a.used, 1);
	n = snprintf(expected, sizeof(expected), "0 %u 65538 3", last_mark());
	assert_memory_equal(get(HCD "/attach"), expected, (size_t)n);
	assert_true(last_mark() >= 512);
	/* Before that the hubs were shut. */
	assert_string_equal(get(HCD "/usb1/authorized_default"), "0");
	assert_string_equal(get(HCD "/usb2/interface_authorized_default"), "0");
	/* The kernel shows it: it is authorized, its interface too, and offered to the drivers. */
	show_disk();
	turn_until(USB_THERE);
	assert_memory_equal(get(HCD "/usb1/1-1/authorized"), "1", 1);
	assert_memory_equal(get(HCD "/usb1/1-1/1-1:1.0/authorized"), "1", 1);
	assert_string_equal(get("sys/bus/usb/drivers_probe"), "1-1:1.0");
	assert_non_null(strstr(get("state/privhelper/audit"), "usb-authorize port=0 device=1234:5678 interfaces=1 authorized=1"));
	/* Detached by its own port only. */
	assert_int_equal(ask_detach(1), 0);
	assert_string_equal(get(HCD "/detach"), "");
	assert_int_equal(ask_detach(0), 0);
	assert_string_equal(get(HCD "/detach"), "0");
	assert_int_equal(usb.ledger.slots[0].state, USB_FREE);
	close(end);
}

/* Somebody set the hub back while it was enumerated: the device was open for a moment. It goes. */
static void
test_already_open(void **state)
{
	struct priv_usb_attached a;
	int end;

	assert_int_equal(ask_attach(0x10002, 3, &a, &end), 0);
	show_device(disk, "1\n");
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "0");
	close(end);
}

/* The kernel makes these files one after the other, `descriptors` last: one that is not there yet is no word on the device. */
static void
test_descriptors_later(void **state)
{
	static const char *const late[] = { "authorized", "descriptors" };
	struct priv_usb_attached a;
	char path[160];
	int end;

	assert_int_equal(ask_attach(0x10002, 3, &a, &end), 0);
	show_disk();
	for (size_t i = 0; i < COUNT(late); i++) {
		snprintf(path, sizeof(path), "%s/" HCD "/usb1/1-1/%s", top, late[i]);
		assert_int_equal(unlink(path), 0);
		turn_until(USB_ASKED);
		turn_until(USB_WAITING);
		show_disk();
	}
	put(HCD "/usb1/1-1/descriptors", disk, 17);
	turn_until(USB_ASKED);
	turn_until(USB_WAITING);
	assert_null(strstr(get("state/privhelper/audit"), "usb-authorize"));
	show_disk();
	turn_until(USB_THERE);
	assert_non_null(strstr(get("state/privhelper/audit"), "usb-authorize port=0 device=1234:5678 interfaces=1 authorized=1"));
	close(end);
}

static void
test_descriptors_never(void **state)
{
	struct priv_usb_attached a;
	int end;

	assert_int_equal(ask_attach(0x10002, 3, &a, &end), 0);
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", "0\n");
	show_used(last_mark(), 0x10002);
	turn_until(USB_ASKED);
	turn_until(USB_WAITING);
	usb.ledger.slots[0].until = monotime_now();
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "0");
	assert_non_null(strstr(get("state/privhelper/audit"), "why=timeout"));
	assert_null(strstr(get("state/privhelper/audit"), "usb-authorize"));
	assert_memory_equal(get(HCD "/usb1/1-1/authorized"), "0", 1);
	close(end);
}

static void
test_b112_full(void **state)
{
	struct priv_usb_attached a;
	int end;

	PUT(HCD "/status", HEAD "hs  0000 006 003 00050005 000003 1-1\nhs  0001 005 000 00000000 000000 0-0\n"
	    "ss  0002 004 000 00000000 000000 0-0\n");
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -EBUSY);
	assert_int_equal(a.used, 2);
	assert_int_equal(a.ports, 2);
	assert_string_equal(get(HCD "/attach"), "");
	/* The other kind of hub has room. */
	assert_int_equal(ask_attach(0x10002, 6, &a, &end), 0);
	assert_int_equal(a.port, 2);
	close(end);
}

static void
test_refusals(void **state)
{
	static const struct priv_usb_attach bad[] = { { 0, 3 }, { 2, 3 }, { 0x10000, 3 }, { 0x10002, 0 }, { 0x10002, 4 }, { 0x10002, 7 },
		{ 0x10002, UINT32_MAX } };
	struct priv_usb_attached a;
	char path[160];
	int end;

	for (size_t i = 0; i < COUNT(bad); i++)
		assert_int_equal(ask_attach(bad[i].devid, bad[i].speed, &a, &end), -EPROTO);
	assert_int_equal(ask_detach(4096), -EPROTO);
	/* A hub that cannot be shut: nothing is attached. */
	snprintf(path, sizeof(path), "%s/" HCD "/usb2/interface_authorized_default", top);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -ENOENT);
	assert_int_equal(symlink("/dev/null", path), 0);
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -ELOOP);
	assert_int_equal(unlink(path), 0);
	PUT(HCD "/usb2/interface_authorized_default", "1");
	/* A status that is not understood. */
	PUT(HCD "/status", "something else\n");
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -EBADMSG);
	assert_string_equal(get(HCD "/attach"), "");
	/* Policy says no. */
	usb.permitted = false;
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -EPERM);
	/* No record, no verb. */
	usb.ready = false;
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -EIO);
	in.usb = NULL;
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -EIO);
	assert_int_equal(ask_detach(0), 0);
}

static void
test_pace(void **state)
{
	struct priv_usb_attached a;
	int end, r = 0;

	usb.permitted = false;
	for (int i = 0; i < 200 && r != -EAGAIN; i++)
		r = ask_attach(0x10002, 3, &a, &end);
	assert_int_equal(r, -EAGAIN);
}

static int64_t clock_ns;

static int64_t
mock_clock(void)
{
	return clock_ns;
}

/* How often text stands in the record. */
static unsigned
recorded(const char *text)
{
	unsigned n = 0;

	for (const char *p = get("state/privhelper/audit"); (p = strstr(p, text)) != NULL; p++)
		n++;
	return n;
}

/* The first refusal is on record at once, and all of them by and by; a flood of them makes one line of each kind in ten seconds. */
static void
test_refused_is_on_record(void **state)
{
	struct priv_usb_attached a;
	struct priv_usb_granted g;
	struct priv_tap tap = { .name = "eth1", .mac = { 2 }, .mtu = 1500 };
	struct ipc_msg msg = { .hdr = { .type = PRIV_REQ_TAP, .id = 9, .len = sizeof(tap), .nfds = 1 }, .data = (uint8_t *)&tap, .nfds = 1, .fds = { -1 } };
	struct ipc_hdr ans;
	int end;

	clock_ns = (int64_t)1000 * 1000000000;
	monotime_set_source(mock_clock, NULL);
	usb.pace.next = monotime_add_ms(monotime_now(), 1000000);
	assert_int_equal(ask_detach(1), 0);
	assert_int_equal(recorded("workerd pid="), 1);
	assert_int_equal(recorded(" usb-detach port=1 result=ENODEV times=1"), 1);
	for (int i = 0; i < 500; i++) {
		assert_int_equal(ask_detach(1), 0);
		assert_int_equal(ask_grant(1, 3, &g), -ENODEV);
		assert_int_equal(ask_attach(0x10002, 3, &a, &end), -EAGAIN);
		assert_int_equal(op_tap(&chan, &msg, &in), 0);
		assert_int_equal(recv(peer, &ans, sizeof(ans), 0), sizeof(ans));
		assert_int_equal(ans.status, -EPERM);
	}
	assert_int_equal(recorded("times="), 1);
	clock_ns += (int64_t)REFUSED_MS * 1000000;
	turn_until(USB_FREE);
	assert_int_equal(loop_turn(usb.loop, 0), 0);
	assert_int_equal(recorded("times="), 5);
	assert_int_equal(recorded(" usb-detach port=1 result=ENODEV times=500"), 1);
	assert_int_equal(recorded(" usb-grant port=1 slot=3 result=ENODEV times=500"), 1);
	assert_int_equal(recorded(" usb-attach devid=00010002 speed=3 result=EAGAIN times=500"), 1);
	assert_int_equal(recorded(" tap name=eth1 result=EPERM times=500"), 1);
	/* What is only counted when it ends is told then. */
	assert_int_equal(ask_detach(1), 0);
	assert_int_equal(recorded("times="), 5);
	usb_stop(&usb);
	assert_int_equal(recorded("times="), 6);
	monotime_set_source(NULL, NULL);
}

/* No record, no line, and no end of it either. */
static void
test_refused_without_a_record(void **state)
{
	usb.ready = false;
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask_detach(1), 0);
	usb.ready = true;
	usb_stop(&usb);
	assert_int_equal(recorded("times="), 0);
}

/* What was counted while the disk was full is told when there is room: who fills it hides nothing. */
static void
test_refused_while_the_disk_is_full(void **state)
{
	struct rlimit was, limit;

	clock_ns = (int64_t)1000 * 1000000000;
	monotime_set_source(mock_clock, NULL);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	limit = (struct rlimit){ strlen(get("state/privhelper/audit")), was.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(ask_detach(1), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	assert_int_equal(recorded("times="), 0);
	clock_ns += (int64_t)REFUSED_MS * 1000000;
	assert_int_equal(loop_turn(usb.loop, 0), 0);
	assert_int_equal(recorded(" usb-detach port=1 result=ENODEV times=3"), 1);
	usb_stop(&usb);
	assert_int_equal(recorded("times="), 1);
	monotime_set_source(NULL, NULL);
}

/* Nodes that cannot be made cost a line each time they are tried: no oftener than other verbs, for the first runner id too. */
static void
test_grant_that_fails_is_paced(void **state)
{
	struct priv_usb_granted g;
	int end;

	attach_disk(&end);
	turn_until(USB_THERE);
	clock_ns = monotime_now().ns;
	monotime_set_source(mock_clock, NULL);
	usb.grants.dir = -1;
	usb.grants.problem = -EPERM;
	usb.pace.next = monotime_add_ms(monotime_now(), -2 * PACE_MS);
	for (int i = 0; i < 20; i++)
		assert_true(ask_grant(0, 0, &g) < 0);
	assert_int_equal(recorded("usb-grant port=0 slot=0 nodes=0 result=EPERM"), 3);
	monotime_set_source(NULL, NULL);
	close(end);
}

static void
test_b115_sweep(void **state)
{
	struct priv_usb_attached a;
	int end;

	assert_int_equal(ask_attach(0x10002, 3, &a, &end), 0);
	show_used(last_mark(), 0x10002);
	/* kill -9 and a new start: port 0 is ours by its mark, port 1 is not in the ledger. */
	begin("ff 07 08");
	assert_int_equal(usb.ledger.slots[0].state, USB_STALE);
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "0");
	close(end);
}

static void
test_b115_foreign(void **state)
{
	struct priv_usb_attached a;
	int end;

	/* The same device on the same port, but attached by another since. */
	assert_int_equal(ask_attach(0x50005, 3, &a, &end), 0);
	show_used(4, 0x50005);
	begin("ff 07 08");
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "");
	close(end);
}

/*
 * While the thread is at a device that ends, its port goes to the next one. What the thread says of the first is no word on that: B115, no
 * port is touched that is not this row's.
 */
static void
answer_for_another(bool good)
{
	static struct peer asker, *there = &asker;
	struct { struct ipc_hdr hdr; uint8_t rest[128]; } told;
	struct priv_usb_attached a;
	int first, second;

	assert_int_equal(ask_attach(0x10002, 3, &a, &first), 0);
	if (good)
		show_disk();
	else
		show_device(disk, "1\n");	/* the thread says EPERM */
	turn_until(USB_ASKED);
	close(first);
	PUT(HCD "/status", ALL_FREE);
	assert_int_equal(ask_attach(0x10003, 3, &a, &second), 0);
	assert_int_equal(a.port, 0);
	PUT(HCD "/status", HEAD "hs  0000 005 000 00000000 000000 0-0\nhs  0001 004 000 00000000 000000 0-0\n"
	    "ss  0002 004 000 00000000 000000 0-0\n");
	asker.chan = chan;
	usb.asker = &there;
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "");
	/* Nothing is told of it: workerd would take it for the second one's, which has that port now. */
	while (recv(peer, &told, sizeof(told), MSG_DONTWAIT) > 0)
		assert_int_not_equal(told.hdr.type, PRIV_EV_USB_DEVICE);
	assert_ptr_equal(usbledger_find(&usb.ledger, 0), &usb.ledger.slots[1]);
	close(second);
}

static void
test_b115_answer_for_another(void **state)
{
	answer_for_another(false);
}

static void
test_b115_good_answer_for_another(void **state)
{
	answer_for_another(true);
}

/* The same while the thread is still at the first: a verb is for the one that has the port. */
static void
test_b115_verb_for_another(void **state)
{
	struct usb_slot *s = usb.ledger.slots;

	s[0] = (struct usb_slot){ .state = USB_ASKED, .port = 1, .devid = 0x10002, .mark = 600, .until = monotime_add_ms(monotime_now(), 1000) };
	assert_ptr_equal(usbledger_find(&usb.ledger, 1), &s[0]);
	s[1] = (struct usb_slot){ .state = USB_WAITING, .port = 1, .devid = 0x10003, .mark = 601, .until = s[0].until };
	assert_ptr_equal(usbledger_find(&usb.ledger, 1), &s[1]);
	s[2] = s[0];
	s[0].state = USB_FREE;
	assert_ptr_equal(usbledger_find(&usb.ledger, 1), &s[1]);
}

/* Detached while the thread is at it, again and again: one line of that, however often it is asked for. */
static void
test_detach_repeated(void **state)
{
	struct priv_usb_attached a;
	const char *p;
	int end, lines = 0;

	assert_int_equal(ask_attach(0x10002, 3, &a, &end), 0);
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", "0\n");
	show_used(last_mark(), 0x10002);
	turn_until(USB_ASKED);
	for (int i = 0; i < 5; i++) {
		assert_int_equal(ask_detach(0), 0);
		usb_asker_gone(&usb);	/* it connects anew */
	}
	for (p = get("state/privhelper/audit"); (p = strstr(p, "usb-detach port=0 devid")) != NULL; p++)
		lines++;
	assert_int_equal(lines, 1);
	close(end);
}

/* A directory that others may write to: no verb, and the introduction goes on. */
static void
test_b88_directory(void **state)
{
	struct priv_usb_attached a;
	char path[160];
	int end;

	snprintf(path, sizeof(path), "%s/state/privhelper", top);
	assert_int_equal(chmod(path, 0777), 0);
	begin("ff 07 08");
	assert_false(usb.ready);
	assert_int_equal(ask_attach(0x10002, 3, &a, &end), -EIO);
}

static void
test_rules(void **state)
{
	const struct priv_table *c = &priv_tables[SIDE_CONNECTD], *w = &priv_tables[SIDE_WORKERD], *e = &priv_tables[SIDE_EITHER];

	assert_int_equal(c->n, 1);
	assert_int_equal(e->n, 1);
	assert_int_equal(c->rules[0].type, IPC_HELLO);
	assert_int_equal(w->n, 5);
	assert_int_equal(w->rules[1].min, sizeof(struct priv_usb_attach));
	assert_int_equal(w->rules[1].max, sizeof(struct priv_usb_attach));
	assert_int_equal(w->rules[2].min, sizeof(struct priv_usb_detach));
	assert_int_equal(w->rules[2].max, sizeof(struct priv_usb_detach));
	assert_int_equal(w->rules[3].min, sizeof(struct priv_usb_grant));
	assert_int_equal(w->rules[3].max, sizeof(struct priv_usb_grant));
	for (size_t i = 1; i < w->n; i++) {
		assert_int_equal(w->rules[i].states, IPC_ST_OPEN);
		assert_int_equal(w->rules[i].max_fds, w->rules[i].type == PRIV_REQ_TAP ? 1 : 0);
	}
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_attach), T(test_already_open), T(test_descriptors_later), T(test_descriptors_never), T(test_b112_full), T(test_refusals), T(test_pace), T(test_refused_is_on_record), T(test_refused_without_a_record),
		T(test_refused_while_the_disk_is_full), T(test_grant_that_fails_is_paced), T(test_b115_sweep),
		T(test_b115_foreign), T(test_b115_answer_for_another), T(test_b115_good_answer_for_another), T(test_b115_verb_for_another), T(test_detach_repeated), T(test_b88_directory),
		T(test_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
