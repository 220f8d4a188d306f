/*
 * The floor of P13: what the kernel alone takes to move frames between two TAPs by way of two processes and a TCP connection on loopback, with
 * nothing of ours and no encryption around it: frames are read until there are none, or 64 KiB, and go in one write; what comes is written to the
 * TAP frame by frame.
 *
 *   tapfloor NETNS TAP NETNS TAP plain|offload     "PID PID" of the two, when both interfaces are there; ends when its input does
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "bench.h"

#define BATCH	65536u
#define LONGEST	65604u		/* of a frame, with its virtio_net_hdr */

static uint8_t out[BATCH + 4 + LONGEST], in[2 * (BATCH + LONGEST)];

static int
make_tap(const char *netns, const char *name, bool offload)
{
	struct ifreq ifr = { .ifr_flags = (short)(IFF_TAP | IFF_NO_PI | (offload ? IFF_VNET_HDR : 0)) };
	char path[128];
	int ns, fd, little = 1;

	snprintf(path, sizeof(path), "/run/netns/%s", netns);
	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	ns = open(path, O_RDONLY | O_CLOEXEC);
	if (ns < 0 || setns(ns, CLONE_NEWNET) < 0)
		die(path);
	fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || ioctl(fd, TUNSETIFF, &ifr) < 0 || (offload && (ioctl(fd, TUNSETVNETLE, &little) < 0 ||
	    ioctl(fd, TUNSETOFFLOAD, (unsigned long)(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) < 0)))
		die("/dev/net/tun");
	return fd;
}

static void
from_tap(int tap, int sock)
{
	size_t n = 0;
	ssize_t r = 1;

	while (n < BATCH && r > 0) {
		r = read(tap, out + n + 4, LONGEST);
		if (r > 0) {
			uint32_t len = (uint32_t)r;

			memcpy(out + n, &len, 4);
			n += 4 + (size_t)r;
		}
	}
	for (size_t done = 0; done < n; done += (size_t)r) {
		r = write(sock, out + done, n - done);
		if (r <= 0)
			exit(0);
	}
}

static void
to_tap(int tap, int sock)
{
	static size_t have;
	ssize_t r = recv(sock, in + have, BATCH + LONGEST, MSG_DONTWAIT);
	size_t at = 0;

	if (r == 0 || (r < 0 && errno != EAGAIN))
		exit(0);
	have += r > 0 ? (size_t)r : 0;
	for (;;) {
		uint32_t len;

		if (have - at < 4)
			break;
		memcpy(&len, in + at, 4);
		if (have - at < 4 + len)
			break;
		if (write(tap, in + at + 4, len) < 0 && errno != EIO && errno != EINVAL)
			exit(0);
		at += 4 + len;
	}
	have -= at;
	memmove(in, in + at, have);
}

static void
carry(int tap, int sock)
{
	struct pollfd p[2] = { { .fd = tap, .events = POLLIN }, { .fd = sock, .events = POLLIN } };

	while (poll(p, 2, -1) >= 0) {
		if (p[0].revents != 0)
			from_tap(tap, sock);
		if (p[1].revents != 0)
			to_tap(tap, sock);
	}
}

/* Two ends of one TCP connection. */
static void
connected(int fds[2])
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&sin, sizeof(sin)) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&sin, &len) < 0 || connect(fds[0], (struct sockaddr *)&sin, sizeof(sin)) < 0)
		die("loopback");
	fds[1] = accept(listener, NULL, NULL);
	close(listener);
	for (int i = 0; i < 2; i++)
		setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

int
main(int argc, char **argv)
{
	int fds[2], ready[2];
	pid_t pids[2];
	char c;

	if (argc != 6 || pipe(ready) < 0)
		return 2;
	connected(fds);
	for (int i = 0; i < 2; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			int tap;

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			close(fds[1 - i]);
			tap = make_tap(argv[1 + 2 * i], argv[2 + 2 * i], strcmp(argv[5], "offload") == 0);
			if (write(ready[1], "x", 1) != 1)
				return 1;
			carry(tap, fds[i]);
			return 0;
		}
		if (pids[i] < 0 || read(ready[0], &c, 1) != 1)
			die("fork");
	}
	printf("%d %d\n", pids[0], pids[1]);
	fflush(stdout);
	while (read(STDIN_FILENO, &c, 1) > 0)
		;
	kill(pids[0], SIGKILL);
	kill(pids[1], SIGKILL);
	return 0;
}
