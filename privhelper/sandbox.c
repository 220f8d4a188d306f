/*
 * What privhelper gives up before it accepts the first connection.
 *
 * Who calls: main(), once. What is trusted: the unit, which started us as root with a listener. On error: main() ends
 * the process; it never serves half confined.
 *
 * One capability stays: CAP_NET_ADMIN, because SO_SNDBUFFORCE asks for it and pairs are made all life long. With buffers
 * of the default size (208 KiB) the work channel holds three records of 64 KiB and would stall at every turn. The
 * filter leaves that capability nothing else to work on: no socket() of any family, no ioctl, setsockopt for two
 * options only. Where it is missing (an ordinary user, a container) nothing is kept and records shrink.
 */
#include "privhelper/sandbox.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "common/drop.h"
#include "common/sandbox.h"

#define TYPE_MASK	0xfu	/* the kind of socket without SOCK_CLOEXEC and SOCK_NONBLOCK */

static const struct sandbox_rule priv_rules[] = {
	{ SCMP_SYS(socketpair), 2, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, TYPE_MASK, SOCK_SEQPACKET) } },
	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, SOL_SOCKET), SANDBOX_EQ(2, SO_SNDBUFFORCE) } },
	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, SOL_SOCKET), SANDBOX_EQ(2, SO_SNDBUF) } },
};

int
sandbox_enter(void)
{
	static const cap_value_t keep[] = { CAP_NET_ADMIN };
	int r = drop_to_caps(keep, 1);

	/* Nobody of the same uid looks into it, and no core of it is written. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	if (r == -EPERM)
		r = drop_to_caps(NULL, 0);
	return r < 0 ? r : sandbox_seccomp(priv_rules, sizeof(priv_rules) / sizeof(priv_rules[0]));
}
