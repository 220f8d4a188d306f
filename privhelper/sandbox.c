/*
 * What privhelper gives up before it accepts the first connection.
 *
 * Who calls: main(), once; usbauth.c's thread for the filter, which covers all of us. What is trusted: the unit, which started us as
 * root with a listener. On error: main() ends the process; it never serves half confined.
 *
 * CAP_NET_ADMIN stays, because SO_SNDBUFFORCE asks for it and pairs are made all life long. With buffers of the default size (208 KiB) the work
 * channel holds three records of 64 KiB and would stall at every turn. The filter leaves that capability nothing else to work on: no socket() of
 * any family, setsockopt for two options only, and what making a TAP takes: one routing socket, opened before, and the ioctls below. Where it is
 * missing (an ordinary user, a container) nothing is kept and records shrink.
 *
 * Where USB devices are lent two more stay, both for the nodes in /dev/edgeward: CAP_MKNOD makes them, CAP_CHOWN gives them to a runner.
 * Landlock allows that in that one directory, and to open none of them; what else the verbs write is sysfs of vhci_hcd, which belongs to root.
 * Where nothing is lent neither the filter nor Landlock leaves any of it.
 */
#include "privhelper/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/nsfs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "common/drop.h"
#include "common/log.h"
#include "common/sandbox.h"
#include "common/vhci.h"

#define TYPE_MASK	0xfu	/* the kind of socket without SOCK_CLOEXEC and SOCK_NONBLOCK */
#define IOCTL(request)	{ SCMP_SYS(ioctl), 1, { SANDBOX_EQ(1, request) } }

#define INTRODUCTION	4	/* rows; the others are the verbs' */
static size_t nrules;
static const struct sandbox_rule priv_rules[] = {
	{ SCMP_SYS(socketpair), 2, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, TYPE_MASK, SOCK_SEQPACKET) } },
	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, SOL_SOCKET), SANDBOX_EQ(2, SO_SNDBUFFORCE) } },
	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, SOL_SOCKET), SANDBOX_EQ(2, SO_SNDBUF) } },
	{ SCMP_SYS(newfstatat), 1, { SANDBOX_EQ(3, AT_EMPTY_PATH) } },	/* fstat() of some C libraries */
	/* a device's socket, for the kernel */
	{ SCMP_SYS(socketpair), 2, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, TYPE_MASK, SOCK_STREAM) } },
	{ SCMP_SYS(openat), 1, { SANDBOX_MASK(2, O_CREAT | O_TRUNC, 0) } },	/* sysfs; nothing is made */
	/* nodes for workloads: made, given away, removed */
	{ .nr = SCMP_SYS(mknodat) }, { .nr = SCMP_SYS(fchownat) }, { .nr = SCMP_SYS(mkdirat) }, { .nr = SCMP_SYS(unlinkat) },
	{ .nr = SCMP_SYS(getdents64) }, { .nr = SCMP_SYS(readlinkat) },
	/* TAPs: one of /dev/net/tun, its offloads, its index; what a namespace is and whose */
	IOCTL(TUNSETIFF), IOCTL(TUNGETFEATURES), IOCTL(TUNSETVNETHDRSZ), IOCTL(TUNSETVNETLE), IOCTL(TUNSETOFFLOAD), IOCTL(SIOCGIFINDEX),
	IOCTL(NS_GET_NSTYPE), IOCTL(NS_GET_USERNS), IOCTL(NS_GET_OWNER_UID), { .nr = SCMP_SYS(fstatfs) },
	/* the ledger, by row; the audit record, until it is on disk, and what was not whole cut off */
	{ .nr = SCMP_SYS(pwrite64) }, { .nr = SCMP_SYS(fdatasync) }, { .nr = SCMP_SYS(ftruncate) },
};

int
sandbox_narrow(const struct usb_conf *conf)
{
	static const cap_value_t keep[] = { CAP_NET_ADMIN, CAP_MKNOD, CAP_CHOWN };
	char dirs[VHCI_CONTROLLERS][VHCI_PATH], nodes[VHCI_PATH];
	struct sandbox_path paths[VHCI_CONTROLLERS + 2];
	size_t n = 0;
	int r = drop_to_caps(keep, conf->classes != NULL ? 3 : 1);

	/* Nobody of the same uid looks into it, and no core of it is written. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if (r == -EPERM)
		r = drop_to_caps(NULL, 0);
	for (; conf->used && n < VHCI_CONTROLLERS; n++)
		paths[n] = (struct sandbox_path){ vhci_path(conf->sysroot, n, dirs[n]), SANDBOX_READ | SANDBOX_WRITE };
	snprintf(nodes, sizeof(nodes), "%s/" USBGRANT_DIR, conf->devroot);
	paths[n++] = (struct sandbox_path){ conf->classes != NULL ? nodes : NULL, SANDBOX_MKNOD };
	paths[n++] = (struct sandbox_path){ conf->l2 ? "/dev/net" : NULL, SANDBOX_NODES };
	nrules = conf->used ? sizeof(priv_rules) / sizeof(priv_rules[0]) : INTRODUCTION;
	r = r < 0 ? r : sandbox_landlock(paths, n);
	if (r == 0)
		log_warn("this kernel has no Landlock: files are protected by the unit's mounts only");
	return r < 0 ? r : 0;
}

int
sandbox_filter(void)
{
	return sandbox_seccomp(priv_rules, nrules);
}
