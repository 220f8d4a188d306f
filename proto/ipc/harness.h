/*
 * Harnesses are installed where every workload of this device finds them and none can change them: in a directory of the work root that
 * no hub can name as work directory, by its vendor's own installer (reference cloop.md 5.11). C asks W for it by name.
 */
#ifndef EDGEWARD_PROTO_HARNESS_H
#define EDGEWARD_PROTO_HARNESS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define HARNESS_NAME_SIZE	72
#define HARNESS_DIR		".harnesses"		/* below the work root; its own runner's */
#define HARNESS_HANDLE		"edgeward-install-"	/* and the name: the handle of an installation; no hub can use it */

struct harness_ask {
	char name[HARNESS_NAME_SIZE];	/* harness_name_ok(), zero-padded */
};
static_assert(sizeof(struct harness_ask) == 72, "wire size");

struct harness_done {
	uint8_t installed;		/* 1: it is there now */
	uint8_t present;		/* 1: it was before */
	uint8_t reserved[6];
	char path[512];			/* of the executable; may be empty */
	char version[64];		/* as it says; may be empty */
	char reason[2008];		/* why not, with an end of what its installer wrote; printable, and newlines */
};
static_assert(sizeof(struct harness_done) == 2592, "wire size");

/* 1 to 64 characters of A-Z a-z 0-9 _ -. */
bool harness_name_ok(const char *name);
bool harness_done_ok(const struct harness_done *done);

#endif
