/*
 * Following a log, for `run` and `logs`: go on exactly where it was when the hub comes back. The place in the log is an
 * offset; a run that was asked for and not answered is asked for again under the same handle.
 */
#ifndef EDGEWARD_HUB_CLI_FOLLOW_H
#define EDGEWARD_HUB_CLI_FOLLOW_H

#include "hub/cli.h"

#define FOLLOW_AWAY_MS	(120LL * 1000)	/* how long the hub may be gone */

struct follow {
	struct cli *cli;
	char handle[72];
	uint64_t offset;
	bool wait, ended, pipe_gone;
	struct admin_run end;
	/* run only */
	uint8_t *spec;
	size_t spec_len;
	int bundle;		/* shipped with it, when it has one: bundle_given */
	bool bundle_given;
	bool asking, asked;	/* the hub has the start; it has confirmed the run */
	int early;		/* a signal that came in between, 0 = none */
	bool forward;		/* signals go to the run */
	unsigned signals;
	bool away;		/* its device is, as the hub has told */
	int64_t away_ms;
};

/* Signals and the loop; once. -errno. */
int follow_init(struct follow *f);
/* Asks the hub to start the run; *ret_code is set when it says no. -errno when the hub is gone. */
int follow_ask(struct follow *f, int *ret_code);
/* Writes the log to stdout until the end (f->ended, returns 0), or an exit code; gone_code: the hub did not come back. */
int follow_all(struct follow *f, int gone_code);
/* What is worth a line about how it ended; all of it as JSON on stderr. */
void follow_say_end(const struct follow *f);
void follow_print_json(const struct admin_run *end);

#endif
