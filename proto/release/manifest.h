/*
 * A release: one file. First the signature as signify(1) writes it (a comment line, a line of base64), then the manifest, then the bytes
 * of each file the manifest lists, in its order, and nothing behind them.
 *
 *	edgeward-release 1
 *	version 0.2.0
 *	sequence 42
 *	channel stable
 *	arch x86_64
 *	protocol 1
 *	expires 2027-11-29
 *	program connectd 123456 SHA256-in-hex
 *	data sbom.spdx.json 2345 SHA256-in-hex
 *	end 2
 *
 * The signature is over the manifest's bytes; the manifest has the hash of everything else. So there is no archive to parse, and nothing is
 * looked at before its signature or hash is known to be right, except for where the manifest ends.
 */
#ifndef EDGEWARD_PROTO_MANIFEST_H
#define EDGEWARD_PROTO_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RELEASE_HEAD_MAX	16384u			/* signature and manifest */
#define RELEASE_FILES_MAX	32u
#define RELEASE_FILE_MAX	(64ull << 20)
#define RELEASE_TOTAL_MAX	(256ull << 20)
#define RELEASE_SEQUENCE_MAX	((1ull << 53) - 1)	/* exact in JSON */
#define RELEASE_HASH		32

#define RELEASE_NAME_SIZE	48
#define RELEASE_VERSION_SIZE	32			/* as in HELLO */
#define RELEASE_WORD_SIZE	32

struct release_file {
	char name[RELEASE_NAME_SIZE];	/* [a-z0-9][a-z0-9._-]*: a name, never a path */
	bool program;			/* is executed; else data */
	uint64_t size;
	uint8_t sha256[RELEASE_HASH];
};

struct manifest {
	char version[RELEASE_VERSION_SIZE];
	uint64_t sequence;		/* >= 1 */
	char channel[RELEASE_WORD_SIZE], arch[RELEASE_WORD_SIZE];
	uint64_t protocol;		/* the lowest protocol of a hub it still speaks */
	int64_t expires;		/* seconds since 1970, 00:00 UTC of that day */
	unsigned nfiles;
	uint64_t total;			/* bytes of all files */
	struct release_file files[RELEASE_FILES_MAX];
};

/* What every release must have, NULL at the end. */
extern const char *const release_required[];

/* Exactly a manifest: -EBADMSG for anything else, also for a name given twice, a required one missing, a size out of bounds. */
int manifest_parse(const void *data, size_t len, struct manifest *ret_manifest);

const struct release_file *manifest_find(const struct manifest *m, const char *name);

/* [A-Za-z0-9][A-Za-z0-9.+~-]{0,30}, [a-z0-9][a-z0-9._-]{0,46} without the names we use ourselves, [a-z0-9_-]{1,31}. */
bool release_version_ok(const char *s);
bool release_name_ok(const char *s);
bool release_word_ok(const char *s);

struct release_head {			/* points into the data it was split from */
	const char *signature;		/* two lines */
	size_t signature_len;
	const char *manifest;
	size_t manifest_len;
};

/* Splits the beginning of a release file. -EBADMSG when there is no signature or no end within RELEASE_HEAD_MAX. */
int release_split(const void *data, size_t len, struct release_head *ret_head);

#endif
