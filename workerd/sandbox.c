/*
 * workerd confines itself: no capability, no exec, no fork, no socket but AF_UNIX, and of the file system its state directory
 * and, to read, those of its configuration.
 *
 * Who calls: main(), once, before the first record is taken. What is held open by then stays usable: the work root (for
 * fstatvfs and looking up owners; openat2 with O_PATH is not a right Landlock knows), the channels, the journal. On error:
 * main() ends the process.
 */
#include "workerd/sandbox.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "common/drop.h"
#include "common/sandbox.h"

#define CALL(name)	{ .nr = SCMP_SYS(name) }

static const struct sandbox_rule work_rules[] = {
	/* output: how much waits in a pipe, larger pipes, the exact move of a few bytes */
	{ SCMP_SYS(ioctl), 1, { SANDBOX_EQ(1, FIONREAD) } },
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_SETPIPE_SZ) } },
	CALL(splice),
	/* records and specs */
	CALL(memfd_create), CALL(ftruncate), CALL(pwrite64),
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_ADD_SEALS) } },
	{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, F_GET_SEALS) } },
	/* account.c asks by the time of a file it holds; without a name, so of no other */
	{ SCMP_SYS(utimensat), 1, { SANDBOX_EQ(1, 0) } },
	/* which device file belongs to which USB device */
	CALL(readlinkat),
	/* pulse.c: the end that it puts off */
	CALL(setitimer),
	/* the journal, owners of work directories, the spool (its directory is made before this); the inventory */
	CALL(openat), CALL(openat2), CALL(newfstatat), CALL(fstatfs), CALL(getdents64), CALL(fsync), CALL(renameat),
	CALL(renameat2), CALL(unlinkat),
	/* the inventory: whether a device could be opened */
	CALL(access), CALL(faccessat),
	/* the socket of a carrier */
	{ SCMP_SYS(socketpair), 3, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, 0xf, SOCK_SEQPACKET), SANDBOX_EQ(2, 0) } },
	/* privhelper's named socket, again after its restart */
	{ SCMP_SYS(socket), 3, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_MASK(1, 0xf, SOCK_SEQPACKET), SANDBOX_EQ(2, 0) } },
	CALL(connect),
	/* attach: the bytes of a session to connectd or an operator, its channel to the process that holds it, the size of its terminal */
	{ SCMP_SYS(socketpair), 2, { SANDBOX_EQ(0, AF_UNIX), SANDBOX_EQ(2, 0) } },
	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, SOL_SOCKET), SANDBOX_EQ(2, SO_SNDBUF) } },
	{ SCMP_SYS(ioctl), 1, { SANDBOX_EQ(1, TIOCSWINSZ) } },
};

int
sandbox_enter(const char *statedir, const char *conf, const char *policy)
{
	char conf_dir[PATH_MAX], policy_dir[PATH_MAX];
	const struct sandbox_path paths[] = {
		{ statedir, SANDBOX_READ | SANDBOX_WRITE },
		/* root's files, which are checked before a reload */
		{ sandbox_directory_of(conf, conf_dir, sizeof(conf_dir)), SANDBOX_READ },
		{ sandbox_directory_of(policy, policy_dir, sizeof(policy_dir)), SANDBOX_READ },
		/* where /etc/os-release leads */
		{ "/usr/lib", SANDBOX_READ },
		/* the inventory of USB devices */
		{ "/sys/bus/usb", SANDBOX_READ },
		{ "/sys/devices", SANDBOX_READ },
		{ "/sys/class", SANDBOX_READ },
	};
	int r = drop_everything(), abi;

	if (r < 0)
		return r;
	abi = sandbox_landlock(paths, sizeof(paths) / sizeof(paths[0]));
	if (abi < 0)
		return abi;
	r = sandbox_seccomp(work_rules, sizeof(work_rules) / sizeof(work_rules[0]));
	return r < 0 ? r : abi;
}
