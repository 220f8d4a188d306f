/*
 * Where the secret files of a start go, and what of the environment follows them (cloop.md 5.7): each directory the hub names
 * becomes one of ours that only this workload sees, and every variable that names the former names the latter. Pure.
 */
#ifndef EDGEWARD_WORKERD_PLACING_H
#define EDGEWARD_WORKERD_PLACING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/secrets.h"
#include "proto/ipc/spec.h"

#define PLACING_DIRS	64u
#define PLACING_REAL	64u		/* room for a directory of ours */

struct placing {
	unsigned ndirs;
	char dirs[PLACING_DIRS][SECRET_DIR_SIZE];	/* as the hub names them */
	bool files;			/* some are to be placed */
	char *text;			/* the variables that changed; wiped by placing_done() */
	size_t text_size;
};

/* Reads spec->secrets and changes spec->env. -ENOMEM; -E2BIG: too many directories. */
int placing_make(struct placing *p, struct work_spec *spec);

/* Our name of a directory of the hub's; "" if it is none. */
void placing_real(const struct placing *p, const char *dir, char real[PLACING_REAL]);

/* True if a value is or begins with one of those directories: it is a path, not a secret. */
bool placing_is_path(const char *value, size_t len);

/* The items that workinit needs, with the real directories, into buf: their length, or -ENOSPC. */
int placing_for_init(const struct placing *p, const struct work_spec *spec, uint8_t *buf, size_t size, size_t *ret_len);

void placing_done(struct placing *p);

#endif
