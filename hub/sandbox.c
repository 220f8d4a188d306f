/*
 * What edgehub may still do, as data. It serves devices that may be taken over and operators who may not be: no exec, no
 * fork, no new thread, no new socket, no file outside its data directory, no memory that becomes executable. Keys and
 * certificate are read before; logs and database are opened all its life.
 */
#include "hub/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "common/drop.h"
#include "common/sandbox.h"

#define CALL(name)		{ .nr = SCMP_SYS(name) }
#define FCNTL(cmd)		{ SCMP_SYS(fcntl), 1, { SANDBOX_EQ(1, cmd) } }
#define OPTION(level, name)	{ SCMP_SYS(setsockopt), 2, { SANDBOX_EQ(1, level), SANDBOX_EQ(2, name) } }

static const struct sandbox_rule hub_rules[] = {
	/* connections that were accepted */
	CALL(getsockname), CALL(getpeername), OPTION(IPPROTO_TCP, TCP_NODELAY), OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT),
	OPTION(SOL_SOCKET, SO_SNDBUF), OPTION(SOL_SOCKET, SO_RCVBUF), OPTION(SOL_SOCKET, SO_KEEPALIVE),
	OPTION(IPPROTO_TCP, TCP_NOTSENT_LOWAT), OPTION(IPPROTO_TCP, TCP_QUICKACK),
	/* logs, results (made by rename), and what SQLite does to its files; Landlock says where */
	CALL(openat), CALL(newfstatat), CALL(stat), CALL(lstat), CALL(access), CALL(faccessat), CALL(readlink), CALL(unlink),
	CALL(unlinkat), CALL(renameat), CALL(renameat2), CALL(getcwd), CALL(fsync), CALL(fdatasync), CALL(ftruncate), CALL(pwrite64), FCNTL(F_SETLK), FCNTL(F_GETLK),
	/* a large start comes as a sealed memfd */
	FCNTL(F_GET_SEALS),
	/* the C library: sort asks for the size of memory, a thread says at its start where its lists are */
	CALL(sysinfo), CALL(set_robust_list), CALL(rseq), CALL(sched_getaffinity),
};

static const char *
directory_of(const char *file, char *buf, size_t size)
{
	const char *slash = strrchr(file, '/');
	size_t len = slash == NULL ? 0 : slash == file ? 1 : (size_t)(slash - file);

	if (len == 0 || len >= size)
		return NULL;
	memcpy(buf, file, len);
	buf[len] = '\0';
	return buf;
}

int
hub_sandbox_files(const char *datadir, const char *sock)
{
	char dir[256];
	const struct sandbox_path paths[] = {
		{ datadir, SANDBOX_READ | SANDBOX_WRITE },
		{ directory_of(sock, dir, sizeof(dir)), SANDBOX_REMOVE },	/* its own socket, at the end */
	};
	int r = drop_to_caps(NULL, 0);

	if (r < 0)
		return r;
	/* It holds private keys: nobody of its uid looks into it, and no core of it is written. */
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return -errno;
	return sandbox_landlock(paths, sizeof(paths) / sizeof(paths[0]));
}

int
hub_sandbox_calls(void)
{
	return sandbox_seccomp(hub_rules, sizeof(hub_rules) / sizeof(hub_rules[0]));
}
