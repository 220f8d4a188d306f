/* The records of admin.h about files of devices. */
#ifndef EDGEWARD_HUB_ADMINFILE_H
#define EDGEWARD_HUB_ADMINFILE_H

#include "hub/admin.h"
#include "proto/ipc/file.h"

struct admin_file {
	char device[64];
	char handle[72];		/* or a beginning of it */
	char path[FILE_PATH_SIZE];	/* file_path_ok() */
	uint8_t sha256[32];		/* put */
	uint64_t size;			/* put */
	uint64_t offset;		/* get: from there on */
	uint32_t put;			/* 1: to the device */
	uint32_t mode;			/* put: permissions */
};
static_assert(sizeof(struct admin_file) == 1216, "wire size");

struct admin_file_item {
	uint64_t size;			/* get: bytes of the file; put: bytes the device has already */
	uint32_t mode;			/* get: permissions */
	uint32_t reserved;
};
static_assert(sizeof(struct admin_file_item) == 16, "wire size");

bool admin_file_ok(const struct admin_file *req);

#endif
