/*
 * A release file as it comes in, checked as far as an ordinary user can: signature of the manifest by a key of this device, then the hash
 * of every file, then that nothing is left. privupgrade(8) checks all of it again; here it keeps what is not a release from being stored
 * and queued.
 */
#ifndef EDGEWARD_CONNECTD_RELCHECK_H
#define EDGEWARD_CONNECTD_RELCHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/release/manifest.h"
#include "proto/release/refusal.h"

struct evp_md_ctx_st;

struct relcheck {
	const char *keys;		/* directory; outlives this */
	uint8_t head[RELEASE_HEAD_MAX];
	size_t have;
	bool known;			/* manifest is verified and filled in */
	struct manifest manifest;
	uint64_t size;			/* of the whole file, once known */
	uint64_t at;			/* bytes taken */
	unsigned file;
	uint64_t left;			/* of that file */
	struct evp_md_ctx_st *md, *whole;	/* of the file in hand; of everything */
	struct refusal why;		/* bad-release, bad-signature, no-key, bad-manifest, bad-file, bad-size, io */
};

int relcheck_init(struct relcheck *rc, const char *keys);	/* -ENOMEM */
void relcheck_done(struct relcheck *rc);

/* The next bytes. 0, or -ECANCELED with the reason in why. */
int relcheck_feed(struct relcheck *rc, const uint8_t *data, size_t len);

/* All of it is exactly this: 0, or -ECANCELED. Once, at the end. */
int relcheck_is(struct relcheck *rc, uint64_t size, const uint8_t sha256[RELEASE_HASH]);

/* There are no more: 0 when it is complete and right. */
int relcheck_end(struct relcheck *rc);

#endif
