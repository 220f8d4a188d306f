/*
 * edgectl's parts. Each command is a row of the table in main.c and a function here; it gets what follows its name on the
 * command line, itself included, and returns an exit code.
 */
#ifndef EDGEWARD_EDGECTL_H
#define EDGEWARD_EDGECTL_H

#include <stdbool.h>
#include <stdint.h>
#include <yajl/yajl_gen.h>

#include "common/loop.h"
#include "proto/ipc/ctl.h"
#include "proto/ipc/work.h"

/* Documented in edgectl(8). */
enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,	/* the request was refused or did not work */
	EXIT_USAGE = 2,
	EXIT_DEGRADED = 3,	/* status: a process is down or the link is not connected; logs verify: not provable */
	EXIT_NOBODY = 4,	/* the daemon that should answer does not */
	EXIT_DENIED = 5,	/* no permission for the socket, or upgrade without being root */
};

struct edgectl {
	struct loop *loop;
	const char *rundir;
	bool rundir_named;	/* by -r */
	bool json;
};

int cmd_status(struct edgectl *ctl, int argc, char **argv);
int cmd_version(struct edgectl *ctl, int argc, char **argv);
int cmd_workloads(struct edgectl *ctl, int argc, char **argv);
int cmd_logs(struct edgectl *ctl, int argc, char **argv);
int cmd_logs_verify(struct edgectl *ctl, const char *handle);	/* logs verify HANDLE */
int cmd_attach(struct edgectl *ctl, int argc, char **argv);
int cmd_signal(struct edgectl *ctl, int argc, char **argv);
int cmd_drain(struct edgectl *ctl, int argc, char **argv);
int cmd_undrain(struct edgectl *ctl, int argc, char **argv);
int cmd_reconnect(struct edgectl *ctl, int argc, char **argv);
int cmd_devices(struct edgectl *ctl, int argc, char **argv);
int cmd_policy(struct edgectl *ctl, int argc, char **argv);
int cmd_enroll(struct edgectl *ctl, int argc, char **argv);
int cmd_upgrade(struct edgectl *ctl, int argc, char **argv);
int cmd_events(struct edgectl *ctl, int argc, char **argv);
int cmd_metrics(struct edgectl *ctl, int argc, char **argv);
int cmd_top(struct edgectl *ctl, int argc, char **argv);
int cmd_probe(struct edgectl *ctl, int argc, char **argv);
int cmd_audit(struct edgectl *ctl, int argc, char **argv);
int cmd_doctor(struct edgectl *ctl, int argc, char **argv);
int cmd_support(struct edgectl *ctl, int argc, char **argv);

/* "edgectl: ..." and how the command is used, on stderr; EXIT_USAGE. fmt may be NULL. */
int usage_error(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* For commands without arguments. */
int no_arguments(int argc, char **argv);

/* ---- out.c: text and JSON ---- */

/* How trouble and good news stand out on a terminal (not with NO_COLOR set); "" elsewhere. */
enum out_mark { OUT_PLAIN, OUT_BAD, OUT_GOOD, OUT_HEAD };
const char *out_mark(enum out_mark mark);

/* s with everything a terminal might act on, and what is not UTF-8, replaced by '?'. One of four static buffers. */
const char *out_safe(const char *s);

/* "3 min", "12 d 4 h": from seconds. A static buffer of four. */
const char *out_span(int64_t seconds);

/* "12.3 MiB". A static buffer of four. */
const char *out_bytes(uint64_t bytes);

/* RFC 3339, UTC, milliseconds, from CLOCK_REALTIME ns. A static buffer of four. */
const char *out_time(int64_t ns);

/* A table: cells of row after row, ncols each; the first row is the head. Strings are printed through out_safe(). */
void out_table(const char *const *cells, size_t nrows, size_t ncols);

/* A JSON document on stdout, and its members. A NULL key is for elements of an array. */
yajl_gen json_begin(void);
void json_end(yajl_gen g);
void json_open(yajl_gen g, const char *key, char bracket);	/* '{' or '[' */
void json_close(yajl_gen g, char bracket);
void json_str(yajl_gen g, const char *key, const char *value);
void json_int(yajl_gen g, const char *key, int64_t value);
void json_uint(yajl_gen g, const char *key, uint64_t value);	/* exact beyond 2^63 */
void json_bool(yajl_gen g, const char *key, bool value);
void json_null(yajl_gen g, const char *key);
void json_time(yajl_gen g, const char *key, int64_t ns);	/* null for 0 */

/* ---- names.c: stable words for the numbers of proto/ipc; "unknown" for one we do not know ---- */
const char *name_of_link(uint32_t link);
const char *name_of_dialect(uint32_t dialect);
const char *name_of_state(uint32_t state);
const char *name_of_outcome(uint32_t outcome);
const char *name_of_limit(uint32_t limit);
const char *name_of_refusal(uint32_t refusal);
const char *name_of_gap(uint32_t reason);
const char *name_of_cgroup(uint32_t cgroup);
const char *name_of_tree(uint32_t tree);

#endif
