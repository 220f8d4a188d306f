/*
 * What connectd remembers of a hub's request for an upgrade, in its state directory, so that neither a restart nor a power cut forgets
 * one, tries one without end, or reports one twice. Lines as in proto/release/lines.h. Pure, but for load and save.
 */
#ifndef EDGEWARD_CONNECTD_UPJOB_H
#define EDGEWARD_CONNECTD_UPJOB_H

#include <stdint.h>

#include "connectd/uptarget.h"
#include "proto/release/records.h"

#define UPJOB_FILE	"upgrade-job"
#define UPJOB_TOLD	"upgrade-told"

enum upjob_phase {
	UPJOB_NONE,
	UPJOB_FETCH,			/* the release is on its way */
	UPJOB_QUEUED,			/* privupgrade has been asked */
	UPJOB_FAILED,			/* it has ended here; the hub has still to be told */
};

struct upjob {
	enum upjob_phase phase;
	char id[UPGRADE_ID_SIZE];	/* of the request, and of the frame where that can be one */
	char target[UPTARGET_SIZE];	/* as asked for: latest, a version, edge:HEX */
	char from[RELEASE_VERSION_SIZE];	/* what ran when it was asked for */
	char version[RELEASE_VERSION_SIZE];	/* of the release, "-" = not known yet */
	uint64_t sequence;		/* 0 = not known yet */
	uint64_t settle;
	uint64_t tries;			/* without progress; a restart does not reset it */
	char code[UPGRADE_CODE_SIZE], detail[UPGRADE_DETAIL_SIZE];	/* FAILED */
};

int upjob_parse(const void *data, size_t len, struct upjob *ret_job);	/* -EBADMSG */
int upjob_write(const struct upjob *job, char *buf, size_t size);	/* length, -EMSGSIZE */

/* A missing or damaged file: phase NONE, the latter set aside. */
void upjob_load(int dir, struct upjob *ret_job);
/* NONE removes it. -errno. */
int upjob_save(int dir, const struct upjob *job);

/* The last attempt of the history that the hub has been told of. -ENOENT = there is no such file yet. */
int upjob_load_told(int dir, uint64_t *ret_attempt);
int upjob_save_told(int dir, uint64_t attempt);

#endif
