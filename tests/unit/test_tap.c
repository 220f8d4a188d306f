/*
 * B116, B118, B120: interfaces for workloads. common/tap.c and common/netns.c make them for root; proto/ipc/{l2,priv}.c say what may be asked.
 * The tests that make one run in namespaces of their own and need no root; where there are none, they say so.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/netns.h"
#include "common/tap.h"
#include "common/userns.h"
#include "proto/ipc/l2.h"
#include "proto/ipc/priv.h"

static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 7 };

static void
test_names(void **state)
{
	static const char *const good[] = { "eth1", "e", "abcdefghijklmno", "Br-lan.7", "x_y" };
	static const char *const bad[] = { "", "lo", "all", "default", "1eth", "-e", ".", "..", "a/b", "a b", "a:b", "a%d", "\xc3\xa4" };
	char name[16];

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		memset(name, 0, sizeof(name));
		memcpy(name, good[i], strlen(good[i]));
		assert_true(priv_tap_name_ok(name));
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memset(name, 0, sizeof(name));
		memcpy(name, bad[i], strlen(bad[i]));
		assert_false(priv_tap_name_ok(name));
	}
	memset(name, 'a', sizeof(name));
	assert_false(priv_tap_name_ok(name));
	strcpy(name, "eth1");
	assert_false(priv_tap_name_ok(name));	/* not padded with zeros */
}

static void
test_requests(void **state)
{
	struct priv_tap good = { .name = "eth1", .mac = { 2 }, .mtu = 1500 }, t;

	assert_true(priv_tap_ok(&good));
#define BAD(change) do { t = good; t.change; assert_false(priv_tap_ok(&t)); } while (0)
	BAD(mac[0] = 0);	/* a vendor's */
	BAD(mac[0] = 3);	/* a group */
	BAD(mtu = 575);
	BAD(mtu = 9001);
	BAD(offload = 2);
	BAD(reserved = 1);
	BAD(name[0] = '/');
#undef BAD
}

static void
test_addresses(void **state)
{
	static const char *const good[] = { "192.0.2.1/24", "10.0.0.1/8", "192.0.2.255/32", "fd00::1/64", "2001:db8::1/128", "fe80::1/64" };
	static const char *const bad[] = { "", "/", "192.0.2.1", "192.0.2.1/", "192.0.2.1/0", "192.0.2.1/33", "192.0.2.1/024", "192.0.2.1/ 4", "192.0.2.1/+4",
		"127.0.0.1/8", "0.0.0.0/8", "0.1.2.3/8", "224.0.0.1/4", "255.255.255.255/32", "192.0.2/24", "::/64", "::1/128", "ff02::1/16",
		"fd00::1/129", "fd00::1/1000", "fd00:::1/64", "fd00::1%eth0/64", "192.0.2.1/24/24", "a/24" };
	struct l2_addr a;
	uint8_t m[6];

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_true(l2_addr_parse(good[i], &a));
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (l2_addr_parse(bad[i], &a))
			fail_msg("%s was taken", bad[i]);
	assert_true(l2_mac_parse("02:aB:00:00:00:01", m));
	assert_int_equal(m[1], 0xab);
	assert_false(l2_mac_parse("00:00:00:00:00:01", m) || l2_mac_parse("03:00:00:00:00:01", m) || l2_mac_parse("02:00:00:00:00", m) ||
	    l2_mac_parse("02:00:00:00:00:01:", m) || l2_mac_parse("02-00-00-00-00-01", m) || l2_mac_parse("", m) || l2_mac_parse("02:0g:00:00:00:01", m));
}

static void
test_open(void **state)
{
	struct l2_open good = { .id = "seg", .handle = "H_1", .name = "eth1", .mac = { 2 }, .mtu = 1500, .naddrs = 1,
		.addrs = { { .family = 4, .prefix = 24, .addr = { 10, 0, 0, 1 } } } }, o;

	assert_true(l2_open_ok(&good));
#define BAD(change) do { o = good; o.change; assert_false(l2_open_ok(&o)); } while (0)
	BAD(id[0] = '\0');
	BAD(id[0] = 'A');
	BAD(handle[0] = '\0');
	BAD(handle[0] = '/');
	BAD(name[3] = ' ');
	BAD(mtu = 0);
	BAD(naddrs = 5);
	BAD(naddrs = 0);		/* and yet one is there */
	BAD(naddrs = 2);		/* and one is none */
	BAD(addrs[0].family = 5);
	BAD(addrs[0].prefix = 33);
	BAD(addrs[0].addr[4] = 1);	/* behind the four bytes */
	BAD(addrs[0].reserved[0] = 1);
#undef BAD
}

static int
index_of(const char *name)
{
	struct ifreq ifr = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	r = ioctl(fd, SIOCGIFINDEX, &ifr) < 0 ? -errno : ifr.ifr_ifindex;
	close(fd);
	return r;
}

static int
persistent(const char *name)
{
	struct ifreq ifr = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0 || ioctl(fd, TUNSETPERSIST, 1) < 0)
		return -errno;
	close(fd);
	return index_of(name);
}

/* In the child: 0 when all holds, else the line. Two network namespaces of one user namespace: ours, and that of the "workload". */
#define CHECK(what) do { if (!(what)) return __LINE__; } while (0)

static int
make_in_namespaces(void)
{
	struct tap_wish wish = { .name = "eth1", .mac = mac, .mtu = 1400 };
	struct tap_maker maker;
	int mine, theirs, fd, again, before;
	uid_t owner = 12345;

	if (userns_enter(geteuid(), getegid()) < 0 || unshare(CLONE_NEWNET) < 0 || access("/dev/net/tun", R_OK | W_OK) < 0)
		return 0;	/* skipped */
	theirs = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(theirs >= 0 && unshare(CLONE_NEWNET) == 0);
	mine = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	CHECK(tap_init(&maker, geteuid(), 1) == 0);
	CHECK(netns_owner(theirs, maker.dev, maker.ino, &owner) == 0 && owner == geteuid());
	/* whose it may not be */
	CHECK(netns_owner(mine, maker.dev, maker.ino, &owner) == -EXDEV);
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	CHECK(netns_owner(fd, maker.dev, maker.ino, &owner) == -EBADF);
	fd = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
	CHECK(netns_owner(fd, maker.dev, maker.ino, &owner) == -EINVAL);
	wish.netns = mine;
	CHECK(tap_make(&maker, &wish) == -EPERM);
	wish.netns = theirs;
	maker.first++;
	CHECK(tap_make(&maker, &wish) == -EPERM);
	maker.first--;
	/* made there, and nothing is left here */
	fd = tap_make(&maker, &wish);
	if (fd == -EPERM || fd == -ENODEV)
		return 0;	/* this kernel lets only the machine's own root */
	CHECK(fd >= 0 && index_of("eth1") == -ENODEV);
	CHECK(tap_make(&maker, &wish) == -EEXIST);
	CHECK(setns(theirs, CLONE_NEWNET) == 0 && index_of("eth1") > 0);
	/* It lives with its descriptor. */
	close(fd);
	CHECK(index_of("eth1") == -ENODEV);
	/* What somebody has planted stays what it is. */
	before = persistent("eth1");
	CHECK(before > 0 && setns(mine, CLONE_NEWNET) == 0);
	CHECK(tap_make(&maker, &wish) == -EEXIST);
	wish.name = "eth2";
	wish.offload = true;
	again = tap_make(&maker, &wish);
	CHECK(again >= 0 || again == -EOPNOTSUPP);
	CHECK(setns(theirs, CLONE_NEWNET) == 0 && index_of("eth1") == before && (again < 0 || index_of("eth2") > 0));
	return 0;
}

static void
test_b116_b118_made_and_gone(void **state)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(make_in_namespaces() % 256);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void
test_request(void **state)
{
	uint8_t buf[TAP_REQUEST_MAX];
	const struct tap_wish wish = { .name = "abcdefghijklmno", .mac = mac, .mtu = 9000, .netns = 1000 };
	size_t n = tap_request(buf, 7, &wish);
	uint32_t len;

	memcpy(&len, buf, sizeof(len));
	assert_int_equal(len, n);
	assert_true(n <= sizeof(buf));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_b116_b118_made_and_gone),
		cmocka_unit_test(test_request),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
