/*
 * Secrets on their way through our processes: what a start or a refresh brings, as one byte string of items, which is a part
 * of the encoded spec (spec.h) and the payload of a refresh (work.h). Pure. Nothing here copies a value; whoever holds such a
 * string wipes it with explicit_bzero().
 */
#ifndef EDGEWARD_PROTO_SECRETS_H
#define EDGEWARD_PROTO_SECRETS_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/wire.h"

/* Limits of cloop.md 3.3; the others are ours. */
#define SECRET_FILE_MAX		(256u << 10)	/* bytes of one value */
#define SECRET_TOTAL_MAX	(512u << 10)	/* of all files */
#define SECRETS_MAX		256u		/* items */
#define SECRET_ID_SIZE		129u		/* lease or grant, with its NUL */
#define SECRET_NAME_SIZE	256u
#define SECRET_DIR_SIZE		512u

enum secret_kind {
	SECRET_FILE = 1,	/* dir/name with mode, content in value */
	SECRET_ENV = 2,		/* the variable name; its value is in the environment, value is empty on the way to workerd */
	SECRET_PATH = 3,	/* dir is a whole path that a lease names and nobody has sent: never touched */
};

struct secret {
	uint32_t kind;			/* enum secret_kind */
	uint32_t mode;			/* FILE: 0400..0700, no bits for others */
	char lease[SECRET_ID_SIZE];	/* "" = cannot be revoked */
	char grant[SECRET_ID_SIZE];	/* "" = not attributed: it goes with any grant of the lease */
	char dir[SECRET_DIR_SIZE];
	char name[SECRET_NAME_SIZE];
	const uint8_t *value;		/* a view; may hold NULs */
	size_t len;
};

/* Appends one; check with wire_w_done(). */
void secret_put(struct wire_w *w, const struct secret *s);

/* Takes the next one: 1, 0 at the end, -EBADMSG (cut off, or secret_ok() is false). */
int secret_next(struct wire_r *r, struct secret *ret_s);

/* True if every item is well formed, with the limits above. */
bool secrets_ok(const void *data, size_t len);

/* True for what a single item may be: names without '/', directories absolute and clean. */
bool secret_ok(const struct secret *s);
bool secret_name_ok(const char *name);
bool secret_dir_ok(const char *dir);

/* True if an item of lease and grant is meant by a revocation of lease and, if that is not "", of want. */
bool secret_is_of(const struct secret *s, const char *lease, const char *want);

/*
 * The secret files of a workload: in a tmpfs of its own, whose directories workinit makes before the payload runs. It changes
 * them for W and wipes them when the payload has ended; where it was killed the kernel takes the pages back with the namespace.
 */
#define LAUNCH_SECRETS		"/run/secrets"
#define LAUNCH_LEASE_DIR	"cloop-lease-"
#define LAUNCH_SECRETS_SIZE	"4m"	/* two contents of everything for a moment, and what the workload writes there */

enum init_secret_op {
	INIT_SECRET_REPLACE = 1,	/* the content of dir/name, at one stroke; only of a regular file that is there */
	INIT_SECRET_SCRUB = 2,		/* zeroes and removes dir/name; not being there is no error */
	INIT_SECRET_CLEAR = 3,		/* the same with all that is in dir, and dir */
};

struct init_secret {
	uint32_t op;			/* enum init_secret_op */
	uint32_t mode;			/* REPLACE */
	char dir[64];			/* LAUNCH_LEASE_DIR and a number */
	char name[256];
};
static_assert(sizeof(struct init_secret) == 328, "wire size");

struct init_done {
	int32_t status;			/* 0 or -errno: what was done is counted all the same */
	uint32_t files;			/* replaced or removed */
};
static_assert(sizeof(struct init_done) == 8, "wire size");

bool init_secret_ok(const struct init_secret *s);

#endif
