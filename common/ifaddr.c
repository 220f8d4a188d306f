#include "common/ifaddr.h"

#include <errno.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/cleanup.h"

struct request {
	struct nlmsghdr head;
	struct ifaddrmsg addr;
	uint8_t attrs[3 * RTA_SPACE(16)];
};

static void
put(struct request *m, uint16_t type, const void *data, size_t len)
{
	const struct rtattr head = { .rta_len = (uint16_t)RTA_LENGTH(len), .rta_type = type };
	uint8_t *at = (uint8_t *)m + m->head.nlmsg_len;

	memcpy(at, &head, sizeof(head));
	memcpy(at + RTA_LENGTH(0), data, len);
	m->head.nlmsg_len += (uint32_t)RTA_SPACE(len);
}

static int
add(int fd, int index, const struct l2_addr *a)
{
	struct request m = { .head = { .nlmsg_type = RTM_NEWADDR, .nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE,
		.nlmsg_len = NLMSG_LENGTH(sizeof(m.addr)) },
		.addr = { .ifa_family = a->family == 6 ? AF_INET6 : AF_INET, .ifa_prefixlen = a->prefix, .ifa_index = (unsigned)index,
		    .ifa_flags = a->family == 6 ? IFA_F_NODAD : 0 } };
	size_t len = a->family == 6 ? 16 : 4;
	struct {
		struct nlmsghdr head;
		struct nlmsgerr err;
		uint8_t rest[1024];
	} ans;
	ssize_t n;

	put(&m, IFA_LOCAL, a->addr, len);
	put(&m, IFA_ADDRESS, a->addr, len);
	if (send(fd, &m, m.head.nlmsg_len, 0) < 0)
		return -errno;
	n = recv(fd, &ans, sizeof(ans), 0);	/* is there already */
	if (n < 0)
		return -errno;
	return (size_t)n < sizeof(ans.head) + sizeof(ans.err.error) || ans.head.nlmsg_type != NLMSG_ERROR ? -EBADMSG : ans.err.error;
}

int
ifaddr_add(const struct l2_addresses *what)
{
	_cleanup_close_ int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct ifreq ifr = { 0 };
	int r = 0;

	if (fd < 0)
		return -errno;
	memcpy(ifr.ifr_name, what->name, sizeof(ifr.ifr_name));
	if (ioctl(fd, SIOCGIFINDEX, &ifr) < 0)
		return -errno;
	for (uint32_t i = 0; i < what->n && r == 0; i++)
		r = add(fd, ifr.ifr_ifindex, &what->addrs[i]);
	return r;
}
