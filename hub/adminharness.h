/* The admin records of what harnesses a device has, and of installing one there; their types stand in admin.h. */
#ifndef EDGEWARD_HUB_ADMINHARNESS_H
#define EDGEWARD_HUB_ADMINHARNESS_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/ipc/harness.h"

struct admin_harness_req {
	char device[64];
	char name[HARNESS_NAME_SIZE];	/* to install; empty: what is there */
};
static_assert(sizeof(struct admin_harness_req) == 136, "wire size");

struct admin_harness {
	uint8_t installed, present;	/* it is there now; it was before */
	uint8_t fresh;			/* the list is what the device has just said, not what it said when it last connected */
	uint8_t reserved[5];
	char list[1024];		/* names, one space between two */
	char path[512], version[64];
	char reason[2048];		/* why it is not installed, in the device's words; printable, and newlines */
};
static_assert(sizeof(struct admin_harness) == 3656, "wire size");

bool admin_harness_req_ok(const struct admin_harness_req *req);
bool admin_harness_ok(const struct admin_harness *ans);

#endif
