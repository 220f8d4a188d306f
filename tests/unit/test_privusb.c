/*
 * privhelper's USB verbs in this process, on a made-up sysfs: files that say what the kernel would.
 * B112 (the device too many): counts and refusal, a port that another takes in between, no attach without a free port.
 * B115 (ports outlive a crash): the next process detaches what is its own and writes of no other port.
 * Nodes for workloads: made for the runner alone, followed as drivers come and go, gone with the device or with workerd.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "privhelper/rules.h"
#include "privhelper/usb.h"
#include "tests/unit/unit.h"

#define HEAD	"hub port sta spd dev      sockfd local_busid\n"
#define HCD	"sys/devices/platform/vhci_hcd.0"

static char top[64];
static struct loop *loop, *loop_before;
static struct introducer in;
static struct usb usb;
static struct peer *nobody;
static struct ipc_chan chan;
static int peer;
static const uint8_t disk[] = { 18, 1, 0, 2, 0, 0, 0, 64, 0x34, 0x12, 0x78, 0x56, 0, 1, 0, 0, 0, 1,
	9, 2, 18, 0, 1, 1, 0, 0xc0, 1, 9, 4, 0, 0, 0, 8, 6, 0x50, 0 };

static void
put(const char *name, const void *text, size_t len)
{
	char path[192];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), (ssize_t)len);
	close(fd);
}

#define PUT(name, text)	put(name, text, strlen(text))

static const char *
get(const char *name)
{
	static char text[1024];
	char path[192];
	int fd;
	ssize_t n;

	snprintf(path, sizeof(path), "%s/%s", top, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static int
no_filter(void)
{
	return 0;
}

static void
begin(const char *classes)
{
	char run[96], state[96], sys[96], dev[96];
	struct usb_conf conf = { .rundir = run, .statedir = state, .sysroot = sys, .devroot = dev, .classes = classes,
		.pool = { geteuid(), 2, getegid() } };

	snprintf(run, sizeof(run), "%s/run", top);
	snprintf(state, sizeof(state), "%s/state", top);
	snprintf(sys, sizeof(sys), "%s/sys", top);
	snprintf(dev, sizeof(dev), "%s/dev", top);
	assert_int_equal(usb_open(&usb, &conf), 0);
	loop_before = loop;
	assert_int_equal(loop_new(&loop), 0);
	assert_int_equal(usb_start(&usb, loop, &nobody, no_filter), 0);
	in = (struct introducer){ .usb = &usb };
}

static void
set_hubs(const char *value)
{
	PUT(HCD "/usb1/authorized_default", value);
	PUT(HCD "/usb1/interface_authorized_default", value);
	PUT(HCD "/usb2/authorized_default", value);
	PUT(HCD "/usb2/interface_authorized_default", value);
}

static int
setup(void **state)
{
	static const struct ipc_conf conf = { .max_payload = IPC_MAX_PRIV, .queue_max = 4096 };
	static const char *const dirs[] = { "dev", "run", "state", "sys", "sys/bus", "sys/bus/usb", "sys/devices", "sys/devices/platform", HCD,
		HCD "/usb1", HCD "/usb2", HCD "/usb1/1-1", HCD "/usb1/1-1/1-1:1.0" };
	char path[160];
	int ends[2];

	snprintf(top, sizeof(top), "/tmp/edgeward-unit-XXXXXX");
	assert_non_null(mkdtemp(top));
	for (size_t i = 0; i < COUNT(dirs); i++) {
		snprintf(path, sizeof(path), "%s/%s", top, dirs[i]);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	PUT("sys/bus/usb/drivers_probe", "");
	PUT(HCD "/attach", "");
	PUT(HCD "/detach", "");
	PUT(HCD "/status", HEAD "hs  0000 004 000 00000000 000000 0-0\nhs  0001 004 000 00000000 000000 0-0\n"
	    "ss  0002 004 000 00000000 000000 0-0\n");
	/* Files keep what is longer than what is written over it: as in sysfs one digit. */
	set_hubs("1");
	begin("ff 07 08");
	assert_int_equal(ipc_pair(65536, ends, NULL), 0);
	peer = ends[1];
	return ipc_chan_init(&chan, loop, ends[0], &conf);
}

static int
teardown(void **state)
{
	char command[96];

	ipc_chan_done(&chan);
	close(peer);
	loop_free(loop);
	if (loop_before != NULL)
		loop_free(loop_before);
	loop = loop_before = NULL;
	snprintf(command, sizeof(command), "rm -r %s", top);
	return system(command);
}

/* Asks; *ret_end is -1 unless there came a descriptor. The status. */
static int
ask_attach(uint32_t devid, uint32_t speed, struct priv_usb_attached *ret, int *ret_end)
{
	struct priv_usb_attach req = { devid, speed };
	struct ipc_msg msg = { .hdr = { .type = PRIV_REQ_USB_ATTACH, .id = 7, .len = sizeof(req) }, .data = (uint8_t *)&req };
	struct { struct ipc_hdr hdr; struct priv_usb_attached a; } ans;
	union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(int))]; } ctl;
	struct iovec iov = { &ans, sizeof(ans) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof(ctl) };
	int r = op_usb_attach(&chan, &msg, &in);

	*ret_end = -1;
	if (r < 0)
		return r;
	assert_int_equal(recvmsg(peer, &mh, MSG_CMSG_CLOEXEC), sizeof(ans));
	assert_int_equal(ans.hdr.type, PRIV_ANS_USB_ATTACH);
	assert_int_equal(ans.hdr.id, 7);
	if (mh.msg_controllen > 0)
		memcpy(ret_end, CMSG_DATA(CMSG_FIRSTHDR(&mh)), sizeof(int));
	*ret = ans.a;
	assert_int_equal(*ret_end >= 0, ans.hdr.status == 0);
	return ans.hdr.status;
}

static int
ask_detach(uint32_t port)
{
	struct priv_usb_detach req = { .port = port };
	struct ipc_msg msg = { .hdr = { .type = PRIV_REQ_USB_DETACH, .id = 8, .len = sizeof(req) }, .data = (uint8_t *)&req };
	struct ipc_hdr ans;
	int r = op_usb_detach(&chan, &msg, &in);

	if (r < 0)
		return r;
	assert_int_equal(recv(peer, &ans, sizeof(ans), 0), sizeof(ans));
	return ans.status;
}

/* What the kernel's status would show of the last attach. */
static unsigned
last_mark(void)
{
	unsigned port, fd, devid, speed;

	assert_int_equal(sscanf(get(HCD "/attach"), "%u %u %u %u", &port, &fd, &devid, &speed), 4);
	return fd;
}

static void
turn_until(enum usb_state wanted)
{
	for (int i = 0; i < 200 && usb.ledger.slots[0].state != wanted; i++)
		assert_int_equal(loop_turn(loop, 50), 0);
	assert_int_equal(usb.ledger.slots[0].state, wanted);
}

static void
show_used(unsigned mark, unsigned devid)
{
	char text[256];

	snprintf(text, sizeof(text), HEAD "hs  0000 006 003 %08x %06u 1-1\nhs  0001 006 003 00050005 000003 1-2\n"
	    "ss  0002 004 000 00000000 000000 0-0\n", devid, mark);
	PUT(HCD "/status", text);
}

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
	put(HCD "/usb1/1-1/descriptors", disk, sizeof(disk));
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", "0\n");
	PUT(HCD "/usb1/1-1/bConfigurationValue", "1\n");
	PUT(HCD "/usb1/1-1/1-1:1.0/authorized", "0\n");
	show_used(last_mark(), 0x10002);
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

/* As root, for mknod. What the kernel would show of a serial adapter that is also a disk. */
static void
show_nodes(void)
{
	static const char *const dirs[] = { "ttyUSB0", "ttyUSB0/tty", "ttyUSB0/tty/ttyUSB0", "host0", "host0/block", "host0/block/sda", "net", "net/eth9" };
	static const char *const links[][2] = { { "", "usb" }, { "/1-1:1.0/ttyUSB0/tty/ttyUSB0", "tty" }, { "/1-1:1.0/host0/block/sda", "block" },
		{ "/1-1:1.0/net/eth9", "net" } };
	char path[256], target[64];

	for (size_t i = 0; i < COUNT(dirs); i++) {
		snprintf(path, sizeof(path), "%s/" HCD "/usb1/1-1/1-1:1.0/%s", top, dirs[i]);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	for (size_t i = 0; i < COUNT(links); i++) {
		snprintf(path, sizeof(path), "%s/" HCD "/usb1/1-1%s/subsystem", top, links[i][0]);
		snprintf(target, sizeof(target), "../../class/%s", links[i][1]);
		assert_int_equal(symlink(target, path), 0);
	}
	PUT(HCD "/usb1/1-1/dev", "189:1\n");
	PUT(HCD "/usb1/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0/dev", "188:0\n");
	PUT(HCD "/usb1/1-1/1-1:1.0/host0/block/sda/dev", "8:0\n");
	PUT(HCD "/usb1/1-1/1-1:1.0/net/eth9/dev", "1:3\n");
}

static int
ask_grant(uint32_t port, uint32_t slot, struct priv_usb_granted *ret)
{
	struct priv_usb_grant req = { port, slot };
	struct ipc_msg msg = { .hdr = { .type = PRIV_REQ_USB_GRANT, .id = 9, .len = sizeof(req) }, .data = (uint8_t *)&req };
	struct { struct ipc_hdr hdr; struct priv_usb_granted g; } ans;
	int r = op_usb_grant(&chan, &msg, &in);

	if (r < 0)
		return r;
	assert_int_equal(recv(peer, &ans, sizeof(ans), 0), sizeof(ans));
	assert_int_equal(ans.hdr.type, PRIV_ANS_USB_GRANT);
	*ret = ans.g;
	assert_true(priv_usb_granted_ok(ret));
	return ans.hdr.status;
}

static void
attach_disk(int *ret_end)
{
	struct priv_usb_attached a;

	assert_int_equal(ask_attach(0x10002, 3, &a, ret_end), 0);
	put(HCD "/usb1/1-1/descriptors", disk, sizeof(disk));
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", "0\n");
	PUT(HCD "/usb1/1-1/bConfigurationValue", "1\n");
	PUT(HCD "/usb1/1-1/1-1:1.0/authorized", "0\n");
	show_used(last_mark(), 0x10002);
}

static mode_t
node(const char *name, dev_t *ret)
{
	struct stat st;
	char path[160];

	snprintf(path, sizeof(path), "%s/dev/edgeward/%s", top, name);
	if (lstat(path, &st) < 0)
		return 0;
	*ret = st.st_rdev;
	return st.st_mode;
}

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
	attach_disk(&end);
	turn_until(USB_THERE);
	show_nodes();
	assert_int_equal(ask_grant(0, 0, &g), 0);
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

/* The kernel's word on ports of which ours, 0, is free again. */
#define ALL_FREE	HEAD "hs  0000 004 000 00000000 000000 0-0\nhs  0001 004 000 00000000 000000 0-0\n" "ss  0002 004 000 00000000 000000 0-0\n"

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
	attach_disk(&end);
	turn_until(USB_THERE);
	show_nodes();
	assert_int_equal(ask_grant(0, 1, &g), 0);
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
	put(HCD "/usb1/1-1/descriptors", d, sizeof(d));
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", "0\n");
	show_used(last_mark(), 0x10002);
	turn_until(USB_THERE);
	assert_string_equal(get(HCD "/usb1/1-1/authorized"), "0\n");
	assert_string_equal(get("sys/bus/usb/drivers_probe"), "");
	close(end);
}

/* Somebody set the hub back while it was enumerated: the device was open for a moment. It goes. */
static void
test_already_open(void **state)
{
	struct priv_usb_attached a;
	int end;

	assert_int_equal(ask_attach(0x10002, 3, &a, &end), 0);
	put(HCD "/usb1/1-1/descriptors", disk, sizeof(disk));
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", "1\n");
	show_used(last_mark(), 0x10002);
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "0");
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
test_b115_answer_for_another(void **state)
{
	struct priv_usb_attached a;
	int first, second;

	assert_int_equal(ask_attach(0x10002, 3, &a, &first), 0);
	put(HCD "/usb1/1-1/descriptors", disk, sizeof(disk));
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", "1\n");	/* the thread says EPERM */
	show_used(last_mark(), 0x10002);
	turn_until(USB_ASKED);
	close(first);
	PUT(HCD "/status", ALL_FREE);
	assert_int_equal(ask_attach(0x10003, 3, &a, &second), 0);
	assert_int_equal(a.port, 0);
	PUT(HCD "/status", HEAD "hs  0000 005 000 00000000 000000 0-0\nhs  0001 004 000 00000000 000000 0-0\n"
	    "ss  0002 004 000 00000000 000000 0-0\n");
	turn_until(USB_FREE);
	assert_string_equal(get(HCD "/detach"), "");
	close(second);
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
	for (int i = 0; i < 5; i++)
		assert_int_equal(ask_detach(0), 0);
	for (p = get("state/privhelper/audit"); (p = strstr(p, "usb-detach port=0")) != NULL; p++)
		lines++;
	assert_int_equal(lines, 1);
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
	const struct CMUnitTest tests[] = { T(test_attach), T(test_grant), T(test_grant_ends), T(test_grant_replaced), T(test_keyboard), T(test_already_open), T(test_b112_full), T(test_refusals),
		T(test_pace), T(test_b115_sweep), T(test_b115_foreign),
		T(test_b115_answer_for_another), T(test_detach_repeated), T(test_nothing_lent_any_more), T(test_b88_directory), cmocka_unit_test(test_rules) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
