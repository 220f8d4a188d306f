/*
 * edgectl doctor: one ordered list of checks, from the configuration to the release keys. Each has a stable name, a state, and unless
 * it is ok a stable cause (connectd's code where there is one), one sentence and one command to try.
 *
 * The checks run in a process of their own that hands each one to its parent as a fixed record; the parent prints, and when the
 * time is up it says which check hung and ends. What talks to a network is netprobe, a program of its own. Nothing is changed.
 */
#ifndef EDGEWARD_EDGECTL_DOCTOR_H
#define EDGEWARD_EDGECTL_DOCTOR_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/conf.h"
#include "edgectl/doctor/child.h"
#include "edgectl/edgectl.h"
#include "edgectl/status.h"
#include "proto/ipc/netprobe.h"

#define DOCTOR_TOTAL_MS		10000
#define DOCTOR_CHILDREN_MS	8500	/* then what has not answered is ended, and the rest is checked without it */
#define NOBODY			65534u

enum check_state { CHECK_OK, CHECK_WARN, CHECK_FAIL, CHECK_SKIPPED, CHECK_STATES };

struct check {
	uint32_t state;
	char name[32];
	char cause[32];			/* empty when ok or skipped */
	char detail[320];
	char command[200];		/* empty = nothing to try */
};

struct doctor {
	struct edgectl *ctl;
	/* Where things are; root is "" but in tests, and stands before /proc, /sys, /etc and /dev. */
	const char *root;
	const char *url;		/* of the status, when the configuration has none */
	bool units;			/* the run directory is the one of the units */
	bool systemd;			/* and systemd runs, so that its commands are worth telling */
	bool foreground;		/* it is one of run-foreground */
	char conf_path[PATH_MAX], policy_path[PATH_MAX], state[PATH_MAX], pool[PATH_MAX];
	struct conf conf;
	bool conf_ok;
	uid_t me;
	uid_t net_uid, work_uid;	/* of the daemons: owners of their state directories; NOBODY = not known */
	gid_t net_gid;
	const char *proxy_from;		/* whose proxy variables count */
	struct view view;		/* what the daemons say */
	struct netprobe_report net;	/* valid when net.magic is right */
	struct child probe, check_net, check_work, units_show, reload;
	void (*emit)(const struct check *check, void *ctx);
	void *ctx;
};

int cmd_doctor(struct edgectl *ctl, int argc, char **argv);

/* doctor.c: the whole list, through d->emit; d is filled by doctor_find(). */
void doctor_run(struct doctor *d);
/* The names of its steps, for who waits; NULL beyond the last. */
const char *doctor_step(unsigned i);

/* paths.c */
struct doctor_options {
	const char *conf, *policy, *state, *pool;	/* NULL = where the run directory tells */
};
void doctor_find(struct doctor *d, struct edgectl *ctl, const struct doctor_options *o);
/* A program of ours: beside edgectl in ../lib/edgeward, or in a build directory. False when there is none. */
bool doctor_program(const char *name, char *path, size_t size);
/* root and a path. buf is returned. */
const char *doctor_path(const struct doctor *d, const char *path, char buf[PATH_MAX]);
/* The first line, or as much as fits, of a small file; -errno. For /proc and /sys. */
int doctor_read(const struct doctor *d, const char *path, char *buf, size_t size);

/* report.c */
void check_ok(struct doctor *d, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void check_skip(struct doctor *d, const char *name, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* command may be NULL. */
void check_bad(struct doctor *d, const char *name, enum check_state state, const char *cause, const char *command,
    const char *fmt, ...) __attribute__((format(printf, 6, 7)));

struct report {
	bool json, colour;
	unsigned count[CHECK_STATES];
	yajl_gen g;
};
void report_begin(struct report *r, bool json);
void report_add(struct report *r, const struct check *c);
int report_end(struct report *r);		/* the exit code */
bool check_valid(const struct check *c);	/* a record from the pipe */

/* The steps. */
void step_start(struct doctor *d);		/* doctor.c: asks everybody at once */
void step_config(struct doctor *d);		/* config.c */
void step_files(struct doctor *d);		/* files.c */
void step_clock(struct doctor *d);		/* net.c */
void step_route(struct doctor *d);
void step_network(struct doctor *d);
void step_identity(struct doctor *d);		/* identity.c */
void step_disk(struct doctor *d);		/* host.c */
void step_cgroup(struct doctor *d);		/* cgroup.c */
void step_kernel(struct doctor *d);		/* host.c */
void step_lent(struct doctor *d);		/* lent.c */
void step_accounts(struct doctor *d);		/* accounts.c */
void step_pool(struct doctor *d);
void step_units(struct doctor *d);		/* units.c */
void step_processes(struct doctor *d);		/* identity.c */
void step_keys(struct doctor *d);		/* accounts.c */
void step_upgrade(struct doctor *d);		/* upgrade.c */

/* proxyenv.c: the proxy variables connectd has, as "name=value" in env (at most max, NULL after the last), text in buf. */
#define PROXYENV_MAX	8
void proxyenv_find(struct doctor *d, char *buf, size_t size, const char *env[PROXYENV_MAX + 1]);
/* The same from the text of an environment, separated by sep: 0 as in /proc, '\n' as in a file of systemd. Pure. */
unsigned proxyenv_pick(char *text, size_t len, char sep, const char *env[PROXYENV_MAX + 1]);

#define UNIT_VALUE	256

struct unit {
	char id[64], load[24], active[24], sub[24], file[24], reload[8], delegate[8], dropins[UNIT_VALUE], restarts[16];
};
/* The next block of what systemctl show printed; *text moves on. False at its end. Pure. */
bool unit_next(const char **text, struct unit *ret_unit);

#endif
