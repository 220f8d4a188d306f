/*
 * Floors: what this machine can do at best, measured in the same round as the agents.
 *   floor tls16 MIB CERT KEY   one process SSL_write()s 16 KiB at a time to another over loopback, AES-256-GCM
 *   floor ipc MIB              records of 64 KiB over an AF_UNIX SOCK_SEQPACKET pair
 *   floor spawn COUNT          posix_spawn of echo, first byte out of its pipe
 *   floor cmd COUNT WINDOW ARGV...   COUNT runs, WINDOW in flight: first byte, end, runs a second
 *   floor confined-spawn COUNT; floor confined-cmd COUNT WINDOW ARGV...   the same in the kernel's part of the full sandbox (confined.c)
 *   floor least-spawn COUNT; floor least-cmd COUNT WINDOW ARGV...   the same in the kernel's part of the least sandbox (least.c)
 *   floor drain                reads standard input to its end: MB/s
 *   floor terminal ARGV...     runs it in a terminal that is raw, and reads what it shows from the first byte to the last
 *   floor relay ARGV...        runs it in a terminal that is raw, and writes what it shows to standard output: "floor terminal floor relay ARGV" is
 *                              two terminals, one behind the other, with as little between them as can be
 *   floor echo COUNT ARGV...   the same as terminal for something that echoes: one byte typed, until it is seen, COUNT times, 20 ms apart
 * One figure a line on standard output: name, tab, value.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>

#include "bench.h"
#include "confined.h"

extern char **environ;

#define FLOOR_WINDOW_MAX 256

static void
stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	/* With one CPU only there is nothing to choose. */
	(void)sched_setaffinity(0, sizeof(set), &set);
}

static void
tls_reader(int listener, const char *cert, const char *key, int result)
{
	stay_on(1);
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1 ||
	    SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
		die("certificate");
	int fd = accept(listener, NULL, NULL);
	SSL *ssl = SSL_new(ctx);
	SSL_set_fd(ssl, fd);
	if (SSL_accept(ssl) != 1) {
		ERR_print_errors_fp(stderr);
		_exit(1);
	}
	static char buf[65536];
	double bytes = 0;
	int n;
	while ((n = SSL_read(ssl, buf, sizeof(buf))) > 0)
		bytes += n;
	if (write(result, &bytes, sizeof(bytes)) != sizeof(bytes))
		_exit(1);
	_exit(0);
}

static void
tls16(unsigned long mib, const char *cert, const char *key)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t alen = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0), result[2], one = 1;
	if (bind(listener, (struct sockaddr *)&a, alen) != 0 || listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &alen) != 0 || pipe(result) != 0)
		die("listen");
	pid_t reader = fork();
	if (reader == 0)
		tls_reader(listener, cert, key, result[1]);
	stay_on(0);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&a, alen) != 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL_CTX_set_ciphersuites(ctx, "TLS_AES_256_GCM_SHA384");
	SSL *ssl = SSL_new(ctx);
	SSL_set_fd(ssl, fd);
	if (SSL_connect(ssl) != 1) {
		ERR_print_errors_fp(stderr);
		exit(1);
	}
	static char buf[16384];
	memset(buf, 'x', sizeof(buf));
	double t0 = now();
	for (unsigned long i = 0; i < mib * 64; i++)
		if (SSL_write(ssl, buf, sizeof(buf)) <= 0)
			die("SSL_write");
	SSL_shutdown(ssl);
	shutdown(fd, SHUT_WR);
	double bytes = 0;
	if (read(result[0], &bytes, sizeof(bytes)) != sizeof(bytes))
		die("result");
	double elapsed = now() - t0;
	waitpid(reader, NULL, 0);
	report("MBps", bytes / elapsed / 1e6);
}

static void
ipc(unsigned long mib)
{
	int s[2], big = 1 << 20;
	static char buf[65536];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s) != 0)
		die("socketpair");
	for (int i = 0; i < 2; i++)
		if (setsockopt(s[i], SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof(big)) != 0)
			(void)setsockopt(s[i], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	memset(buf, 'x', sizeof(buf));
	double t0 = now();
	pid_t writer = fork();
	if (writer == 0) {
		close(s[0]);
		for (unsigned long i = 0; i < mib * 16; i++)
			if (send(s[1], buf, sizeof(buf), 0) < 0)
				_exit(1);
		_exit(0);
	}
	close(s[1]);
	double bytes = 0;
	ssize_t n;
	while ((n = recv(s[0], buf, sizeof(buf), 0)) > 0)
		bytes += (double)n;
	report("MBps", bytes / (now() - t0) / 1e6);
	waitpid(writer, NULL, 0);
}

static enum { PLAIN, CONFINED, LEAST } confinement;

/* One run in flight. */
struct run {
	int fd;
	pid_t pid;
	double start;
	size_t index;
};

static void
start(struct run *r, char **argv)
{
	int p[2];
	posix_spawn_file_actions_t fa;

	if (pipe2(p, O_CLOEXEC) != 0)
		die("pipe2");
	if (confinement != PLAIN) {
		r->start = now();
		r->pid = confinement == CONFINED ? confined_start(p[1], argv) : least_start(r->index, p[1], argv);
		if (r->pid < 0)
			die("fork");
		close(p[1]);
		r->fd = p[0];
		return;
	}
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_adddup2(&fa, p[1], 1);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	r->start = now();
	if (posix_spawnp(&r->pid, argv[0], &fa, NULL, argv, environ) != 0)
		die(argv[0]);
	posix_spawn_file_actions_destroy(&fa);
	close(p[1]);
	r->fd = p[0];
}

/* True when the run is over; notes its times. */
static bool
advance(struct run *r, double *first, double *end)
{
	char buf[4096];
	int status;

	ssize_t n = read(r->fd, buf, sizeof(buf));
	double t = (now() - r->start) * 1e3;
	if (n > 0) {
		if (first[r->index] == 0)
			first[r->index] = t;
		return false;
	}
	close(r->fd);
	if (waitpid(r->pid, &status, 0) != r->pid || status != 0)
		fprintf(stderr, "run %zu: status 0x%x\n", r->index, (unsigned)status);
	if (confinement == LEAST)
		least_end(r->index);
	end[r->index] = (now() - r->start) * 1e3;
	if (first[r->index] == 0)
		first[r->index] = end[r->index];
	return true;
}

static void
runs(size_t count, size_t window, char **argv)
{
	double *first = calloc(count, sizeof(*first)), *end = calloc(count, sizeof(*end)), t0 = now();
	struct run live[FLOOR_WINDOW_MAX];
	struct pollfd pfd[FLOOR_WINDOW_MAX];
	size_t started = 0, nlive = 0;

	if (first == NULL || end == NULL || window == 0 || window > FLOOR_WINDOW_MAX)
		exit(2);
	while (started < count || nlive > 0) {
		for (; nlive < window && started < count; nlive++) {
			live[nlive].index = started++;
			start(&live[nlive], argv);
		}
		for (size_t i = 0; i < nlive; i++)
			pfd[i] = (struct pollfd){ .fd = live[i].fd, .events = POLLIN };
		poll(pfd, nlive, -1);
		for (size_t i = nlive; i-- > 0;)
			if (pfd[i].revents != 0 && advance(&live[i], first, end))
				live[i] = live[--nlive];
	}
	report("runs_per_s", (double)count / (now() - t0));
	report("first_p50_ms", quantile(first, count, 0.5));
	report("first_p99_ms", quantile(first, count, 0.99));
	report("end_p50_ms", quantile(end, count, 0.5));
	free(first);
	free(end);
}

static void
drain(void)
{
	static char buf[1 << 20];
	double bytes = 0, t0 = 0;
	ssize_t n;

	while ((n = read(0, buf, sizeof(buf))) > 0) {
		if (t0 == 0)
			t0 = now();
		bytes += (double)n;
	}
	report("bytes", bytes);
	report("MBps", bytes / (now() - t0) / 1e6);
}

/* The master's end of a terminal in which argv runs. */
static int
in_terminal(char **argv, pid_t *ret_pid)
{
	struct winsize size = { .ws_row = 24, .ws_col = 80 };
	struct termios raw = { 0 };
	int fd;

	cfmakeraw(&raw);
	raw.c_cc[VMIN] = 1;
	*ret_pid = forkpty(&fd, NULL, &raw, &size);
	if (*ret_pid < 0)
		die("forkpty");
	if (*ret_pid == 0) {
		execvp(argv[0], argv);
		_exit(127);
	}
	return fd;
}

static void
ended(pid_t pid)
{
	int status;

	waitpid(pid, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		printf("failed\tthe program in the terminal: status %x\n", (unsigned)status);
}

static void
terminal(char **argv)
{
	static char buf[1 << 16];
	double bytes = 0, t0 = 0, t1 = 0;
	ssize_t n;
	pid_t pid;
	int fd = in_terminal(argv, &pid);

	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		t1 = now();
		t0 = t0 == 0 ? t1 : t0;
		bytes += (double)n;
	}
	report("bytes", bytes);
	report("MBps", bytes / (t1 - t0) / 1e6);
	ended(pid);
}

/* One way: nothing is typed. */
static void
relay(char **argv)
{
	static char buf[1 << 16];
	ssize_t n, done;
	pid_t pid;
	int fd = in_terminal(argv, &pid);

	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t at = 0; at < n; at += done) {
			done = write(STDOUT_FILENO, buf + at, (size_t)(n - at));
			if (done <= 0)
				die("write");
		}
	}
	ended(pid);
}

static void
echoes(size_t count, char **argv)
{
	double *times = calloc(count, sizeof(*times));
	char c;
	pid_t pid;
	int fd = in_terminal(argv, &pid);

	if (times == NULL || read(fd, &c, 1) != 1)	/* it says that it is ready */
		die("the program in the terminal");
	for (size_t i = 0; i < count; i++) {
		double t0 = now();

		if (write(fd, "x", 1) != 1 || read(fd, &c, 1) != 1)
			die("the program in the terminal");
		times[i] = now() - t0;
		usleep(20000);
	}
	report("max_ms", quantile(times, count, 1) * 1e3);
	report("p99_ms", quantile(times, count, 0.99) * 1e3);
	report("p50_ms", quantile(times, count, 0.5) * 1e3);
	free(times);
	kill(pid, SIGTERM);
	waitpid(pid, NULL, 0);
}

int
main(int argc, char **argv)
{
	static char *echo[] = { "/bin/echo", "x", NULL };
	const char *what = argc > 1 ? argv[1] : "";

	confinement = strncmp(what, "confined-", 9) == 0 ? CONFINED : strncmp(what, "least-", 6) == 0 ? LEAST : PLAIN;
	what += confinement == CONFINED ? 9 : confinement == LEAST ? 6 : 0;
	if (strcmp(what, "tls16") == 0 && argc == 5)
		tls16(number(argv[2]), argv[3], argv[4]);
	else if (strcmp(what, "ipc") == 0 && argc == 3)
		ipc(number(argv[2]));
	else if (strcmp(what, "spawn") == 0 && argc == 3)
		runs(number(argv[2]), 1, echo);
	else if (strcmp(what, "cmd") == 0 && argc > 4)
		runs(number(argv[2]), number(argv[3]), argv + 4);
	else if (strcmp(what, "terminal") == 0 && argc > 2)
		terminal(argv + 2);
	else if (strcmp(what, "relay") == 0 && argc > 2)
		relay(argv + 2);
	else if (strcmp(what, "echo") == 0 && argc > 3)
		echoes(number(argv[2]), argv + 3);
	else if (strcmp(what, "drain") == 0)
		drain();
	else {
		fprintf(stderr, "usage: floor tls16 MIB CERT KEY | ipc MIB | [confined-|least-]spawn N | [confined-|least-]cmd N WINDOW ARGV... | drain |\n"
		    "    terminal ARGV... | relay ARGV... | echo N ARGV...\n");
		return 2;
	}
	return 0;
}
