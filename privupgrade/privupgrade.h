/*
 * privupgrade: root's one-shot that replaces the running release. Each file is one step; main.c tells in which order.
 *
 * Nothing here trusts what edgeward-net can write: that is moved into a directory only root can enter before it is looked at, and what is
 * installed is a copy whose every byte was hashed while it was made.
 */
#ifndef EDGEWARD_PRIVUPGRADE_H
#define EDGEWARD_PRIVUPGRADE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/release/judge.h"
#include "proto/release/manifest.h"
#include "proto/release/records.h"

#define LINK_CURRENT	"current"
#define LINK_UPDATER	"updater"

struct updater {
	const char *base_path, *keys_path, *conf_path, *packaged, *packaged_edgectl, *rundir, *systemctl;
	uid_t test_uid;			/* runs the self-test */
	int64_t start_ms;		/* how long a new release may be unhealthy */
	int64_t flood_ms;		/* pause after a refused request of the hub's */
	int base, dir, taken, releases;	/* descriptors: /var/lib/edgeward, upgrade/, upgrade/taken/, releases/ */
	struct upgrade_conf conf;
	struct upgrade_state state;
	struct upgrade_history history;
	char code[UPGRADE_CODE_SIZE], detail[UPGRADE_DETAIL_SIZE];	/* of a refusal */
	bool open;			/* state holds an upgrade that is not finished */
	bool damaged;			/* there was a state that could not be read */
};

/* ---- store.c: files below upgrade/, links, progress ---- */

/* One line for the journal and for edgectl upgrade, which follows it. */
void step(struct updater *u, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Keeps the reason and returns -ECANCELED. code is stable and documented in privupgrade(8). */
int refuse(struct updater *u, const char *code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* State and history. 0, also when one of them was damaged and is set aside; -errno. */
int store_load(struct updater *u);
int store_save_state(struct updater *u, enum upgrade_phase phase);
int store_end_state(struct updater *u);

/* Adds to the history what became of u->state, once for each attempt. */
int store_record(struct updater *u, enum upgrade_outcome outcome, const char *code, const char *detail);

/* Target of a link in base; "" when there is none. */
void link_read(const struct updater *u, const char *name, char target[UPGRADE_LINK_SIZE]);

/* By one rename, synced. Nothing happens when it already leads there. */
int link_set(const struct updater *u, const char *name, const char *target);

/* Sequence and version of what a link's target is; 0 and "-" when unknown. */
uint64_t target_sequence(const struct updater *u, const char *target, char version[RELEASE_VERSION_SIZE]);

/* True if every required program is there and can be executed. */
bool target_complete(const struct updater *u, const char *target);

/* Removes a flat directory of ours in releases/; 0 also when there is none. */
int release_remove(const struct updater *u, const char *name);

/* Everything in releases/ but the targets of the two links and, while an upgrade is open, what it came from and leads to. */
void releases_prune(const struct updater *u);

/* ---- inbox.c: what asks for an upgrade ---- */

struct inbox {
	enum upgrade_source source;
	struct upgrade_request request;
	int release;			/* descriptor, positioned at 0 */
	uint64_t size;
};

/* 1 = a request was taken and is well-formed; 0 = there is none; -ECANCELED = refused (u->code), -errno. */
int inbox_take(struct updater *u, enum upgrade_source source, struct inbox *ret_inbox);

/* Removes what was taken. */
void inbox_done(struct updater *u, struct inbox *inbox);

/* The same for whatever an interruption left there. */
void inbox_forget(struct updater *u);

/* ---- verify.c: is this release for this device ---- */

struct release {
	struct manifest manifest;
	uint8_t *head;			/* signature and manifest, in a buffer of verify_head() */
	struct release_head parts;	/* points into it */
};

/* Reads the head of a release file, checks signature, manifest, size, channel, architecture and expiry. */
int verify_head(struct updater *u, int fd, uint64_t size, struct release *ret_release);

/* Sequence, tries, and what the hub's protocol asks for. from is the sequence in force, protocol 0 = no session. */
int verify_order(struct updater *u, const struct release *release, const struct inbox *inbox, uint64_t from, uint64_t protocol);

/* ---- stage.c ---- */

/* Copies every file into releases/SEQUENCE.new, hashing what it writes, then checks each program and renames it to SEQUENCE. */
int stage_release(struct updater *u, int fd, const struct release *release);

/* Every byte against the manifest, nothing written: privupgrade -n. */
int stage_check(struct updater *u, int fd, const struct release *release);

/* ---- selftest.c ---- */

/* The new programs say their name and version, and accept this device's configuration; as an ordinary user. dir: where they are. */
int self_test(struct updater *u, const char *dir, const struct manifest *m);

/* ---- units.c: the service manager, by way of systemctl ---- */

/* What systemctl says of our units; runs_new is not filled. -errno. */
int units_look(struct updater *u, struct judge_unit_facts units[JUDGE_UNITS]);

/* Those in u->state.units. keep_work: workerd alone is replaced, its launcher stays. */
int units_restart(struct updater *u, bool keep_work);

/* What the daemons say of themselves, as edgectl(8) probe prints it: the edgectl of that release, because it speaks their version. */
void units_probe(struct updater *u, const char *target, struct upgrade_probe *ret_probe);

/* ---- trial.c ---- */

/* The staged release in force, on trial, then for good or back. u->state is filled. */
int trial_begin(struct updater *u);

/* Goes on with u->state after whatever interrupted it. at_boot: the daemons are not started yet. */
int trial_resume(struct updater *u, bool at_boot);

/* A packaged release with a higher sequence takes over; links that lead nowhere lead to the packaged one. */
int trial_settle_links(struct updater *u);

#endif
