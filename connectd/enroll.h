/*
 * What an operator hands over to make this device known: a token, or a bundle (cloopenroll1.) that carries hub, token and
 * pin together. From the token file named in the configuration, or from edgectl enroll.
 */
#ifndef EDGEWARD_CONNECTD_ENROLL_H
#define EDGEWARD_CONNECTD_ENROLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENROLL_BUNDLE_PREFIX	"cloopenroll1."
#define ENROLL_TEXT_MAX		4096
#define ENROLL_ERR		200

struct enroll {
	char server[512];	/* empty = the configured hub */
	char token[512];	/* secret */
	char pin[256];
	char name[64];
};

/*
 * Reads a token or a bundle; white space around it is no part of it. now_ns is for the bundle's expiry. 0, or -EINVAL
 * (*err says what is wrong with it and what to do), -ESTALE (expired). err never holds a part of the input.
 */
int enroll_parse(const char *text, size_t len, int64_t now_ns, struct enroll *ret_enroll, char err[ENROLL_ERR]);

/* The same from a file. -ENOENT when there is none. */
int enroll_read_file(const char *path, int64_t now_ns, struct enroll *ret_enroll, char err[ENROLL_ERR]);

/* Removes a redeemed token file and syncs its directory. */
int enroll_remove_file(const char *path);

void enroll_wipe(struct enroll *enroll);

#endif
