/*
 * usbdrv: stands in for workerd at privhelper, with made-up USB devices behind the sockets it gets. For tests/vm/usb.sh.
 *
 *   usbdrv [SOCKET [ROLE]] commands on stdin, one answer line each on stdout:
 *   attach KIND SPEED      disk, keyboard, both (a disk with a keyboard beside it), net, odd (class ff, and a driver makes a network adapter
 *                          of it), printer (the same of class 07), remote (class ff; a driver makes an input device of it), slow (never
 *                          answers), junk (bad descriptors)
 *   detach PORT            drop PORT: closes our end and says nothing to privhelper
 *   grants PORT N          asks N times for its nodes, for two runners by turns: "granted COUNT"
 *   send HEX               a record as it stands; "ended" when that costs the channel
 *
 *   usbdrv foreign PORT    as root: attaches a disk there itself, as any other tool would; serves it until it is killed
 *
 * "attach" answers "attached PORT" or "refused ERRNO USED PORTS", and later, when privhelper tells, comes the line
 * "device PORT OUTCOME BUS DEV INTERFACES AUTHORIZED CLASS". Each device is a child that serves its socket until that ends.
 * The disk is 2 MiB; sector N begins with "sector N of the test disk".
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/ipc/ipc.h"
#include "proto/ipc/priv.h"

#define SECTORS	4096u

static const uint8_t dev_desc[18] = { 18, 1, 0, 2, 0, 0, 0, 64, 0x66, 0x66, 1, 0, 0, 1, 1, 2, 3, 1 };
static const uint8_t odd_desc[18] = { 18, 1, 0, 2, 0, 0, 0, 64, 0x25, 0x05, 0xa2, 0xa4, 0, 1, 1, 2, 3, 1 };	/* cdc_subset's */
static const uint8_t remote_desc[18] = { 18, 1, 0, 2, 0, 0, 0, 64, 0x71, 0x04, 2, 6, 0, 1, 1, 2, 3, 1 };	/* ati_remote2's */
static const uint8_t qualifier[10] = { 10, 6, 0, 2, 0, 0, 0, 64, 1, 0 };
#define DISK_IF(n)	9, 4, n, 0, 2, 8, 6, 0x50, 0, 7, 5, 0x81, 2, 0, 2, 0, 7, 5, 2, 2, 0, 2, 0
#define KEYS_IF(n)	9, 4, n, 0, 1, 3, 1, 1, 0, 9, 0x21, 0x11, 1, 0, 1, 0x22, 63, 0, 7, 5, 0x83, 3, 8, 0, 10
static const uint8_t disk_conf[] = { 9, 2, 32, 0, 1, 1, 0, 0xc0, 1, DISK_IF(0) };
static const uint8_t keyboard_conf[] = { 9, 2, 34, 0, 1, 1, 0, 0xc0, 1, KEYS_IF(0) };
static const uint8_t both_conf[] = { 9, 2, 57, 0, 2, 1, 0, 0xc0, 1, DISK_IF(0), KEYS_IF(1) };
#define ODD(class)	9, 2, 32, 0, 1, 1, 0, 0xc0, 1, 9, 4, 0, 0, 2, class, 0, 0, 0, 7, 5, 0x81, 2, 0, 2, 0, 7, 5, 2, 2, 0, 2, 0
static const uint8_t odd_conf[] = { ODD(0xff) }, printer_conf[] = { ODD(7) };
/* Its driver takes interface 0 and claims 1, which must be let in before. */
static const uint8_t remote_conf[] = { 9, 2, 41, 0, 2, 1, 0, 0xc0, 1, 9, 4, 1, 0, 1, 0xff, 0, 0, 0, 7, 5, 0x83, 3, 8, 0, 10,
	9, 4, 0, 0, 1, 0xff, 0, 0, 0, 7, 5, 0x84, 3, 8, 0, 10 };
static const uint8_t net_conf[] = { 9, 2, 41, 0, 2, 1, 0, 0xc0, 1, 9, 4, 0, 0, 1, 2, 2, 0xff, 0, 7, 5, 0x83, 3, 8, 0, 10,
	9, 4, 1, 0, 1, 10, 0, 0, 0, 7, 5, 0x81, 2, 0, 2, 0 };
static const uint8_t junk_conf[] = { 9, 2, 32, 0, 1, 1, 0, 0xc0, 1, 9, 4, 0, 0, 2, 8, 6, 0x50, 0, 1, 5, 0x81, 2, 0, 2, 0, 7, 5, 2, 2, 0, 2, 0 };

static struct kind {
	const char *name;
	const uint8_t *dev, *conf;
	size_t len;
} kinds[] = {
#define KIND(name, dev)	{ #name, dev, name ## _conf, sizeof(name ## _conf) }
	KIND(disk, dev_desc), KIND(keyboard, dev_desc), KIND(both, dev_desc), KIND(net, dev_desc), KIND(odd, odd_desc), KIND(remote, remote_desc),
	KIND(printer, odd_desc), KIND(junk, dev_desc), { "slow", NULL, NULL, 0 },
};

static struct {
	uint8_t tag[4], answer[64], *data;
	uint32_t len, at, want;
	uint8_t status;
	enum { CBW, IN, OUT, CSW } phase;
} bot;		/* bulk-only transport */
static uint8_t disk[SECTORS * 512], buf[1 << 20];

static int
read_all(int fd, void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = read(fd, (uint8_t *)p + at, n - at);

		if (r <= 0)
			return -1;
		at += (size_t)r;
	}
	return 0;
}

static int
write_all(int fd, const void *p, size_t n)
{
	return write(fd, p, n) == (ssize_t)n ? 0 : -1;
}

/* The answer to a control request in buf; its length, or -32 (stall). */
static int
control(const struct kind *k, const uint8_t *s, uint32_t want)
{
	static const uint8_t langs[4] = { 4, 3, 9, 4 }, name[10] = { 10, 3, 'E', 0, 'd', 0, 'g', 0, 'e', 0 }, zero[2];
	const void *src = NULL;
	size_t len = 0;

	if (s[0] == 0x80 && s[1] == 6 && s[3] == 1)
		src = k->dev, len = sizeof(dev_desc);
	else if (s[0] == 0x80 && s[1] == 6 && s[3] == 2)
		src = k->conf, len = k->len;
	else if (s[0] == 0x80 && s[1] == 6 && s[3] == 6)
		src = qualifier, len = sizeof(qualifier);
	else if (s[0] == 0x80 && s[1] == 6 && s[3] == 3)
		src = s[2] == 0 ? langs : name, len = s[2] == 0 ? sizeof(langs) : sizeof(name);
	else if (s[0] == 0xa1 && s[1] == 0xfe)		/* the last LUN */
		src = zero, len = 1;
	else if (s[0] == 0x80 && s[1] == 0)
		src = zero, len = 2;
	else if ((s[0] & 0x80) == 0)
		return 0;
	if (src == NULL)
		return -32;
	len = len < want ? len : want;
	memcpy(buf, src, len);
	return (int)len;
}

static void
command(const uint8_t *c)
{
	const uint8_t *k = c + 15;
	uint32_t sector = (uint32_t)k[2] << 24 | (uint32_t)k[3] << 16 | (uint32_t)k[4] << 8 | k[5], count = (uint32_t)k[7] << 8 | k[8];
	uint32_t last = htonl(SECTORS - 1), size = htonl(512);

	memset(&bot, 0, sizeof(bot));
	memcpy(bot.tag, c + 4, 4);
	bot.want = c[8] | (uint32_t)c[9] << 8 | (uint32_t)c[10] << 16 | (uint32_t)c[11] << 24;
	bot.data = bot.answer;
	switch (k[0]) {
	case 0x12: memcpy(bot.answer, "\0\x80\5\2\x1f\0\0\0Edgeward TestDisk        1.0 ", 36); bot.len = 36; break;
	case 0x25: memcpy(bot.answer, &last, 4); memcpy(bot.answer + 4, &size, 4); bot.len = 8; break;
	case 0x1a: bot.answer[0] = 3; bot.len = 4; break;
	case 0x03: bot.answer[0] = 0x70; bot.answer[7] = 10; bot.len = 18; break;
	case 0x28: case 0x2a:
		if (sector < SECTORS && count <= SECTORS - sector)
			bot.data = disk + sector * 512, bot.len = count * 512;
		else
			bot.status = 1;
		break;
	case 0x00: case 0x1e: case 0x1b: case 0x35: break;
	default: bot.status = 1;
	}
	if (bot.len > bot.want)
		bot.len = bot.want;
	bot.phase = bot.want == 0 ? CSW : (c[12] & 0x80) != 0 ? IN : OUT;
}

/* One bulk transfer; its length, or -32. */
static int
bulk(bool in, uint32_t len)
{
	uint32_t n = bot.len - bot.at < len ? bot.len - bot.at : len, left = bot.want - bot.len;

	if (!in && bot.phase == CBW && len == 31) {
		command(buf);
		return 31;
	}
	if (!in && bot.phase == OUT) {
		memcpy(bot.data + bot.at, buf, n);
		n = len;
	} else if (in && bot.phase == IN) {
		memcpy(buf, bot.data + bot.at, n);
	} else if (in && bot.phase == CSW) {
		memcpy(buf, "USBS", 4);
		memcpy(buf + 4, bot.tag, 4);
		memcpy(buf + 8, &left, 4);
		buf[12] = bot.status;
		bot.phase = CBW;
		return 13;
	} else {
		return -32;
	}
	bot.at += n;
	if (bot.at >= bot.len)
		bot.phase = CSW;
	return (int)n;
}

/* An interrupt endpoint has nothing to say: its requests wait until they are taken back. */
static void
serve(int fd, const struct kind *k)
{
	uint32_t h[12];

	signal(SIGPIPE, SIG_IGN);
	for (uint32_t i = 0; i < SECTORS; i++)
		snprintf((char *)disk + (size_t)i * 512, 512, "sector %u of the test disk\n", i);
	while (read_all(fd, h, sizeof(h)) == 0) {
		uint32_t r[12] = { htonl(3), h[1] }, len = ntohl(h[6]);
		bool in = ntohl(h[3]) == 1;
		int n;

		if (ntohl(h[0]) == 2) {		/* CMD_UNLINK */
			r[0] = htonl(4);
			r[5] = htonl((uint32_t)-ECONNRESET);
			write_all(fd, r, sizeof(r));
			continue;
		}
		if (ntohl(h[0]) != 1 || len > sizeof(buf) || (!in && len > 0 && read_all(fd, buf, len) < 0))
			return;
		if (k->conf == NULL || ntohl(h[4]) >= 3)
			continue;
		n = ntohl(h[4]) == 0 ? control(k, (uint8_t *)(h + 10), len) : bulk(in, len);
		r[5] = htonl(n < 0 ? (uint32_t)n : 0);
		r[6] = htonl(n < 0 ? 0 : (uint32_t)n);
		if (write_all(fd, r, sizeof(r)) < 0 || (in && n > 0 && write_all(fd, buf, (size_t)n) < 0))
			return;
	}
}

static int chan;
static uint32_t ids;
static struct { uint32_t port; pid_t pid; bool ready; } children[64];
static unsigned nchildren;

static void
die(const char *what)
{
	fprintf(stderr, "usbdrv: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void
say(uint16_t type, uint32_t id, const void *data, uint32_t len)
{
	struct { struct ipc_hdr hdr; uint8_t data[64]; } m = { .hdr = { .type = type, .version = IPC_VERSION, .len = len, .id = id } };

	memcpy(m.data, data, len);
	if (send(chan, &m, sizeof(m.hdr) + len, MSG_NOSIGNAL) < 0)
		die("send");
}

/* One record; events are printed. Its type, 0 at the end of the channel. */
static unsigned
hear(struct ipc_hdr *hdr, uint8_t data[512], int *ret_fd)
{
	union { struct cmsghdr align; char room[CMSG_SPACE(sizeof(int))]; } ctl;
	struct iovec iov[2] = { { hdr, sizeof(*hdr) }, { data, 512 } };
	struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2, .msg_control = ctl.room, .msg_controllen = sizeof(ctl.room) };
	struct priv_usb_device d;

	*ret_fd = -1;
	if (recvmsg(chan, &mh, MSG_CMSG_CLOEXEC) < (ssize_t)sizeof(*hdr))
		return 0;
	if (mh.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(ret_fd, CMSG_DATA(CMSG_FIRSTHDR(&mh)), sizeof(int));
	if (hdr->type == PRIV_EV_USB_DEVICE) {
		static const char *const outcomes[] = { "?", "ready", "unauthorized", "gone", "timeout" };

		memcpy(&d, data, sizeof(d));
		for (unsigned i = 0; i < nchildren; i++)
			children[i].ready = children[i].ready || children[i].port == d.port;
		printf("device %u %s %u %u %u %u %02x\n", d.port, outcomes[d.outcome <= 4 ? d.outcome : 0], d.bus, d.dev, d.interfaces,
		    d.authorized, d.refused_class);
	}
	if (hdr->type == PRIV_EV_PEER)
		close(*ret_fd);
	return hdr->type;
}

static bool
wait_for(uint16_t type, struct ipc_hdr *hdr, uint8_t data[512], int *ret_fd)
{
	unsigned got;

	while ((got = hear(hdr, data, ret_fd)) != type)
		if (got == 0)
			return false;
	return true;
}

static void
attach(const char *name, uint32_t speed)
{
	struct priv_usb_attach req = { .devid = 0x10002 + nchildren, .speed = speed };
	struct priv_usb_attached a;
	struct ipc_hdr hdr;
	uint8_t data[512];
	int fd, k = 0;

	while (k < (int)(sizeof(kinds) / sizeof(kinds[0])) - 1 && strcmp(kinds[k].name, name) != 0)
		k++;
	say(PRIV_REQ_USB_ATTACH, ++ids, &req, sizeof(req));
	if (!wait_for(PRIV_ANS_USB_ATTACH, &hdr, data, &fd)) {
		printf("ended\n");
		return;
	}
	memcpy(&a, data, sizeof(a));
	if (hdr.status != 0) {
		printf("refused %s %u %u\n", strerrorname_np(-hdr.status), a.used, a.ports);
		return;
	}
	children[nchildren].port = a.port;
	children[nchildren].pid = fork();
	if (children[nchildren].pid == 0) {
		close(chan);
		fclose(stdin);		/* what is left in its buffer is not this one's */
		serve(fd, &kinds[k]);
		_exit(0);
	}
	nchildren++;
	close(fd);
	printf("attached %u\n", a.port);
}

static void
detach(uint32_t port)
{
	struct priv_usb_detach req = { .port = port };
	struct ipc_hdr hdr;
	uint8_t data[512];
	int fd;

	say(PRIV_REQ_USB_DETACH, ++ids, &req, sizeof(req));
	if (wait_for(PRIV_ANS_USB_DETACH, &hdr, data, &fd))
		printf("detached %d\n", hdr.status);
	else
		printf("ended\n");
}

static void
grants(uint32_t port, unsigned n)
{
	unsigned granted = 0;
	struct ipc_hdr hdr;
	uint8_t data[512];
	int fd;

	for (unsigned i = 0; i < n; i++) {
		struct priv_usb_grant req = { .port = port, .slot = i % 2 };

		say(PRIV_REQ_USB_GRANT, ++ids, &req, sizeof(req));
		if (!wait_for(PRIV_ANS_USB_GRANT, &hdr, data, &fd)) {
			printf("ended\n");
			return;
		}
		granted += hdr.status == 0;
	}
	printf("granted %u\n", granted);
}

static void
raw(const char *text)
{
	uint8_t m[600], data[512];
	struct pollfd p = { chan, POLLIN, 0 };
	struct ipc_hdr hdr;
	size_t n = 0;
	int fd;

	for (; n < sizeof(m) && sscanf(text, "%2hhx", &m[n]) == 1; text += 2)
		n++;
	if (send(chan, m, n, MSG_NOSIGNAL) < 0)
		die("send");
	while (poll(&p, 1, 5000) > 0)
		if (hear(&hdr, data, &fd) == 0) {
			printf("ended\n");
			exit(0);
		}
	printf("open\n");
}

/* As workerd does when privhelper is gone: what it was not told of it does not keep. */
static void
on_close(void)
{
	printf("closed\n");
	for (unsigned i = 0; i < nchildren; i++)
		if (!children[i].ready)
			kill(children[i].pid, SIGKILL);
}

static int
foreign(const char *port)
{
	FILE *f = fopen("/sys/devices/platform/vhci_hcd.0/attach", "we");
	int ends[2];

	if (f == NULL || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0 ||
	    fprintf(f, "%s %d %u 5", port, ends[0], 0x30004) < 0 || fclose(f) != 0)
		die("foreign");
	close(ends[0]);
	serve(ends[1], &kinds[0]);
	return 0;
}

static void
obey(char *line)
{
	char word[16];
	unsigned n, times;

	if (sscanf(line, "attach %15s %u", word, &n) == 2)
		attach(word, n);
	else if (sscanf(line, "detach %u", &n) == 1)
		detach(n);
	else if (sscanf(line, "grants %u %u", &n, &times) == 2)
		grants(n, times);
	else if (sscanf(line, "drop %u", &n) == 1)
		for (unsigned i = 0; i < nchildren; i++)
			if (children[i].port == n)
				kill(children[i].pid, SIGKILL);
	if (strncmp(line, "send ", 5) == 0)
		raw(line + 5);
}

int
main(int argc, char **argv)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct ipc_hello hello = { .pid = getpid(), .build = "usbdrv" };
	struct pollfd p[2] = { { 0, POLLIN, 0 }, { -1, POLLIN, 0 } };
	struct ipc_hdr hdr;
	uint8_t data[512];
	char line[1300];
	int fd;

	if (argc == 3 && strcmp(argv[1], "foreign") == 0)
		return foreign(argv[2]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	signal(SIGCHLD, SIG_IGN);
	hello.role = argc > 2 && strcmp(argv[2], "connectd") == 0 ? IPC_ROLE_CONNECTD : IPC_ROLE_WORKERD;
	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", argc > 1 ? argv[1] : "/run/edgeward/introduce.sock");
	chan = p[1].fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (chan < 0 || connect(chan, (struct sockaddr *)&sun, sizeof(sun)) < 0)
		die(sun.sun_path);
	say(IPC_HELLO, 0, &hello, sizeof(hello));
	if (!wait_for(IPC_HELLO, &hdr, data, &fd))
		die("no HELLO");
	printf("ready\n");
	while (poll(p, 2, -1) > 0) {
		if (p[1].revents != 0 && hear(&hdr, data, &fd) == 0)
			p[1].fd = -1, on_close();
		if (p[0].revents != 0) {
			if (fgets(line, sizeof(line), stdin) == NULL)
				break;
			obey(line);
		}
	}
	return 0;
}
