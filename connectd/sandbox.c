/*
 * What connectd may still do, as data. No exec, no fork, no thread, no ptrace, no socket families but those listed, no
 * memory that becomes executable. Which files it can open is Landlock's part: directories, never files, because a file
 * that is replaced would lose its rule.
 */
#include "connectd/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "common/sandbox.h"

#define CALL(name)		{ .nr = SCMP_SYS(name) }
#define TYPE_MASK		0xf	/* the kind of socket without SOCK_CLOEXEC and SOCK_NONBLOCK */
#define SOCKET(f, type)		{ SCMP_SYS(socket), 3, { SANDBOX_EQ(0, f), SANDBOX_MASK(1, TYPE_MASK, type), SANDBOX_EQ(2, 0) } }
#define OPTION(level, name)	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, level), SANDBOX_EQ(2, name) } }

static const struct sandbox_rule net_rules[] = {
	/*
	 * sockets: the hub and the resolver, and privhelper, whose kind neither D-Bus nor a container engine answers. The netlink
	 * socket for news of addresses is open already. Without bind() and listen() nothing comes in.
	 */
	SOCKET(AF_UNIX, SOCK_SEQPACKET), SOCKET(AF_INET, SOCK_STREAM), SOCKET(AF_INET, SOCK_DGRAM),
	SOCKET(AF_INET6, SOCK_STREAM), SOCKET(AF_INET6, SOCK_DGRAM),
	CALL(connect), CALL(getsockname), CALL(getpeername), CALL(sendmmsg), CALL(recvmmsg),
	OPTION(IPPROTO_TCP, TCP_NODELAY), OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT), OPTION(IPPROTO_TCP, TCP_NOTSENT_LOWAT),
	OPTION(IPPROTO_TCP, TCP_KEEPIDLE), OPTION(IPPROTO_TCP, TCP_KEEPINTVL), OPTION(IPPROTO_TCP, TCP_KEEPCNT),
	OPTION(IPPROTO_TCP, TCP_FASTOPEN_CONNECT), OPTION(IPPROTO_TCP, TCP_QUICKACK),
	OPTION(SOL_SOCKET, SO_KEEPALIVE), OPTION(SOL_SOCKET, SO_RCVBUF), OPTION(SOL_SOCKET, SO_SNDBUF),
	OPTION(SOL_SOCKET, SO_REUSEADDR), OPTION(SOL_SOCKET, SO_LINGER),
	OPTION(IPPROTO_IPV6, IPV6_V6ONLY), OPTION(IPPROTO_IP, IP_RECVERR), OPTION(IPPROTO_IPV6, IPV6_RECVERR),
	/* files: Landlock says which */
	CALL(openat), CALL(newfstatat), CALL(statx), CALL(getdents64), CALL(readlink), CALL(readlinkat), CALL(faccessat),
	CALL(faccessat2), CALL(access), CALL(fstatfs), CALL(fsync), CALL(fdatasync), CALL(renameat), CALL(renameat2), CALL(unlinkat),
	CALL(inotify_add_watch), CALL(inotify_rm_watch),
	/* a large start goes to workerd as a sealed memfd */
	CALL(memfd_create), { SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_ADD_SEALS) } },
	/* the resolver asks for the host's name, the C library's sort for the size of memory */
	CALL(uname), CALL(sysinfo), CALL(eventfd2), CALL(timerfd_gettime),
	{ SCMP_SYS(ioctl), 1, { SANDBOX_EQ(1, FIONBIO) } }, { SCMP_SYS(ioctl), 1, { SANDBOX_EQ(1, FIONREAD) } },
	SOCKET(AF_UNIX, SOCK_STREAM),	/* the last: see below */
};

int
connectd_sandbox_enter(const char *statedir, const char *token_file, const char *policy_file, const char *releases,
    const char *keys, bool sockets)
{
	char token[256], policy[PATH_MAX];
	const struct sandbox_path paths[] = {
		{ statedir, SANDBOX_READ | SANDBOX_WRITE },
		{ "/etc", SANDBOX_READ },
		{ sandbox_directory_of(policy_file, policy, sizeof(policy)), SANDBOX_READ },	/* again at a reload */
		{ releases, SANDBOX_READ },		/* what became of upgrades */
		{ keys, SANDBOX_READ },
		{ "/dev/urandom", SANDBOX_READ | SANDBOX_DEVICE },	/* the resolver's query ids */
		{ "/run/systemd/resolve", SANDBOX_READ },
		{ "/run/NetworkManager", SANDBOX_READ },
		{ "/run/resolvconf", SANDBOX_READ },
		{ "/usr/lib/ssl", SANDBOX_READ },
		{ "/usr/share/ca-certificates", SANDBOX_READ },
		{ "/usr/local/share/ca-certificates", SANDBOX_READ },
		/* the redeemed token file is removed */
		{ sandbox_directory_of(token_file, token, sizeof(token)), SANDBOX_READ | SANDBOX_REMOVE },
	};
	int abi = sandbox_landlock(paths, sizeof(paths) / sizeof(paths[0])), r;

	if (abi < 0)
		return abi;
	/* The last rule is for them: where none is declared, a taken-over connectd can make no socket that D-Bus or an engine answers. */
	r = sandbox_seccomp(net_rules, sizeof(net_rules) / sizeof(net_rules[0]) - (sockets ? 0 : 1));
	return r < 0 ? r : abi;
}
