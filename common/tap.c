#include "common/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/netns.h"

#define DEV	"/dev/net/tun"

#ifndef IFF_TUN_EXCL
#define IFF_TUN_EXCL	0x8000
#endif

int
tap_init(struct tap_maker *maker, uint32_t first, uint32_t count)
{
	*maker = (struct tap_maker){ .control = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE), .first = first,
		.count = count };
	return maker->control < 0 ? -errno : netns_self(&maker->dev, &maker->ino);
}

static size_t
put(uint8_t *buf, size_t at, uint16_t type, const void *data, size_t len)
{
	const struct rtattr head = { .rta_len = (uint16_t)(RTA_LENGTH(0) + len), .rta_type = type };

	memset(buf + at, 0, RTA_SPACE(len));
	memcpy(buf + at, &head, sizeof(head));
	memcpy(buf + at + RTA_LENGTH(0), data, len);
	return at + RTA_SPACE(len);
}

size_t
tap_request(uint8_t buf[TAP_REQUEST_MAX], uint32_t index, const struct tap_wish *wish)
{
	struct {
		struct nlmsghdr head;
		struct ifinfomsg link;
	} m = { .head = { .nlmsg_type = RTM_NEWLINK, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK },
		.link = { .ifi_family = AF_UNSPEC, .ifi_index = (int)index, .ifi_flags = IFF_UP, .ifi_change = IFF_UP } };
	const uint32_t queue = wish->offload ? TAP_QUEUE : TAP_QUEUE_PLAIN;
	size_t n = sizeof(m);

	n = put(buf, n, IFLA_NET_NS_FD, &wish->netns, sizeof(wish->netns));
	n = put(buf, n, IFLA_IFNAME, wish->name, strlen(wish->name) + 1);
	n = put(buf, n, IFLA_ADDRESS, wish->mac, TAP_MAC);
	n = put(buf, n, IFLA_MTU, &wish->mtu, sizeof(wish->mtu));
	n = put(buf, n, IFLA_TXQLEN, &queue, sizeof(queue));
	m.head.nlmsg_len = (uint32_t)n;
	memcpy(buf, &m, sizeof(m));
	return n;
}

/* Sends it and reads the answer, which is there when send() returns. */
static int
ask(int control, const uint8_t *request, size_t len)
{
	struct {
		struct nlmsghdr head;
		struct nlmsgerr err;
		uint8_t rest[1024];
	} ans;
	ssize_t n;

	while (recv(control, &ans, sizeof(ans), MSG_DONTWAIT) > 0)	/* of an earlier one that was interrupted */
		;
	if (send(control, request, len, 0) != (ssize_t)len)
		return -errno;
	n = recv(control, &ans, sizeof(ans), MSG_DONTWAIT);
	if (n < 0)
		return -errno;
	return (size_t)n < sizeof(ans.head) + sizeof(ans.err.error) || ans.head.nlmsg_type != NLMSG_ERROR ? -EBADMSG : ans.err.error;
}

static int
set_offload(int fd, unsigned features)
{
	int little = 1, size = TAP_VNET_HDR;

	if ((features & IFF_VNET_HDR) == 0 || ioctl(fd, TUNSETVNETHDRSZ, &size) < 0 || ioctl(fd, TUNSETVNETLE, &little) < 0 ||
	    ioctl(fd, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) < 0)
		return -EOPNOTSUPP;
	return 0;
}

static int
make(int control, int fd, const struct tap_wish *wish)
{
	struct ifreq ifr = { .ifr_flags = (short)(IFF_TAP | IFF_NO_PI | IFF_TUN_EXCL | (wish->offload ? IFF_VNET_HDR : 0)) };
	uint8_t buf[TAP_REQUEST_MAX];
	unsigned features = 0;
	uint32_t number;
	int r;

	if (ioctl(fd, TUNGETFEATURES, &features) < 0)
		features = 0;
	if (wish->offload && (features & IFF_VNET_HDR) == 0)
		return -EOPNOTSUPP;
	if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
		return -EIO;
	/* Ours, whatever it will be called there: EXCL refuses one that exists, where TUNSETIFF alone would open it. */
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "ewt%08x", number);
	if (ioctl(fd, TUNSETIFF, &ifr) < 0)
		return -errno;
	r = wish->offload ? set_offload(fd, features) : 0;
	if (r == 0 && ioctl(control, SIOCGIFINDEX, &ifr) < 0)
		r = -errno;
	return r < 0 ? r : ask(control, buf, tap_request(buf, (uint32_t)ifr.ifr_ifindex, wish));
}

int
tap_make(const struct tap_maker *maker, const struct tap_wish *wish)
{
	_cleanup_close_ int fd = -1;
	uid_t owner;
	int r = netns_owner(wish->netns, maker->dev, maker->ino, &owner);

	if (r < 0 || owner - maker->first >= maker->count)
		return -EPERM;
	fd = open(DEV, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ENODEV : -errno;
	r = make(maker->control, fd, wish);
	return r < 0 ? r : take_fd(&fd);
}
