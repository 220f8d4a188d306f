/* privupgrade: from a request to a release that is staged. Each file is one step; main.c tells in which order. */
#ifndef EDGEWARD_PRIVUPGRADE_PRIVUPGRADE_H
#define EDGEWARD_PRIVUPGRADE_PRIVUPGRADE_H

#include "privupgrade/core.h"
#include "proto/release/fit.h"

/* ---- inbox.c: what asks for an upgrade ---- */

struct inbox {
	enum upgrade_source source;
	struct upgrade_request request;
	int release;			/* descriptor, the caller's to close; -1 */
	uint64_t size;
};

/* 1 = a request was taken and is well-formed; 0 = there is none; -ECANCELED = refused (u->code), -errno. */
int inbox_take(struct updater *u, enum upgrade_source source, struct inbox *ret_inbox);

/* Removes what was taken, now or before an interruption. */
void inbox_forget(struct updater *u, enum upgrade_source source);

/* There is a request that was not taken yet. */
bool inbox_has(const struct updater *u, enum upgrade_source source);

/* ---- verify.c: what this device is, and whether the release is signed for it ---- */

struct release {
	struct manifest manifest;
	struct machine ours;		/* the kind of program we are, which is the kind this machine runs */
	uint8_t *head;			/* signature and manifest, in a buffer of verify_release() */
	struct release_head parts;	/* points into it */
};

/* /etc/edgeward/upgrade.conf. Missing: the defaults. One that cannot be used means no upgrade and nothing else. */
int verify_conf(struct updater *u, struct upgrade_conf *ret_conf);

/* Reads the head of a release file, checks its signature, then whether it fits. fit: request and what belongs to it is filled. */
int verify_release(struct updater *u, int fd, struct fit *fit, const struct upgrade_conf *conf, struct release *ret_release);

/* ---- stage.c ---- */

/* Copies every file into releases/SEQUENCE.new, hashing what it writes, renamed to SEQUENCE when each is right and each program one for this
 * machine. */
int stage_release(struct updater *u, int fd, const struct release *release);

/* Every byte against the manifest; copied into the directory dir, or with -1 nothing is written: privupgrade -n. */
int stage_files(struct updater *u, int fd, const struct release *release, int dir);

/* Removes what is left of u->state's release, which is not in force. */
int stage_forget(struct updater *u);

#endif
