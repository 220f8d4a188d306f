/* workloads, logs, signal, drain and undrain: what workerd answers for. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/near.h"
#include "common/parse.h"
#include "edgectl/client.h"
#include "edgectl/edgectl.h"

#define COLS		8
#define CELL		208	/* as long as the longest field of a workload */
#define ROWS_MAX	2048	/* twice as many workloads as a device may run at once */

static struct client *
open_workerd(struct edgectl *ctl)
{
	static struct client c;

	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	return &c;
}

/* Closes and complains in one. */
static int
failed(struct client *c, const char *what)
{
	int code = client_complain(c, what);

	client_close(c);
	return code;
}

/* ---- workloads ---- */

struct list {
	yajl_gen g;			/* NULL: a table */
	char (*cells)[COLS][CELL];	/* nrows of them, the head first */
	size_t nrows;
};

static void
json_workload(yajl_gen g, const struct work_workload *w, const char *command)
{
	json_open(g, NULL, '{');
	json_str(g, "handle", w->handle);
	json_str(g, "command", command);
	json_str(g, "state", name_of_state(w->state));
	json_str(g, "outcome", name_of_outcome(w->outcome));
	json_str(g, "limit", name_of_limit(w->limit));
	json_int(g, "pid", w->pid);
	json_int(g, "exit_code", w->exit_code);
	json_int(g, "term_signal", w->term_signal);
	json_time(g, "started_at", w->started_at);
	json_time(g, "finished_at", w->finished_at);
	json_uint(g, "produced", w->produced);
	json_uint(g, "retained_from", w->retained_from);
	json_uint(g, "gaps", w->gaps);
	json_uint(g, "cpu_ms", work_over_disk(w) ? 0 : w->cpu_ms);
	json_uint(g, "mem_peak_kb", work_over_disk(w) ? 0 : w->mem_peak_kb);
	json_bool(g, "disowned", (w->flags & WORK_F_DISOWNED) != 0);
	json_bool(g, "waits", (w->flags & WORK_F_WAITS) != 0);
	json_str(g, "error", w->error);
	json_close(g, '}');
}

static void
outcome_text(const struct work_workload *w, char *buf, size_t size)
{
	if (w->state != WORK_ENDED)
		buf[0] = '\0';
	else if (w->outcome == WORK_OUTCOME_EXITED)
		snprintf(buf, size, "exited %d", w->exit_code);
	else if (w->term_signal > 0)
		snprintf(buf, size, "%s, signal %d", name_of_outcome(w->outcome), w->term_signal);
	else
		snprintf(buf, size, "%s", name_of_outcome(w->outcome));
}

static void
on_workload(const struct work_workload *w, const char *command, void *ctx)
{
	struct list *list = ctx;
	char (*row)[CELL];

	if (list->g != NULL) {
		json_workload(list->g, w, command);
		return;
	}
	if (list->nrows == ROWS_MAX)
		return;
	row = list->cells[list->nrows++];
	snprintf(row[0], CELL, "%s", w->handle);
	snprintf(row[1], CELL, "%s", name_of_state(w->state));
	snprintf(row[2], CELL, "%d", w->pid);
	snprintf(row[3], CELL, "%s", w->started_at != 0 ? out_time(w->started_at) : "-");
	snprintf(row[4], CELL, "%s", out_bytes(w->produced));
	outcome_text(w, row[5], CELL);
	snprintf(row[6], CELL, "%s", (w->flags & WORK_F_WAITS) != 0 ? "waits: the hub takes no more of its output now" : w->error);
	snprintf(row[7], CELL, "%s", command);
}

static void
print_list(struct list *list)
{
	static const char *const head[COLS] = { "HANDLE", "STATE", "PID", "STARTED", "OUTPUT", "OUTCOME", "ERROR", "COMMAND" };
	const char **cells = calloc(list->nrows * COLS, sizeof(*cells));

	if (cells == NULL)
		return;
	for (size_t i = 0; i < COLS; i++)
		cells[i] = head[i];
	for (size_t row = 1; row < list->nrows; row++)
		for (size_t col = 0; col < COLS; col++)
			cells[row * COLS + col] = list->cells[row][col];
	out_table(cells, list->nrows, COLS);
	free(cells);
}

int
cmd_workloads(struct edgectl *ctl, int argc, char **argv)
{
	struct list list = { .nrows = 1 };
	struct client *c;

	if (argc > 1)
		return no_arguments(argc, argv);
	c = open_workerd(ctl);
	list.cells = calloc(ROWS_MAX, sizeof(*list.cells));
	if (list.cells == NULL)
		return EXIT_FAILED;
	if (ctl->json) {
		list.g = json_begin();
		json_open(list.g, "workloads", '[');
	}
	c->workload = on_workload;
	c->ctx = &list;
	client_call(c, CTL_REQ_WORKLOADS, NULL, 0, CLIENT_WAIT_MS);
	/* The document is finished in any case: what is there is right, and "complete" says whether it is all. */
	if (list.g != NULL) {
		json_close(list.g, ']');
		json_bool(list.g, "complete", client_answer(c, NULL, 0));
		json_end(list.g);
	} else if (client_answer(c, NULL, 0)) {
		print_list(&list);
	}
	free(list.cells);
	if (!client_answer(c, NULL, 0))
		return failed(c, "workloads");
	client_close(c);
	return EXIT_OK;
}

/* ---- logs ---- */

struct tail {
	struct ctl_logs req;
	bool follow;
};

static int
parse_logs(int argc, char **argv, struct tail *tail)
{
	bool handle = false, operands = false;

	for (int i = 1; i < argc; i++) {
		if (!operands && strcmp(argv[i], "--") == 0) {
			operands = true;
		} else if (!operands && strcmp(argv[i], "-f") == 0) {
			tail->follow = true;
		} else if (!operands && strcmp(argv[i], "--from") == 0) {
			if (++i == argc || parse_u64(argv[i], 0, INT64_MAX, &tail->req.from) < 0)
				return usage_error("logs", "--from wants a byte offset");
		} else if (!operands && argv[i][0] == '-') {
			return usage_error("logs", "no option %s", argv[i]);
		} else if (handle || !handle_ok(argv[i])) {
			return usage_error("logs", handle ? "one HANDLE" : "%s is not a handle", argv[i]);
		} else {
			memcpy(tail->req.handle, argv[i], strlen(argv[i]));
			handle = true;
		}
	}
	tail->req.max = CTL_LOG_MAX;
	return handle ? 0 : usage_error("logs", "HANDLE is missing");
}

/* Prints one answer and moves on. 1 = more may come, 0 = that was all, -errno of the output. */
static int
print_chunk(struct tail *tail, const struct client *c)
{
	struct ctl_log_data head;
	size_t len = c->len - sizeof(head);
	int r;

	memcpy(&head, c->answer, sizeof(head));
	if (head.offset < tail->req.from)
		return -EPROTO;
	if (head.offset > tail->req.from)
		fprintf(stderr, "edgectl: bytes %" PRIu64 " to %" PRIu64 " are no longer held here (%s); what the hub has: edgehub logs %s\n",
		    tail->req.from, head.offset, name_of_gap(head.reason), tail->req.handle);
	r = fd_write_all(STDOUT_FILENO, c->answer + sizeof(head), len);
	if (r < 0)
		return r;
	tail->req.from = head.offset + len;
	if ((head.flags & CTL_LOG_EOF) != 0)
		return 0;
	return len > 0 || tail->follow;
}

int
cmd_logs(struct edgectl *ctl, int argc, char **argv)
{
	struct tail tail = { 0 };
	struct client *c;
	int r;

	if ((argc == 3 || (argc == 4 && strcmp(argv[2], "--") == 0)) && strcmp(argv[1], "verify") == 0 && strcmp(argv[argc - 1], "-f") != 0)
		return cmd_logs_verify(ctl, argv[argc - 1]);
	r = parse_logs(argc, argv, &tail);
	if (r != 0)
		return r;
	tail.req.flags = tail.follow ? CTL_LOGS_WAIT : 0;
	c = open_workerd(ctl);
	client_wait_hello(c, CLIENT_WAIT_MS);
	do {	/* with -f the answer comes when there is something to say, and the daemon is known to be there */
		client_call(c, CTL_REQ_LOGS, &tail.req, sizeof(tail.req), tail.follow ? -1 : CLIENT_WAIT_MS);
		if (c->answered && c->status == -ENOENT)
			break;
		if (!c->answered || c->status != 0 || c->len < sizeof(struct ctl_log_data))
			return failed(c, "logs");
		r = print_chunk(&tail, c);
	} while (r > 0);
	client_close(c);
	if (c->status == -ENOENT)
		fprintf(stderr, "edgectl: logs: no workload %s is known\n", tail.req.handle);
	else if (r < 0)
		fprintf(stderr, "edgectl: output: %s\n", strerror(-r));
	return r < 0 || c->status != 0 ? EXIT_FAILED : EXIT_OK;
}

/* ---- signal ---- */

static int
signal_number(const char *s)
{
	static const struct { const char *name; int signo; } table[] = {
		{ "INT", SIGINT }, { "TERM", SIGTERM }, { "KILL", SIGKILL },
	};

	if (strncasecmp(s, "SIG", 3) == 0)
		s += 3;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (strcasecmp(s, table[i].name) == 0)
			return table[i].signo;
	return 0;
}

int
cmd_signal(struct edgectl *ctl, int argc, char **argv)
{
	struct work_signal req = { 0 };
	struct work_answer ans;
	struct client *c;

	near_drop_dashes(&argc, &argv);
	if (argc != 3)
		return usage_error("signal", "HANDLE and one of INT, TERM, KILL");
	if (!handle_ok(argv[1]))
		return usage_error("signal", "%s is not a handle", argv[1]);
	req.signo = signal_number(argv[2]);
	if (req.signo == 0)
		return usage_error("signal", "%s is not one of INT, TERM, KILL", argv[2]);
	memcpy(req.handle, argv[1], strlen(argv[1]));
	c = open_workerd(ctl);
	client_call(c, CTL_REQ_SIGNAL, &req, sizeof(req), CLIENT_WAIT_MS);
	if (!client_answer(c, &ans, sizeof(ans)) || !ipc_str_ok(ans.error, sizeof(ans.error)))
		return failed(c, "signal");
	client_close(c);
	if (ans.refusal == WORK_OK) {
		if (ctl->json)
			puts("{\"ok\": true}");
		return EXIT_OK;
	}
	fprintf(stderr, "edgectl: signal: %s%s%s\n", name_of_refusal(ans.refusal), ans.error[0] != '\0' ? ": " : "",
	    out_safe(ans.error));
	return EXIT_FAILED;
}

/* ---- drain ---- */

static int
drain(struct edgectl *ctl, uint32_t on, const char *what)
{
	struct ctl_drain req = { .on = on }, ans;
	struct client *c = open_workerd(ctl);

	client_call(c, CTL_REQ_DRAIN, &req, sizeof(req), CLIENT_WAIT_MS);
	if (!client_answer(c, &ans, sizeof(ans)))
		return failed(c, what);
	client_close(c);
	if (ctl->json) {
		yajl_gen g = json_begin();

		json_bool(g, "draining", ans.on != 0);
		json_uint(g, "active", ans.active);
		json_end(g);
	} else if (ans.on != 0) {
		printf("draining: no new work is taken, %u still run\n", ans.active);
	} else {
		printf("not draining: new work is taken, %u run\n", ans.active);
	}
	return EXIT_OK;
}

int
cmd_drain(struct edgectl *ctl, int argc, char **argv)
{
	return argc > 1 ? no_arguments(argc, argv) : drain(ctl, 1, "drain");
}

int
cmd_undrain(struct edgectl *ctl, int argc, char **argv)
{
	return argc > 1 ? no_arguments(argc, argv) : drain(ctl, 0, "undrain");
}
