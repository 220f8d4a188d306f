/*
 * Both ends of a byte relay, for P12 and P13. The server stands for a usbipd: it answers an import, then does as it is told, in messages of
 * 48 bytes, the size of a USB/IP header. The client asks for round trips, then for bytes.
 *
 *   relay server [ADDRESS PORT]      "listening PORT"; every connection in a process of its own; without a port: an import comes first
 *   relay client fd|PORT|ADDRESS:PORT PINGS MIB    fd: standard input is a socket that is joined to a server already
 *
 * Figures, a line each: rtt_us (median), rtt_p99_us, disk_MBps (not over ADDRESS:PORT, nor with fewer than 100 pings), MBps.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bench.h"

#define HEAD	48
#define BLOCK	(64u << 10)
#define BLOCKS	2000		/* or as many as a second takes */
#define BUSID	"1-2"

enum { ECHO = 1, SEND = 2 };

struct head {
	uint32_t op, reserved;
	uint64_t bytes;
	char fill[HEAD - 16];
};

static char data[1 << 16];

/* The peer's end is the end of this process, too. */
static void
write_all(int fd, const void *buf, size_t len)
{
	for (const char *p = buf; len > 0;) {
		ssize_t n = write(fd, p, len);

		if (n <= 0)
			exit(0);
		p += n;
		len -= (size_t)n;
	}
}

/* False: the end. */
static int
read_all(int fd, void *buf, size_t len)
{
	for (char *p = buf; len > 0;) {
		ssize_t n = read(fd, p, len);

		if (n <= 0)
			return 0;
		p += n;
		len -= (size_t)n;
	}
	return 1;
}

static void
answer_import(int fd)
{
	char request[40], reply[320] = { 0 };
	uint32_t numbers[3] = { htobe32(1), htobe32(2), htobe32(3) };
	uint16_t version = htobe16(0x0111), op = htobe16(3), ids[3] = { htobe16(0x1234), htobe16(0x5678), 0 };

	if (!read_all(fd, request, sizeof(request)))
		exit(0);
	memcpy(reply, &version, 2);
	memcpy(reply + 2, &op, 2);
	strcpy(reply + 8, "/sys/devices/pci0000:00/usb1/" BUSID);
	strcpy(reply + 264, BUSID);
	memcpy(reply + 296, numbers, sizeof(numbers));
	memcpy(reply + 308, ids, sizeof(ids));
	reply[317] = reply[318] = reply[319] = 1;
	write_all(fd, reply, sizeof(reply));
}

static void
serve(int fd, int import)
{
	struct head h;

	if (import)
		answer_import(fd);
	while (read_all(fd, &h, sizeof(h))) {
		if (h.op == ECHO)
			write_all(fd, &h, sizeof(h));
		for (uint64_t left = h.op == SEND ? h.bytes : 0; left > 0;) {
			size_t n = left < sizeof(data) ? (size_t)left : sizeof(data);

			write_all(fd, data, n);
			left -= n;
		}
	}
	exit(0);
}

static int
server(const char *address, int port)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	signal(SIGCHLD, SIG_IGN);
	inet_pton(AF_INET, address, &sin.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (bind(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0 || listen(fd, 16) < 0 || getsockname(fd, (struct sockaddr *)&sin, &len) < 0)
		return 1;
	printf("listening %d\n", ntohs(sin.sin_port));
	fflush(stdout);
	for (;;) {
		int c = accept(fd, NULL, NULL);

		if (c < 0 || fork() != 0) {
			close(c);
			continue;
		}
		setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		serve(c, port == 0);
	}
}

static int
dial(const char *where)
{
	const char *colon = strrchr(where, ':');
	char address[32] = "127.0.0.1";
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon != NULL ? colon + 1 : where)) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	if (colon != NULL)
		snprintf(address, sizeof(address), "%.*s", (int)(colon - where), where);
	inet_pton(AF_INET, address, &sin.sin_addr);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0) {
		perror(where);
		exit(1);
	}
	return fd;
}

/* As a USB disk is read: the command, then the data, then the status, each when the one before is there. How many blocks; 0: the end. */
static int
read_blocks(int fd)
{
	struct head echo = { .op = ECHO }, send = { .op = SEND, .bytes = BLOCK };
	double until = now() + 1;
	int i;

	for (i = 0; i < BLOCKS && now() < until; i++) {
		write_all(fd, &echo, sizeof(echo));
		if (!read_all(fd, &echo, sizeof(echo)))
			return 0;
		write_all(fd, &send, sizeof(send));
		if (!read_all(fd, data, BLOCK))
			return 0;
		write_all(fd, &echo, sizeof(echo));
		if (!read_all(fd, &echo, sizeof(echo)))
			return 0;
	}
	return i;
}

static int
client(int fd, int pings, uint64_t bytes, int disk)
{
	struct head h = { .op = ECHO };
	double *times = calloc((size_t)pings + 1, sizeof(*times)), begin;
	uint64_t left = bytes;
	int blocks;

	for (int i = -50; i < pings; i++) {	/* the first ones warm up */
		begin = now();
		write_all(fd, &h, sizeof(h));
		if (!read_all(fd, &h, sizeof(h)))
			return 1;
		times[i < 0 ? 0 : i] = now() - begin;
	}
	report("rtt_us", quantile(times, (size_t)pings, 0.5) * 1e6);
	report("rtt_p99_us", quantile(times, (size_t)pings, 0.99) * 1e6);
	if (disk) {
		begin = now();
		blocks = read_blocks(fd);
		if (blocks == 0)
			return 1;
		report("disk_MBps", (double)BLOCK * blocks / (now() - begin) / 1e6);
	}
	h = (struct head){ .op = SEND, .bytes = bytes };
	begin = now();
	write_all(fd, &h, sizeof(h));
	while (left > 0) {
		ssize_t n = read(fd, data, sizeof(data));

		if (n <= 0)
			return 1;
		left -= (uint64_t)n;
	}
	report("MBps", (double)bytes / (now() - begin) / 1e6);
	return 0;
}

int
main(int argc, char **argv)
{
	char import[40] = "", reply[320];
	int fd;

	signal(SIGPIPE, SIG_IGN);
	if (argc >= 2 && strcmp(argv[1], "server") == 0)
		return server(argc == 4 ? argv[2] : "127.0.0.1", argc == 4 ? atoi(argv[3]) : 0);
	if (argc != 5 || strcmp(argv[1], "client") != 0)
		return 2;
	fd = strcmp(argv[2], "fd") == 0 ? 0 : dial(argv[2]);
	if (fd != 0 && strchr(argv[2], ':') == NULL) {
		write_all(fd, import, sizeof(import));
		if (!read_all(fd, reply, sizeof(reply)))
			return 1;
	}
	return client(fd, atoi(argv[3]), strtoull(argv[4], NULL, 10) << 20, strchr(argv[2], ':') == NULL && atoi(argv[3]) >= 100);
}
