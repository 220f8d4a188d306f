/*
 * What root's two one-shots of an upgrade share. privupgrade takes a request, verifies, copies and tries the release, and hands over to
 * privtrial, the one beside it: that switches to the release, judges its trial, and goes back. privtrial alone runs at boot.
 *
 * Nothing here trusts what edgeward-net can write: that is moved into a directory only root can enter before it is looked at, and what is
 * installed is a copy whose every byte was hashed while it was made. No archive, no JSON and no TLS is parsed; the parsers and the decisions
 * are the pure ones of proto/release.
 */
#ifndef EDGEWARD_PRIVUPGRADE_CORE_H
#define EDGEWARD_PRIVUPGRADE_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/release/manifest.h"
#include "proto/release/records.h"
#include "proto/release/refusal.h"

#define LINK_CURRENT	"current"
#define LINK_UPDATER	"updater"

struct updater {
	const char *base_path, *keys_path, *conf_path, *packaged, *packaged_edgectl, *rundir, *systemctl;
	uid_t test_uid;			/* runs what is not root's business: the self-test and the probe */
	int64_t start_ms;		/* how long a new release may be unhealthy */
	int64_t flood_ms;		/* pause after a refused request of the hub's */
	const char *check;		/* privupgrade -n */
	bool at_boot, begin;		/* privtrial -b, -s */
	int base, dir, taken, releases;	/* descriptors: /var/lib/edgeward, upgrade/, upgrade/taken/, releases/ */
	struct upgrade_state state;
	struct upgrade_history history;
	struct refusal why;		/* of the last refusal */
	bool open;			/* state holds an upgrade that is not finished */
};

/* ---- setup.c: options, directories, the lock ---- */

/* Fills u from the command line, which is the same for both. 0, 1 = answered (-V), -EINVAL. */
int updater_options(struct updater *u, const char *name, int argc, char **argv);

/* Opens the directories, takes the lock, reads state and history. 1; 0 = another one is at it; -errno. */
int updater_open(struct updater *u);

/* ---- store.c: files below upgrade/, links, releases ---- */

/* One line for the journal and for edgectl upgrade, which follows it. */
void step(struct updater *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* State and history. 0, also when one of them was damaged and is set aside; -errno. */
int store_load(struct updater *u);
int store_save_state(struct updater *u, enum upgrade_phase phase);
int store_end_state(struct updater *u);

/* Adds to the history what became of u->state, once for each attempt. */
int store_record(struct updater *u, enum upgrade_outcome outcome, const char *code, const char *detail);

/* The end of what is not in force: r is -ECANCELED with its reason kept, or -errno. Recorded. It was a
 * try of the release if a state is open and it is the release's own fault. 0, -errno: it is not on record. */
int store_fail(struct updater *u, int r);

/* Target of a link in base; "" when there is none. */
void link_read(const struct updater *u, const char *name, char target[UPGRADE_LINK_SIZE]);

/* Sequence of what a link's target is: our own directories have it as their name, a package in a file. 0 when it cannot be told. */
uint64_t target_sequence(const struct updater *u, const char *target);

/* True if every required program is there and can be executed. */
bool target_complete(const struct updater *u, const char *target);

#endif
