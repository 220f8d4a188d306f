/* The records of admin.h about http streams to a device. */
#ifndef EDGEWARD_HUB_ADMINPIPE_H
#define EDGEWARD_HUB_ADMINPIPE_H

#include "hub/admin.h"

struct admin_pipe {
	char device[64];
	char purpose[8];		/* status, svc, ssh */
};
static_assert(sizeof(struct admin_pipe) == 72, "wire size");

bool admin_pipe_ok(const struct admin_pipe *req);

#endif
