/*
 * A workload whose network is filtered has a namespace of its own, with rules that only whoever has CAP_NET_ADMIN in its user
 * namespace can change: nobody, once workinit has given that up. What the rules let pass goes over one interface to pasta
 * (package passt), an ordinary process of the runner in the workload's cgroup and pid namespace, which stayed in the device's network
 * and makes ordinary connections there. Nothing of this needs root, and nothing is left on the device when the workload ends.
 *
 * The order: the device's addresses are looked at and denied; the process that will be pasta is made, because it must be
 * outside; then (the caller) the new namespace; rules by nft; pasta is handed the namespace and runs; and what must not be
 * reached is tried, in both families, before the payload exists.
 *
 * Who calls: confine.c, in workinit and once in the rehearsal. What is trusted: the two programs of root's, nothing they print. On
 * error: that start ends, which ends pasta, too: they are in a pid namespace that ends with its first process.
 */
#include "workerd/launcher/netns.h"

#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/capability.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "workerd/launcher/ruleset.h"

#define READY_MS	10000	/* for pasta and nft on a slow machine */
#define PROBE_MS	2000
#define CAP(c)		(1u << (c))

/* Its side of the cable. No real address is hidden by these: they are never allowed (proto/ipc/firewall.c). */
#define NEAR4		"192.0.0.2"
#define FAR4		"192.0.0.1"
#define NEAR6		"fd65:6467:6577::2"
#define FAR6		"fe80::1"

/* ---- the device's side ---- */

/* What pasta takes its own link-local address and hardware address from: an interface that is up, with IPv6 if there is one. */
static void
choose_link(const struct ifaddrs *list, char name[IF_NAMESIZE])
{
	int best = 0;

	name[0] = '\0';
	for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
		const struct sockaddr_in6 *sin6 = (const void *)i->ifa_addr;
		int good = i->ifa_addr == NULL || (i->ifa_flags & IFF_UP) == 0 || (i->ifa_flags & IFF_LOOPBACK) != 0 ? 0 :
		    i->ifa_addr->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&sin6->sin6_addr) ? 2 :
		    i->ifa_addr->sa_family == AF_INET ? 1 : 0;

		if (good > best && strlen(i->ifa_name) < IF_NAMESIZE) {
			memcpy(name, i->ifa_name, strlen(i->ifa_name) + 1);
			best = good;
		}
	}
}

/* Services of the device listen on its addresses; a workload with a filtered network has no business with them. */
static int
deny_own(struct firewall *fw, const struct ifaddrs *list)
{
	int r = 0;

	for (const struct ifaddrs *i = list; i != NULL && r == 0; i = i->ifa_next) {
		struct fw_cidr own = { .family = FW_V4, .bits = 32 };

		if (i->ifa_addr == NULL)
			continue;
		if (i->ifa_addr->sa_family == AF_INET) {
			memcpy(own.addr, &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr, 4);
		} else if (i->ifa_addr->sa_family == AF_INET6) {
			own = (struct fw_cidr){ .family = FW_V6, .bits = 128 };
			memcpy(own.addr, &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr, 16);
		} else {
			continue;
		}
		r = fw_deny(fw, &own);
	}
	return r;
}

/* What a program other than the payload is given: these capabilities and no other, no signal blocked, its three descriptors. */
static _Noreturn void
become(char *const argv[], uint32_t caps, int in, int out)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	const struct __user_cap_data_struct data[2] = { { caps, caps, caps }, { 0 } };
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	char *const env[] = { NULL };
	sigset_t none;
	bool ok = null >= 0 && setsid() >= 0 && dup2(in, 0) >= 0 && dup2(out >= 0 ? out : null, 1) >= 0 && dup2(null, 2) >= 0 &&
	    close_range(3, ~0u, 0) == 0 && syscall(SYS_capset, &head, data) == 0;

	for (unsigned long c = 0; c < 32 && ok; c++)
		ok = (caps >> c & 1) == 0 || prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, c, 0, 0) == 0;
	sigemptyset(&none);
	if (ok && sigprocmask(SIG_SETMASK, &none, NULL) == 0)
		execve(argv[0], argv, env);
	_exit(1);
}

/* One descriptor with one byte. -1 when the other end is gone. */
static int
take_namespace(int from)
{
	char byte, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	struct cmsghdr *c = recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 1 ? CMSG_FIRSTHDR(&m) : NULL;
	int fd = -1;

	if (c != NULL && c->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(c), sizeof(fd));
	return fd;
}

static int
hand_over(int to, int fd)
{
	char byte = 0;
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	struct iovec iov = { &byte, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };

	memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	return sendmsg(to, &m, MSG_NOSIGNAL) == 1 ? 0 : -errno;
}

/*
 * Everything explicit, nothing copied from the device's network: no port leads in, the far end of the cable is not the device, no
 * names, no services on the cable. Descriptors 0 and 1 are the namespace and where it says that it is ready.
 */
static _Noreturn void
run_pasta(int from, int ready, char *link)
{
	char none[] = "none", lo[] = "lo";
	char *argv[] = { (char[]){ LAUNCH_PASTA }, (char[]){ "--foreground" }, (char[]){ "--quiet" }, (char[]){ "--netns" },
		(char[]){ "/proc/self/fd/0" }, (char[]){ "--pid" }, (char[]){ "/proc/self/fd/1" }, (char[]){ "--no-netns-quit" },
		(char[]){ "--config-net" }, (char[]){ "-t" }, none, (char[]){ "-u" }, none, (char[]){ "-T" }, none,
		(char[]){ "-U" }, none, (char[]){ "--no-map-gw" }, (char[]){ "--dns" }, none, (char[]){ "--search" }, none,
		(char[]){ "--no-dhcp" }, (char[]){ "--no-dhcpv6" }, (char[]){ "--no-ra" }, (char[]){ "--ns-ifname" },
		(char[]){ RULESET_LINK }, (char[]){ "--address" }, (char[]){ NEAR4 }, (char[]){ "--gateway" }, (char[]){ FAR4 },
		(char[]){ "--interface" }, link[0] != '\0' ? link : lo, (char[]){ "--address" }, (char[]){ NEAR6 },
		(char[]){ "--gateway" }, (char[]){ FAR6 }, NULL };
	/* Without a network there is nothing to take addresses from; IPv4 does without. */
	char *alone[] = { (char[]){ "--ipv4-only" }, (char[]){ "--mac-addr" }, (char[]){ "9a:55:9a:55:9a:55" }, NULL };
	int netns;

	if (link[0] == '\0')
		memcpy(&argv[sizeof(argv) / sizeof(argv[0]) - 5], alone, sizeof(alone));
	netns = take_namespace(from);
	if (netns < 0)
		_exit(1);
	become(argv, CAP(CAP_SYS_ADMIN) | CAP(CAP_NET_ADMIN) | CAP(CAP_SYS_PTRACE), netns, ready);
}

int
netns_begin(struct netns *n, struct firewall *fw)
{
	int hand[2], ready[2], r;
	char link[IF_NAMESIZE];
	struct ifaddrs *list;

	*n = (struct netns){ .fw = fw, .hand = -1, .ready = -1 };
	if (getifaddrs(&list) < 0)
		return -errno;
	choose_link(list, link);
	r = deny_own(fw, list);
	freeifaddrs(list);
	if (r < 0)
		return r;
	/* A resolver may be the device's own: that is one port, and the policy's word when there is one. */
	fw->has_proxy = fw->has_proxy && !fw_denies(fw, &fw->proxy);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hand) < 0 || pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	n->pasta = fork();
	if (n->pasta == 0) {
		close(hand[0]);
		run_pasta(hand[1], ready[1], link);
	}
	r = n->pasta < 0 ? -errno : 0;
	close(hand[1]);
	close(ready[1]);
	n->hand = hand[0];
	n->ready = ready[0];
	return r;
}

/* ---- the new namespace ---- */

static int
run_nft(int rules)
{
	char *argv[] = { (char[]){ LAUNCH_NFT }, (char[]){ "-f" }, (char[]){ "-" }, NULL };
	_cleanup_close_ int fd = -1;
	struct pollfd p = { .events = POLLIN };
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		become(argv, CAP(CAP_NET_ADMIN), rules, -1);
	p.fd = fd = pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -errno;
	if (poll(&p, 1, READY_MS) != 1) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return -ETIMEDOUT;
	}
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ENOTSUP;
}

static int
apply_rules(const struct firewall *fw)
{
	_cleanup_close_ int fd = memfd_create("rules", MFD_CLOEXEC);
	int r = fd < 0 ? -errno : ruleset_write(fd, fw);

	return r < 0 ? r : run_nft(fd);
}

static int
start_pasta(struct netns *n)
{
	_cleanup_close_ int netns = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	struct pollfd p = { .fd = n->ready, .events = POLLIN };
	char number[16];
	int r = netns < 0 ? -errno : hand_over(n->hand, netns);

	close(n->hand);
	n->hand = -1;
	if (r < 0)
		return r;
	if (poll(&p, 1, READY_MS) != 1)
		return -ETIMEDOUT;
	return read(n->ready, number, sizeof(number)) > 0 ? 0 : -ECHILD;	/* nothing: it has ended */
}

/* ---- the check ---- */

/* Exactly the loopback and the cable. */
static int
check_links(void)
{
	struct if_nameindex *all = if_nameindex();
	unsigned lo = 0, link = 0, others = 0;

	if (all == NULL)
		return -errno;
	for (const struct if_nameindex *i = all; i->if_index != 0; i++) {
		bool is_lo = strcmp(i->if_name, "lo") == 0, is_link = strcmp(i->if_name, RULESET_LINK) == 0;

		lo += is_lo;
		link += is_link;
		others += !is_lo && !is_link;
	}
	if_freenameindex(all);
	return lo == 1 && link == 1 && others == 0 ? 0 : -EXDEV;
}

static socklen_t
socket_address(uint8_t family, netaddr_t addr, uint16_t port, struct sockaddr_storage *ret_sa)
{
	struct sockaddr_in6 sin6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl((uint32_t)addr) };

	for (int i = 15; i >= 0; i--, addr >>= 8)
		sin6.sin6_addr.s6_addr[i] = (uint8_t)(addr & 0xff);
	memset(ret_sa, 0, sizeof(*ret_sa));
	if (family == FW_V4)
		memcpy(ret_sa, &sin, sizeof(sin));
	else
		memcpy(ret_sa, &sin6, sizeof(sin6));
	return family == FW_V4 ? sizeof(sin) : sizeof(sin6);
}

/* 0: the rules refused it. 1: there is no way to it at all. -EXDEV: it went out. */
static int
probe(uint8_t family, netaddr_t addr, uint16_t port, int type)
{
	struct sockaddr_storage sa;
	socklen_t len = socket_address(family, addr, port, &sa);
	_cleanup_close_ int fd = socket(family == FW_V4 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct pollfd p = { .fd = fd, .events = POLLOUT };
	int err = 0;
	socklen_t size = sizeof(err);

	if (fd < 0)
		return errno == EAFNOSUPPORT ? 1 : -errno;
	if (type == SOCK_DGRAM)
		err = sendto(fd, "", 1, 0, (const struct sockaddr *)&sa, len) < 0 ? errno : 0;
	else if (connect(fd, (const struct sockaddr *)&sa, len) < 0)
		err = errno;
	if (err == EINPROGRESS && (poll(&p, 1, PROBE_MS) != 1 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0))
		err = 0;
	if (err == (type == SOCK_DGRAM ? EPERM : ECONNREFUSED))
		return 0;
	return err == ENETUNREACH || err == EHOSTUNREACH || err == EADDRNOTAVAIL || err == EACCES || err == EINVAL ? 1 : -EXDEV;
}

/* UDP goes to resolvers only, so any other address tells whether the rules are there. At least one family must. */
static int
check_datagrams(const struct firewall *fw)
{
	static const struct fw_cidr nobody[] = { { FW_V4, 32, { 192, 0, 2, 1 } },
		{ FW_V6, 128, { 0x20, 0x01, 0x0d, 0xb8, [15] = 1 } } };
	unsigned refused = 0;

	for (unsigned i = 0; i < 2; i++) {
		uint16_t port = 9;
		int r;

		for (uint32_t k = 0; k < fw->nresolvers; k++)
			port = (uint16_t)(port + (fw->resolvers[k].port == port));
		r = probe(nobody[i].family, fw_range(&nobody[i]).lo, port, SOCK_DGRAM);
		if (r < 0)
			return r;
		refused += r == 0;
	}
	return refused > 0 ? 0 : -ENETUNREACH;
}

static bool
is_open(const struct firewall *fw, uint8_t family, netaddr_t addr, uint16_t port)
{
	for (uint32_t i = 0; i < fw->nresolvers; i++)
		if (fw->resolvers[i].family == family && fw_address(family, fw->resolvers[i].addr) == addr && fw->resolvers[i].port == port)
			return true;
	return fw->has_proxy && fw->proxy.family == family && fw_address(family, fw->proxy.addr) == addr && fw->proxy.port == port;
}

/* Both ends of what is denied, the device's own addresses among them, and a metadata service: as the sets say. */
static int
check_denied(const struct firewall *fw)
{
	static const struct fw_cidr metadata = { FW_V4, 32, { 169, 254, 169, 254 } };
	static struct netset set;
	int r = 0;

	for (enum fw_family f = FW_V4; f < FW_FAMILIES && r >= 0; f++) {
		r = fw_destinations(fw, f, &set);
		for (uint32_t i = 0; i <= fw->ndeny && r >= 0; i++) {
			const struct fw_cidr *c = i < fw->ndeny ? &fw->deny[i] : &metadata;
			netaddr_t ends[2] = { fw_range(c).lo, fw_range(c).hi };
			uint16_t port = fw->nports > 0 ? fw->ports[0] : 80;

			for (unsigned e = 0; e < 2 && r >= 0 && c->family == f; e++)
				if (!netset_has(&set, ends[e]) && !is_open(fw, c->family, ends[e], port))
					r = probe(c->family, ends[e], port, SOCK_STREAM);
		}
	}
	return r < 0 ? r : 0;
}

int
netns_build(struct netns *n, enum init_stage *ret_stage)
{
	int r;

	*ret_stage = INIT_STAGE_RULES;
	r = apply_rules(n->fw);
	if (r < 0)
		return r;
	*ret_stage = INIT_STAGE_PASTA;
	r = start_pasta(n);
	if (r < 0)
		return r;
	*ret_stage = INIT_STAGE_CHECK;
	r = check_links();
	if (r == 0)
		r = check_datagrams(n->fw);
	return r < 0 ? r : check_denied(n->fw);
}
