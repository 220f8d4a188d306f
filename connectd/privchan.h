/*
 * connectd's channel to privhelper: the introduction and nothing else. Keeps connecting to introduce.sock with backoff,
 * also when the work channel has ended and a fresh pair is wanted.
 */
#ifndef EDGEWARD_CONNECTD_PRIVCHAN_H
#define EDGEWARD_CONNECTD_PRIVCHAN_H

#include <stdbool.h>
#include <stdint.h>

#include "common/grow.h"
#include "common/ipc.h"
#include "common/loop.h"
#include "connectd/workchan.h"

struct privchan {
	struct ipc_chan chan;
	struct loop *loop;
	struct workchan *work;
	char path[108];
	bool up;
	int32_t pid;		/* of privhelper, as it says */
	char build[32];
	unsigned failures;
	struct grow faults;	/* of the work channel */
	int last_err;		/* of connect(), so that one state is logged once */
	struct loop_timer retry;
};

extern const struct ipc_rule privchan_rules[];
extern const size_t privchan_nrules;

/* -ENAMETOOLONG. Does not connect yet. */
int privchan_init(struct privchan *pc, struct loop *loop, struct workchan *work, const char *rundir);
void privchan_done(struct privchan *pc);

/* Connects, now or after the present wait. */
void privchan_start(struct privchan *pc);

/*
 * The work channel has ended: come back with empty hands, so that a fresh pair is made. After a fault (a record that could
 * not be, a peer that does not read) with a pause that doubles, in which nobody can make one.
 */
void privchan_reintroduce(struct privchan *pc, bool fault);

#endif
