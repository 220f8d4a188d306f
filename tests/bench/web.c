/*
 * Both ends of small and large HTTP requests, for what a proxied service costs:
 *   web server                           "listening PORT"; GET /N answers N bytes; every connection in a process of its own
 *   web client PORT REQUESTS WIDE MIB    REQUESTS of 64 bytes one after the other, as many on WIDE connections together, one of MIB
 * Figures, a line each: rtt_us (median), requests_per_s, MBps.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bench.h"

#define SMALL	64

static char data[1 << 16];

static void
write_all(int fd, const char *p, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n <= 0)
			exit(0);
		p += n;
		len -= (size_t)n;
	}
}

/* A head, up to its empty line, into data; what comes behind is left in the socket. */
static char *
read_head(int fd)
{
	size_t n = 0;

	while (n < sizeof(data) - 1) {
		ssize_t got = recv(fd, data + n, sizeof(data) - 1 - n, MSG_PEEK);
		char *end;

		if (got <= 0)
			return NULL;
		data[n + (size_t)got] = '\0';
		end = strstr(data, "\r\n\r\n");
		got = end != NULL ? end + 4 - (data + n) : got;
		if (recv(fd, data + n, (size_t)got, 0) != got)
			return NULL;
		n += (size_t)got;
		data[n] = '\0';
		if (end != NULL)
			return data;
	}
	return NULL;
}

static void
serve(int fd)
{
	char head[128], *request;

	while ((request = read_head(fd)) != NULL) {
		unsigned long long left = strncmp(request, "GET /", 5) == 0 ? strtoull(request + 5, NULL, 10) : 0;
		int n = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n", left);

		memset(data, 'x', sizeof(data));
		if (left <= SMALL) {		/* as a server would: one write */
			memset(head + n, 'x', (size_t)left);
			write_all(fd, head, (size_t)n + (size_t)left);
			continue;
		}
		write_all(fd, head, (size_t)n);
		while (left > 0) {
			size_t piece = left < sizeof(data) ? (size_t)left : sizeof(data);

			write_all(fd, data, piece);
			left -= piece;
		}
	}
	exit(0);
}

static int
server(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	signal(SIGCHLD, SIG_IGN);
	if (bind(fd, (struct sockaddr *)&sin, len) < 0 || listen(fd, 64) < 0 || getsockname(fd, (struct sockaddr *)&sin, &len) < 0)
		return 1;
	printf("listening %d\n", ntohs(sin.sin_port));
	fflush(stdout);
	for (;;) {
		int c = accept(fd, NULL, NULL);

		if (c >= 0 && fork() == 0) {
			setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
			serve(c);
		}
		close(c);
	}
}

static int port;

static int
dial(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&sin, sizeof(sin)) < 0)
		die("connect");
	return fd;
}

/* One request; its body is counted, not kept. */
static void
get(int fd, unsigned long long bytes)
{
	char request[128], *head, *p;
	unsigned long long left;

	write_all(fd, request, (size_t)snprintf(request, sizeof(request), "GET /%llu HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", bytes, port));
	head = read_head(fd);
	p = head != NULL && strncmp(head, "HTTP/1.1 200", 12) == 0 ? strcasestr(head, "\ncontent-length:") : NULL;
	left = p != NULL ? strtoull(p + 16, NULL, 10) : 0;
	if (left != bytes) {
		printf("failed\tan answer that is none: %.60s\n", head != NULL ? head : "the end");
		exit(1);
	}
	while (left > 0) {
		ssize_t n = read(fd, data, left < sizeof(data) ? (size_t)left : sizeof(data));

		if (n <= 0)
			exit(1);
		left -= (unsigned long long)n;
	}
}

static void
wide(unsigned long requests, unsigned long width)
{
	double begin = now();
	int status, bad = 0;

	for (unsigned long i = 0; i < width; i++) {
		if (fork() == 0) {
			int fd = dial();

			for (unsigned long k = 0; k < requests / width; k++)
				get(fd, SMALL);
			exit(0);
		}
	}
	while (wait(&status) > 0)
		bad += status != 0;
	if (bad > 0)
		exit(1);
	report("requests_per_s", (double)(requests / width * width) / (now() - begin));
}

static int
client(unsigned long requests, unsigned long width, unsigned long mib)
{
	double *times = calloc(requests, sizeof(*times)), begin;
	int fd = dial();

	for (unsigned i = 0; i < 20; i++)
		get(fd, SMALL);
	for (unsigned long i = 0; i < requests; i++) {
		begin = now();
		get(fd, SMALL);
		times[i] = now() - begin;
	}
	report("rtt_us", quantile(times, requests, 0.5) * 1e6);
	free(times);
	wide(requests, width);
	begin = now();
	get(fd, (unsigned long long)mib << 20);
	report("MBps", (double)mib * 1048576 / (now() - begin) / 1e6);
	return 0;
}

int
main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc == 2 && strcmp(argv[1], "server") == 0)
		return server();
	if (argc != 6 || strcmp(argv[1], "client") != 0)
		return 2;
	port = (int)number(argv[2]);
	return client(number(argv[3]), number(argv[4]), number(argv[5]));
}
