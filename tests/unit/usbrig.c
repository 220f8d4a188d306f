#include "tests/unit/usbrig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char top[64];
static struct loop *loop, *loop_before;
struct introducer in;
struct usb usb;
struct peer *nobody;
struct ipc_chan chan;
int peer;
const uint8_t disk[36] = { 18, 1, 0, 2, 0, 0, 0, 64, 0x34, 0x12, 0x78, 0x56, 0, 1, 0, 0, 0, 1,
	9, 2, 18, 0, 1, 1, 0, 0xc0, 1, 9, 4, 0, 0, 0, 8, 6, 0x50, 0 };

void
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

const char *
get(const char *name)
{
	static char text[2048];
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

void
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

int
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

int
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
int
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

int
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
unsigned
last_mark(void)
{
	unsigned port, fd, devid, speed;

	assert_int_equal(sscanf(get(HCD "/attach"), "%u %u %u %u", &port, &fd, &devid, &speed), 4);
	return fd;
}

void
turn_until(enum usb_state wanted)
{
	for (int i = 0; i < 200 && usb.ledger.slots[0].state != wanted; i++)
		assert_int_equal(loop_turn(loop, 50), 0);
	assert_int_equal(usb.ledger.slots[0].state, wanted);
}

void
show_used(unsigned mark, unsigned devid)
{
	char text[256];

	snprintf(text, sizeof(text), HEAD "hs  0000 006 003 %08x %06u 1-1\nhs  0001 006 003 00050005 000003 1-2\n"
	    "ss  0002 004 000 00000000 000000 0-0\n", devid, mark);
	PUT(HCD "/status", text);
}

/* As root, for mknod. What the kernel would show of a serial adapter that is also a disk. */
void
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

int
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

void
show_device(const uint8_t descriptors[36], const char *authorized)
{
	put(HCD "/usb1/1-1/descriptors", descriptors, sizeof(disk));
	PUT(HCD "/usb1/1-1/busnum", "1\n");
	PUT(HCD "/usb1/1-1/devnum", "2\n");
	PUT(HCD "/usb1/1-1/authorized", authorized);
	show_used(last_mark(), 0x10002);
}

void
show_disk(void)
{
	PUT(HCD "/usb1/1-1/bConfigurationValue", "1\n");
	PUT(HCD "/usb1/1-1/1-1:1.0/authorized", "0\n");
	show_device(disk, "0\n");
}

void
attach_disk(int *ret_end)
{
	struct priv_usb_attached a;

	assert_int_equal(ask_attach(0x10002, 3, &a, ret_end), 0);
	show_disk();
}

mode_t
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

int
lend_disk(uint32_t slot, struct priv_usb_granted *ret)
{
	int end;

	attach_disk(&end);
	turn_until(USB_THERE);
	show_nodes();
	assert_int_equal(ask_grant(0, slot, ret), 0);
	return end;
}
