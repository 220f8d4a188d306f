/*
 * The device's identity at its hub: credential.json in the state directory, as cloop.md 2.4 has it, plus a check over
 * the fields. Written once at enrollment and when an explicit pin changes; always whole, by name.tmp, fsync and rename.
 */
#ifndef EDGEWARD_CONNECTD_CRED_H
#define EDGEWARD_CONNECTD_CRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRED_FILE	"credential.json"
#define CRED_SIZE	512
#define CRED_FILE_MAX	16384

struct cred {
	char server[512];
	char agent_id[64];
	char name[64];
	char credential[CRED_SIZE];	/* secret */
	char workdir_root[256];		/* kept for the stock agent's sake; empty here */
	char pin[256];			/* one or several, as text */
	char enrolled_at[40];		/* RFC 3339 */
};

enum cred_state {
	CRED_NONE,		/* not enrolled */
	CRED_GOOD,
	CRED_DAMAGED,		/* what was there cannot be used; kept aside */
	CRED_UNREADABLE,	/* permission, I/O error: may heal by itself */
};

struct cred_store {
	int dirfd;		/* not owned */
	enum cred_state state;
	struct cred cred;	/* all zero unless GOOD */
	uint64_t ino;		/* of the file when it was last read or written, with its mtime: see cred_changed() */
	int64_t mtime_ns;
	char note[200];		/* what was found and done, for the log and the status; empty = nothing to say */
};

/* Reads the file anew. The note says what happened when it was not plain. */
void cred_load(struct cred_store *store, int dirfd);

/* Stores cred and, on success, makes it the one in use. -errno; what was there before stays then. */
int cred_save(struct cred_store *store, const struct cred *cred);

void cred_wipe(struct cred_store *store);

/* True when somebody has put another file there since it was last read or written. */
bool cred_changed(const struct cred_store *store);

/* The file's bytes; 0 or -EBADMSG. Pure, fuzzed. */
int cred_parse(const uint8_t *data, size_t len, struct cred *ret_cred);
int cred_format(const struct cred *cred, char *buf, size_t size, size_t *ret_len);

/* True for what may stand in an Authorization header: 1..511 visible ASCII characters. */
bool cred_token_ok(const char *s);

#endif
