/*
 * What privhelper gives up before it accepts the first connection.
 *
 * Who calls: main(), once; auth.c's thread for the filter, which covers the whole process. What is trusted: the unit, which started
 * us as root with a listener. On error: main() ends the process; it never serves half confined.
 *
 * One capability stays: CAP_NET_ADMIN, because SO_SNDBUFFORCE asks for it and pairs are made all life long. With buffers
 * of the default size (208 KiB) the work channel holds three records of 64 KiB and would stall at every turn. The
 * filter leaves that capability nothing else to work on: no socket() of any family, no ioctl, setsockopt for two
 * options only. The USB verbs need none: what they write in sysfs belongs to root, and those files are all that Landlock leaves. Where it is missing (an ordinary user, a container) nothing is kept and records shrink.
 */
#include "privhelper/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "common/drop.h"
#include "common/log.h"
#include "common/sandbox.h"
#include "common/vhci.h"

#define TYPE_MASK	0xfu	/* the kind of socket without SOCK_CLOEXEC and SOCK_NONBLOCK */

static const struct sandbox_rule priv_rules[] = {
	{ SCMP_SYS(socketpair), 2, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, TYPE_MASK, SOCK_SEQPACKET) } },
	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, SOL_SOCKET), SANDBOX_EQ(2, SO_SNDBUFFORCE) } },
	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, SOL_SOCKET), SANDBOX_EQ(2, SO_SNDBUF) } },
	/* a device's socket, for the kernel */
	{ SCMP_SYS(socketpair), 2, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, TYPE_MASK, SOCK_STREAM) } },
	/* sysfs; nothing is made */
	{ SCMP_SYS(openat), 1, { SANDBOX_MASK(2, O_CREAT | O_TRUNC, 0) } },
	/* the ledger, by row; the audit record, until it is on disk, and what was not whole cut off */
	{ .nr = SCMP_SYS(pwrite64) }, { .nr = SCMP_SYS(fdatasync) }, { .nr = SCMP_SYS(ftruncate) },
};

int
sandbox_narrow(const char *sysroot)
{
	static const cap_value_t keep[] = { CAP_NET_ADMIN };
	char hcds[VHCI_CONTROLLERS][96];
	struct sandbox_path paths[VHCI_CONTROLLERS];
	int r = drop_to_caps(keep, 1);

	/* Nobody of the same uid looks into it, and no core of it is written. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if (r == -EPERM)
		r = drop_to_caps(NULL, 0);
	for (unsigned i = 0; i < VHCI_CONTROLLERS; i++) {
		snprintf(hcds[i], sizeof(hcds[i]), "%s/devices/platform/vhci_hcd.%u", sysroot, i);
		paths[i] = (struct sandbox_path){ hcds[i], SANDBOX_READ | SANDBOX_WRITE };
	}
	r = r < 0 ? r : sandbox_landlock(paths, VHCI_CONTROLLERS);
	if (r == 0)
		log_warn("this kernel has no Landlock: files are protected by the unit's mounts only");
	return r < 0 ? r : 0;
}

int
sandbox_filter(void)
{
	return sandbox_seccomp(priv_rules, sizeof(priv_rules) / sizeof(priv_rules[0]));
}
