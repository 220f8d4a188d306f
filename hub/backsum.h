/*
 * The SHA-256 of a bundle that a run brings back, made as the bundle comes: to read 128 MiB of it again when the result names it would keep
 * the hub from all else. In memory, with its run: what came before the hub was started is not known, and every session begins anew.
 */
#ifndef EDGEWARD_HUB_BACKSUM_H
#define EDGEWARD_HUB_BACKSUM_H

#include <openssl/evp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/ipc/file.h"

struct backsum {
	EVP_MD_CTX *md;			/* of what comes in pieces; NULL = none came */
	uint64_t size;
	char sha256[FILE_SHA_HEX];	/* "" = of md */
};

/* The first piece is about to come. -ENOMEM. */
int backsum_begin(struct backsum *b);
/* One behind what has come since. -ENOMEM. */
int backsum_add(struct backsum *b, const void *data, size_t len);
/* All of it has come at once, and is right. */
void backsum_whole(struct backsum *b, uint64_t size, const char *sha256);
/* True when exactly this has come. NULL, as a device may leave it out, is no digest. */
bool backsum_is(struct backsum *b, uint64_t size, const char *sha256);
/* Nothing has come. */
void backsum_drop(struct backsum *b);

#endif
