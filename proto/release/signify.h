/* Keys and signatures as signify(1) writes them: a comment line, then one line of base64 (openbsd's signify.c, struct pubkey and sig). */
#ifndef EDGEWARD_PROTO_SIGNIFY_H
#define EDGEWARD_PROTO_SIGNIFY_H

#include <stddef.h>
#include <stdint.h>

#define SIGNIFY_KEYNUM		8
#define SIGNIFY_KEY		32
#define SIGNIFY_SIG		64
#define SIGNIFY_FILE_MAX	1280u	/* comment of at most 1024 bytes, base64 */

struct signify_key {
	uint8_t keynum[SIGNIFY_KEYNUM], key[SIGNIFY_KEY];
};

struct signify_sig {
	uint8_t keynum[SIGNIFY_KEYNUM], sig[SIGNIFY_SIG];
};

/* Exactly one key, or one signature. -EBADMSG. */
int signify_key_parse(const void *data, size_t len, struct signify_key *ret_key);
int signify_sig_parse(const void *data, size_t len, struct signify_sig *ret_sig);

#endif
