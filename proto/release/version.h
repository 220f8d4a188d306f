/* Which of two versions is the newer one: release tags as people write them. */
#ifndef EDGEWARD_PROTO_VERSION_H
#define EDGEWARD_PROTO_VERSION_H

/*
 * Numbers between dots are compared as numbers, a missing one is 0; with equal numbers the one with a suffix behind '-' or '~' is the
 * older one, and suffixes compare as text; what is behind '+' does not count. A leading 'v' neither. < 0, 0, > 0 as strcmp().
 */
int release_version_cmp(const char *a, const char *b);

#endif
