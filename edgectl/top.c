/*
 * top: workloads with what they use now. workerd says what there is and how much output; processor and memory are the kernel's, read
 * from the cgroup of the workload's main process, or from /proc where it has none of its own.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/parse.h"
#include "edgectl/client.h"
#include "edgectl/edgectl.h"

#define ROWS_MAX	1024
#define COLS		9
#define CELL		80
#define CGROUP		"/sys/fs/cgroup"

struct use {
	struct work_workload w;
	char command[WORK_COMMAND_SIZE];
	uint64_t cpu_us, memory;	/* UINT64_MAX = not known */
};

struct sample {
	monotime_t at;
	size_t n;
	struct use *all;		/* ROWS_MAX */
};

static void
on_workload(const struct work_workload *w, const char *command, void *ctx)
{
	struct sample *s = ctx;

	if (s->n == ROWS_MAX)
		return;
	s->all[s->n] = (struct use){ .w = *w, .cpu_us = UINT64_MAX, .memory = UINT64_MAX };
	snprintf(s->all[s->n].command, sizeof(s->all[s->n].command), "%s", command);
	s->n++;
}

/* The rest of the line that begins with key, digits only; key "" takes the first line. */
static bool
read_value(const char *path, const char *key, uint64_t *ret)
{
	_cleanup_fclose_ FILE *f = fopen(path, "re");
	char line[256];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		char *p = line + strlen(key);

		if (strncmp(line, key, strlen(key)) != 0)
			continue;
		p += strspn(p, " \t:");
		p[strspn(p, "0123456789")] = '\0';
		return parse_u64(p, 0, UINT64_MAX - 1, ret) == 0;
	}
	return false;
}

/* Where the cgroup v2 of a process is, under the mount that most machines have; false: it has none of its own. */
static bool
find_cgroup(const struct work_workload *w, char *path, size_t size)
{
	char name[64], line[1024];
	_cleanup_fclose_ FILE *f = NULL;

	snprintf(name, sizeof(name), "/proc/%d/cgroup", w->pid);
	f = fopen(name, "re");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::/", 4) != 0 || strstr(line, w->handle) == NULL)
			continue;
		snprintf(path, size, CGROUP "%s", line + 3);
		if (access(path, X_OK) != 0)
			snprintf(path, size, CGROUP "/unified%s", line + 3);
		return access(path, X_OK) == 0;
	}
	return false;
}

static void
measure(struct use *u)
{
	char dir[1100], path[1200];

	if (u->w.state != WORK_RUNNING || u->w.pid <= 0)
		return;
	if (find_cgroup(&u->w, dir, sizeof(dir))) {
		snprintf(path, sizeof(path), "%s/cpu.stat", dir);
		read_value(path, "usage_usec", &u->cpu_us);
		snprintf(path, sizeof(path), "%s/memory.current", dir);
		if (read_value(path, "", &u->memory))
			return;
	}
	snprintf(path, sizeof(path), "/proc/%d/status", u->w.pid);
	if (read_value(path, "VmRSS", &u->memory))
		u->memory *= 1024;
}

static int
look(struct edgectl *ctl, struct sample *s)
{
	static struct client c;
	bool good;

	s->n = 0;
	client_open(&c, ctl->loop, ctl->rundir, IPC_ROLE_WORKERD);
	c.workload = on_workload;
	c.ctx = s;
	client_call(&c, CTL_REQ_WORKLOADS, NULL, 0, CLIENT_ANSWER_MS);
	good = client_answer(&c, NULL, 0);
	s->at = monotime_now();
	for (size_t i = 0; i < s->n; i++)
		measure(&s->all[i]);
	client_close(&c);
	return good ? EXIT_OK : client_complain(&c, "top");
}

static const struct use *
before(const struct sample *old, const struct use *u)
{
	for (size_t i = 0; i < old->n; i++)
		if (strcmp(old->all[i].w.handle, u->w.handle) == 0)
			return &old->all[i];
	return NULL;
}

/* Per second, since the last look; negative: not known. */
static double
rate(uint64_t now, uint64_t then, double seconds)
{
	return now == UINT64_MAX || then == UINT64_MAX || now < then || seconds <= 0 ? -1 : (double)(now - then) / seconds;
}

static void
rates(const struct sample *old, const struct sample *s, const struct use *u, double *ret_cpu, double *ret_output)
{
	const struct use *then = before(old, u);
	double seconds = (double)monotime_diff_ms(s->at, old->at) / 1000;

	*ret_cpu = then != NULL ? rate(u->cpu_us, then->cpu_us, seconds) / 10000 : -1;
	*ret_output = then != NULL ? rate(u->w.produced, then->w.produced, seconds) : -1;
}

static void
show_json(const struct sample *old, const struct sample *s)
{
	yajl_gen g = json_begin();
	double cpu, output;

	json_open(g, "workloads", '[');
	for (size_t i = 0; i < s->n; i++) {
		const struct use *u = &s->all[i];

		rates(old, s, u, &cpu, &output);
		json_open(g, NULL, '{');
		json_str(g, "handle", u->w.handle);
		json_str(g, "command", u->command);
		json_str(g, "state", name_of_state(u->w.state));
		json_int(g, "pid", u->w.pid);
		if (cpu >= 0)
			json_uint(g, "cpu_millis", (uint64_t)(cpu * 10));	/* of one processor */
		else
			json_null(g, "cpu_millis");
		if (u->memory != UINT64_MAX)
			json_uint(g, "memory_bytes", u->memory);
		else
			json_null(g, "memory_bytes");
		json_uint(g, "produced", u->w.produced);
		if (output >= 0)
			json_uint(g, "output_per_s", (uint64_t)output);
		else
			json_null(g, "output_per_s");
		json_close(g, '}');
	}
	json_close(g, ']');
	json_end(g);
}

static void
fill_row(char (*row)[CELL], const struct use *u, double cpu, double output)
{
	int64_t run = u->w.started_at == 0 ? 0 : (u->w.finished_at != 0 ? u->w.finished_at : monotime_wall_ns()) - u->w.started_at;

	snprintf(row[0], CELL, "%s", u->w.handle);
	snprintf(row[1], CELL, "%s", name_of_state(u->w.state));
	snprintf(row[2], CELL, "%d", u->w.pid);
	snprintf(row[3], CELL, cpu >= 0 ? "%.0f%%" : "-", cpu);
	snprintf(row[4], CELL, "%s", u->memory != UINT64_MAX ? out_bytes(u->memory) : "-");
	snprintf(row[5], CELL, "%s", out_bytes(u->w.produced));
	if (output >= 0)
		snprintf(row[6], CELL, "%s/s", out_bytes((uint64_t)output));
	else
		snprintf(row[6], CELL, "-");
	snprintf(row[7], CELL, "%s", out_span(run / 1000000000));
	snprintf(row[8], CELL, "%.*s", CELL - 1, u->command);
}

static void
show_table(const struct sample *old, const struct sample *s)
{
	static const char *const head[COLS] = { "HANDLE", "STATE", "PID", "CPU", "MEMORY", "OUTPUT", "RATE", "TIME", "COMMAND" };
	char (*text)[COLS][CELL] = calloc(s->n + 1, sizeof(*text));
	const char **cells = calloc((s->n + 1) * COLS, sizeof(*cells));
	double cpu, output;

	for (size_t i = 0; text != NULL && cells != NULL && i < s->n; i++) {
		rates(old, s, &s->all[i], &cpu, &output);
		fill_row(text[i + 1], &s->all[i], cpu, output);
	}
	for (size_t i = 0; text != NULL && cells != NULL && i < (s->n + 1) * COLS; i++)
		cells[i] = i < COLS ? head[i] : text[i / COLS][i % COLS];
	if (text != NULL && cells != NULL)
		out_table(cells, s->n + 1, COLS);
	free(cells);
	free(text);
}

static int
parse_top(int argc, char **argv, uint32_t *times, uint32_t *delay)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-n") == 0 && i + 1 < argc && parse_u32(argv[i + 1], 1, UINT32_MAX, times) == 0)
			i++;
		else if (strcmp(argv[i], "-d") == 0 && i + 1 < argc && parse_u32(argv[i + 1], 1, 3600, delay) == 0)
			i++;
		else
			return usage_error("top", "-n wants a number of looks, -d the seconds between them (not %s)", argv[i]);
	}
	return 0;
}

int
cmd_top(struct edgectl *ctl, int argc, char **argv)
{
	bool screen = isatty(STDOUT_FILENO) && !ctl->json;
	uint32_t times = screen ? UINT32_MAX : 1, delay = 2;
	struct sample a = { .n = 0 }, b = { .n = 0 }, *old = &a, *now = &b, *swap;
	int code = parse_top(argc, argv, &times, &delay);

	if (code != 0)
		return code;
	a.all = calloc(ROWS_MAX, sizeof(*a.all));
	b.all = calloc(ROWS_MAX, sizeof(*b.all));
	if (a.all == NULL || b.all == NULL)
		code = EXIT_FAILED;
	if (code == 0)
		code = look(ctl, old);		/* what rates begin with */
	for (uint32_t i = 0; code == 0 && i < times && !ferror(stdout); i++) {
		nanosleep(&(struct timespec){ .tv_sec = screen && i == 0 ? 0 : delay, .tv_nsec = screen && i == 0 ? 300000000 : 0 }, NULL);
		code = look(ctl, now);
		if (code != 0)
			break;
		if (screen)
			fputs("\033[H\033[2J", stdout);
		if (ctl->json)
			show_json(old, now);
		else
			show_table(old, now);
		fflush(stdout);
		swap = old;
		old = now;
		now = swap;
	}
	free(a.all);
	free(b.all);
	return code;
}
