/* privtrial: the switch to a staged release, its trial, and its end. main is in privtrial.c. */
#ifndef EDGEWARD_PRIVUPGRADE_PRIVTRIAL_H
#define EDGEWARD_PRIVUPGRADE_PRIVTRIAL_H

#include "privupgrade/core.h"
#include "proto/release/fit.h"
#include "proto/release/judge.h"

/* ---- units.c: the service manager, by way of systemctl ---- */

/* What systemctl says of our units; runs_new is not filled. -errno. */
int units_look(struct updater *u, struct judge_unit_facts units[JUDGE_UNITS]);

/* Those in u->state.units. keep_work: workerd alone is replaced, its launcher stays. */
int units_restart(struct updater *u, bool keep_work);

/* Process pid runs the program name of target. */
bool unit_runs(const struct updater *u, uint64_t pid, const char *target, const char *name);

/* Process pid is in the cgroup of the launcher's unit, and so no process of somebody else's. */
bool unit_has_work(uint64_t pid, uint64_t launcher);

/* ---- probe.c ---- */

/* What the daemons say of themselves, as edgectl(8) probe prints it: the edgectl of that release, because it speaks their version. */
void probe_daemons(struct updater *u, const char *target, struct upgrade_probe *ret_probe);

/* ---- selftest.c ---- */

/* The staged programs say their name and version, and accept this device's configuration; as an ordinary user. -ECANCELED. */
int self_test(struct updater *u, const struct manifest *m);

/* ---- prune.c ---- */

/* Everything in releases/ but the targets of the two links and, while an upgrade is open, what it came from and leads to. */
void releases_prune(const struct updater *u);

/* ---- trial.c ---- */

/* The staged release is tried out, then in force, on trial, then for good or back. u->state is filled. */
int trial_begin(struct updater *u);

/* Goes on with u->state after whatever interrupted it. u->at_boot: the daemons are not started yet. */
int trial_resume(struct updater *u);

#endif
