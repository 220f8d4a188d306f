/*
 * Is a release, whose signature is good, meant for this device, now, and for this request? Pure: privupgrade gathers the facts, this decides,
 * a unit test has every case.
 */
#ifndef EDGEWARD_PROTO_FIT_H
#define EDGEWARD_PROTO_FIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/release/machine.h"
#include "proto/release/manifest.h"
#include "proto/release/records.h"
#include "proto/release/refusal.h"

struct fit {
	/* what must be given */
	uint64_t size;			/* of the release file */
	const char *arch, *channel;	/* this device's */
	int64_t now;			/* seconds since 1970, not before our own build */
	const struct upgrade_request *request;	/* NULL: only whether it is for this device; the rest then does not count */
	bool operator;			/* who asked */
	uint64_t from, floor;		/* sequence in force; the last one that was installed with success */
	uint64_t tries;			/* upgrade_history_tries() */
	struct refusal *why;		/* the answer when it does not fit */
};

/* head: the lengths of signature and manifest. 0, -ECANCELED. */
int fit_release(struct fit *f, const struct release_head *head, const struct manifest *m);

/* Whether the hub of a session, which speaks protocol (0 = there is none), is one the release still speaks with. 0, -ECANCELED. */
int fit_protocol(struct refusal *why, const struct manifest *m, uint64_t protocol);

/* A program of the release, by its first len bytes, against one that this machine runs. 0, -ECANCELED. */
int fit_program(struct refusal *why, const char *name, const void *data, size_t len, const struct machine *ours);

#endif
