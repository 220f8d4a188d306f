/*
 * Files of "[section]", "key = value" and comments, read into a struct by a table of keys. edgeward.conf and policy.conf
 * are two such tables.
 *
 * An unknown section or key, a key given twice, a value out of range, a line over 198 bytes (inih cuts there) or a
 * continuation line is an error with file and line. The keys of lists are the exception: each line adds to the list.
 */
#ifndef EDGEWARD_KEYFILE_H
#define EDGEWARD_KEYFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define KEYFILE_STR	200	/* no value is longer: inih's line limit */
#define KEYFILE_LIST	3072	/* bytes of a list: one record of the control sockets holds it */
#define KEYFILE_ERR	512
#define KEYFILE_KEYS	64	/* in one table */

/* What a file was like when it was read; all but path 0 = it was not there. */
struct keyfile_mark {
	const char *path;		/* the caller's, NULL = nothing was read */
	int64_t mtime_ns;
	uint64_t ino, size, digest;
};

/* What was read of it, and the file then. st NULL: it was not there. */
void keyfile_mark(struct keyfile_mark *mark, const char *path, const struct stat *st, const char *text, size_t len);
/*
 * Whether something else is in it now: a new time alone is no change. One that cannot be looked at has not changed, one that has
 * another time and cannot be read has.
 */
bool keyfile_changed(const struct keyfile_mark *mark);

/* Items of a list, or one word that stands for itself (any, none). */
struct keyfile_list {
	uint16_t word;			/* 1 + index of the word in the key's choices; 0: the items count */
	uint16_t n, len;
	char text[KEYFILE_LIST];	/* n items, each with its NUL; len bytes */
};

enum key_type {
	KEY_STR,		/* char[KEYFILE_STR]; max: longest, 0 = KEYFILE_STR - 1 */
	KEY_BOOL,		/* bool */
	KEY_U32,		/* uint32_t; as the next two: choices[0], when given, is the word for 0 */
	KEY_MS,			/* int64_t */
	KEY_SIZE,		/* uint64_t */
	KEY_CHOICE,		/* an enum, whose values are the indices of choices */
	KEY_PATH,		/* char[KEYFILE_STR]: an absolute path; choices[0], when given, is the word for "" */
	KEY_PATHS,		/* struct keyfile_list of absolute paths; as all that follow: choices are words that stand alone */
	KEY_NAMES,		/* [a-z_][a-z0-9_-]{0,31} */
	KEY_CLASSES,		/* USB interface classes, two hexadecimal digits */
	KEY_ADDRESSES,		/* HOST:PORT, IPv6 in brackets */
	KEY_CIDRS,		/* ADDRESS or ADDRESS/PREFIX; max: 1 = a prefix of 0, too */
	KEY_PORTS,		/* 1 to 65535 */
	KEY_IMAGES,		/* references of container images */
	KEY_RESOLVERS,		/* ADDRESS or ADDRESS:PORT, IPv6 with a port in brackets */
	KEY_SERVICES,		/* NAME=TARGET, see proto/ipc/service.h */
};

struct key {
	const char *section, *name;
	enum key_type type;
	size_t offset;
	uint64_t min, max;
	const char *const *choices;	/* NULL-terminated */
	const char *def;
};

/*
 * Defaults, then the text. name is for the messages. lines, when not NULL, has an entry for each key: where it was given
 * first, 0 = the default holds. -EINVAL with err filled.
 */
int keyfile_parse(const struct key *keys, size_t nkeys, void *target, uint16_t *lines, const char *name, const char *text,
    size_t len, char err[KEYFILE_ERR]);

/* The value as it could be written in the file. Cut at size - 1. */
void keyfile_value(const struct key *key, const void *target, char *buf, size_t size);

/* True if the list holds exactly this item. */
int keyfile_list_has(const struct keyfile_list *list, const char *item, size_t len);

/* The item after item, the first for NULL; NULL at the end. */
const char *keyfile_list_next(const struct keyfile_list *list, const char *item);

/* An absolute path of printable ASCII without space, empty, "." and ".." components and a slash at its end; "/" is none. */
int keyfile_path_ok(const char *s);

/* The file itself, at most 64 KiB. *ret_text is malloc'd with a NUL. -errno with err filled. */
int keyfile_read(const char *path, char **ret_text, size_t *ret_len, struct stat *ret_st, char err[KEYFILE_ERR]);

#endif
