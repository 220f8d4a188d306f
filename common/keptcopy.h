/*
 * State files and the schema numbers in them. A release that goes back leaves its state to the one before, which may not know the number it
 * finds. So whoever writes a file under a higher number than what is there keeps that first, whole, as NAME.schema-N, N being its number;
 * and whoever finds a number above its own takes back NAME.schema-N of its own, if there is one, and keeps what it found in the same
 * way. One copy for each number, the newest. At every moment NAME is one of the two.
 */
#ifndef EDGEWARD_KEPTCOPY_H
#define EDGEWARD_KEPTCOPY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Tests make programs of a release whose numbers are one higher. */
#ifndef SCHEMA_RAISED
#define SCHEMA_RAISED	0u
#endif

struct schema {
	const char *name;		/* of the file */
	size_t max;			/* bytes it may have */
	unsigned now;			/* what this release writes; it reads all from 1 on */
	unsigned (*of)(const uint8_t *data, size_t len);	/* the number in this file; 0 = it has none that can be told */
};

/* The number behind this prefix, up to a blank or the end of the line: for files of lines. */
unsigned schema_number(const uint8_t *data, size_t len, const char *prefix);

/* Before a file is read: 1 = it was of a later release, and what was kept for this one is back; 0 = it stays as it is; -errno. */
int keptcopy_restore(int dirfd, const struct schema *schema);

/* fd_replace_file(), after a copy of what is there was kept if its number is lower. 0, -errno: then the file is as it was. */
int keptcopy_replace(int dirfd, const struct schema *schema, const void *data, size_t len, mode_t mode);

/* The copy alone, for files that are appended to. */
int keptcopy_keep(int dirfd, const struct schema *schema);

#endif
