/*
 * The hub of the benchmarks: one driver for our agent (both dialects) and for the peers, so that all are measured
 * against the same far end.
 *   sink ADDRESS PORT CERT KEY cloop|edgeward.1|deaf     (PORT 0: any; deaf: listens only after "listen")
 * Commands on standard input, one a line; figures (name, tab, value) and then "done" on standard output:
 *   wait                        until an agent is connected
 *   stream BYTES | lines COUNT  run gen (in $BENCH_BIN), count its output: MBps, bytes, bytes_per_frame
 *   latency COUNT               COUNT times echo, one after the other: first byte and end, ms
 *   burst COUNT WINDOW          COUNT times /bin/true, WINDOW in flight: runs_per_s
 *   reject COUNT                refuse the next COUNT connections, by turns in every way a hub can fail
 *   drop | deaf | listen        close the connection; stop and resume listening
 * Lines that start with "event" may come at any time: "event listening PORT", "event connected DIALECT SECONDS"
 * (CLOCK_MONOTONIC), "event gone".
 */
#include <poll.h>
#include <signal.h>

#include "bench.h"
#include "conn.h"
#include "hub.h"

static const char *address;
static int port;
static bool allow_edgeward1;

/* Connected means: its hello was answered (our agent), or it is upgraded (a peer). */
static void
take_connection(void)
{
	enum conn_path path;
	bool enroll;

	if (conn_is_open())
		printf("event gone\n");
	if (conn_accept(allow_edgeward1, &path, &enroll) && hub_begin(path, enroll))
		printf("event connected %s %.6f\n",
		    path == CONN_PEER ? "peer" : path == CONN_CLOOP ? "cloop" : "edgeward.1", now());
	else
		conn_close();
	fflush(stdout);
}

static void
lose_connection(void)
{
	conn_close();
	printf("event gone\n");
	fflush(stdout);
}

/* Serves the connection until an event a command waits for; false when the agent went away. */
static bool
next(struct hub_event *ev)
{
	do {
		if (!hub_next(ev)) {
			printf("failed\tthe agent went away\n");
			lose_connection();
			return false;
		}
	} while (ev->kind == HUB_NOTHING);
	return true;
}

static void
output_of(const char *mode, const char *amount)
{
	const char *bin = getenv("BENCH_BIN");
	char gen[512], piece[64];
	double bytes = 0, frames = 0, t0 = now();
	struct hub_event ev = { 0 };

	snprintf(gen, sizeof(gen), "%s/gen", bin != NULL ? bin : ".");
	snprintf(piece, sizeof(piece), "%lu", number(amount));
	if (!hub_start((const char *[]){ gen, mode, piece, NULL }))
		return;
	while (ev.kind != HUB_ENDED) {
		if (!next(&ev))
			return;
		if (ev.kind == HUB_OUTPUT) {
			bytes += (double)ev.bytes;
			frames++;
		}
	}
	double want = (double)number(amount) * (strcmp(mode, "lines") == 0 ? 80 : 1);
	if (bytes != want)
		printf("failed\t%.0f bytes of %.0f\n", bytes, want);
	report("seconds", now() - t0);
	report("MBps", bytes / (now() - t0) / 1e6);
	report("bytes", bytes);
	report("bytes_per_frame", frames > 0 ? bytes / frames : 0);
}

static void
latency(size_t count)
{
	double *first = calloc(count, sizeof(*first)), *end = calloc(count, sizeof(*end));

	for (size_t i = 0; i < count; i++) {
		double t0 = now();
		struct hub_event ev = { 0 };
		if (!hub_start((const char *[]){ "/bin/echo", "x", NULL }))
			break;
		while (ev.kind != HUB_ENDED && next(&ev))
			if (ev.kind == HUB_OUTPUT && first[i] == 0)
				first[i] = (now() - t0) * 1e3;
		if (ev.kind != HUB_ENDED)
			break;
		end[i] = (now() - t0) * 1e3;
		if (first[i] == 0)
			first[i] = end[i];
	}
	report("first_p50_ms", quantile(first, count, 0.5));
	report("first_p99_ms", quantile(first, count, 0.99));
	report("end_p50_ms", quantile(end, count, 0.5));
	report("end_p99_ms", quantile(end, count, 0.99));
	free(first);
	free(end);
}

static void
burst(size_t count, size_t window)
{
	static const char *const argv[] = { "/bin/true", NULL };
	size_t started = 0, ended = 0;
	double t0 = now();
	struct hub_event ev;

	while (started < count && started < window && hub_start(argv))
		started++;
	while (ended < count) {
		if (!next(&ev))
			return;
		if (ev.kind != HUB_ENDED)
			continue;
		ended++;
		if (started < count && hub_start(argv))
			started++;
	}
	report("seconds", now() - t0);
	report("runs_per_s", (double)count / (now() - t0));
}

static void
reject(size_t count)
{
	if (conn_is_open())
		lose_connection();
	conn_listen(address, port);
	for (size_t i = 0; i < count; i++)
		conn_reject((enum conn_reject)(i % REJECT_KINDS));
	report("rejected", (double)count);
}

static void
command(char *line)
{
	char what[16] = "", a[24] = "0", b[24] = "0";

	if (sscanf(line, "%15s %23s %23s", what, a, b) < 1)
		return;
	if (strcmp(what, "wait") == 0)
		while (!conn_is_open())
			take_connection();
	else if (strcmp(what, "stream") == 0 || strcmp(what, "lines") == 0)
		output_of(what, a);
	else if (strcmp(what, "latency") == 0)
		latency(number(a));
	else if (strcmp(what, "burst") == 0)
		burst(number(a), number(b));
	else if (strcmp(what, "reject") == 0)
		reject(number(a));
	else if (strcmp(what, "drop") == 0)
		lose_connection();
	else if (strcmp(what, "deaf") == 0)
		conn_deaf();
	else if (strcmp(what, "listen") == 0)
		conn_listen(address, port);
	else
		printf("failed\tno such command\n");
	printf("done\n");
	fflush(stdout);
}

int
main(int argc, char **argv)
{
	char line[256];
	struct hub_event ev;

	if (argc != 6) {
		fprintf(stderr, "usage: sink ADDRESS PORT CERT KEY cloop|edgeward.1\n");
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdin, NULL, _IONBF, 0);
	address = argv[1];
	allow_edgeward1 = strcmp(argv[5], "edgeward.1") == 0;
	conn_setup(argv[3], argv[4]);
	port = conn_listen(address, (int)number(argv[2]));
	printf("event listening %d\n", port);
	fflush(stdout);
	for (;;) {
		struct pollfd pfd[3] = {
			{ .fd = 0, .events = POLLIN },
			{ .fd = conn_listener(), .events = POLLIN },
			{ .fd = conn_fd(), .events = POLLIN },
		};
		bool ready = conn_has_data();
		poll(pfd, 3, ready ? 0 : -1);
		if (pfd[0].revents != 0) {
			if (fgets(line, sizeof(line), stdin) == NULL)
				return 0;
			command(line);
		} else if (pfd[1].revents != 0) {
			take_connection();
		} else if ((ready || pfd[2].revents != 0) && !hub_next(&ev)) {
			lose_connection();
		}
	}
}
