/*
 * Decides whether a release that is on trial may stay. Pure: privupgrade/trial.c looks, this judges, a unit test plays two hours of it.
 *
 * Crash, hang, lost work, and a hub that is there and does not take it are reasons to go back. No network is none: then the trial stays open.
 */
#ifndef EDGEWARD_PROTO_JUDGE_H
#define EDGEWARD_PROTO_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/release/records.h"
#include "proto/release/refusal.h"

#define JUDGE_UNITS	3
enum judge_unit { JUDGE_PRIVHELPER, JUDGE_CONNECTD, JUDGE_WORKERD };

struct judge_unit_facts {
	bool active, failed;		/* active: runs or is about to */
	bool runs_new;			/* its main process is the program of the new release; of workerd's unit: workerd itself is */
	uint64_t pid, restarts;		/* main process; how often the service manager started it again by itself */
};

struct judge_facts {			/* one look */
	int64_t now_ms;			/* since the trial began */
	bool cancelled;			/* by the operator */
	bool units_known;		/* the service manager answered */
	struct judge_unit_facts units[JUDGE_UNITS];
	const struct upgrade_probe *probe;
	bool work_alive[UPGRADE_WORK_MAX];	/* process of judge.work.work[i] exists */
};

struct judge {
	int64_t settle_ms, start_ms;	/* must be healthy at the end of settle; may be unhealthy for start */
	uint64_t units;			/* which count, a bit each */
	bool connected;			/* there was a session before */
	struct upgrade_probe work;	/* what ran before */
	/* what was seen so far */
	struct judge_unit_facts first[JUDGE_UNITS];
	uint64_t work_pid;
	int64_t good_ms, reached_ms;	/* last healthy; since when the hub's address answers, -1 = it does not */
	unsigned deaths;
	bool looked;
	struct refusal why;		/* of JUDGE_BAD; detail also of JUDGE_WAIT */
};

enum judge_verdict {
	JUDGE_GO_ON,
	JUDGE_WAIT,			/* healthy and settled, but there is no session, and that may be the network's fault */
	JUDGE_GOOD,
	JUDGE_BAD,
};

/* work may be NULL: not known. */
void judge_init(struct judge *j, const struct upgrade_state *state, int64_t start_ms, const struct upgrade_probe *work);

enum judge_verdict judge_look(struct judge *j, const struct judge_facts *facts);

/* What `systemctl show -p ActiveState,MainPID,NRestarts` says of the three units in the order of enum judge_unit: a block each, an empty line
 * between. text is changed; what it does not tell is zero. */
void judge_read_units(char *text, struct judge_unit_facts units[JUDGE_UNITS]);

/*
 * Is a process one of the workloads, which live beside the launcher in the cgroup of its unit? Both are what /proc/PID/cgroup says. Where there is
 * no unified hierarchy, nobody can tell: true.
 */
bool judge_is_work(const char *cgroup, const char *launcher);

#endif
