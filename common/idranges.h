/*
 * Ranges of user ids that are somebody's: what login.defs(5) and subuid(5) give away, what Debian and systemd keep for themselves; and
 * the next ids outside all of them. Text in, numbers out; NSS is the caller's to ask.
 */
#ifndef EDGEWARD_IDRANGES_H
#define EDGEWARD_IDRANGES_H

#include <stddef.h>
#include <stdint.h>

#define IDRANGES_MAX	1024u

struct idranges {
	unsigned n;
	struct {
		uint32_t first, last;
	} r[IDRANGES_MAX];
	uint32_t human_min;	/* UID_MIN of login.defs: from here on an account is a person's, or nobody's */
};

/* The fixed ones. */
void idranges_init(struct idranges *set);

/* login.defs: -EINVAL for a bound that is no number. What it does not say has shadow's defaults. */
int idranges_login_defs(struct idranges *set, const char *text, size_t len);

/* subuid or subgid: -EINVAL for a line that is none, -E2BIG. */
int idranges_subid(struct idranges *set, const char *text, size_t len);

/* All three files of an open /etc, on top of the fixed ranges; one that is missing says nothing. -errno with the file's name. */
int idranges_read(struct idranges *set, int etc, const char **ret_name);

/* By NSS, which may ask a network: 0 nobody has this id as a user or group, 1 somebody has, -errno it cannot be told. */
int idranges_in_use(uint32_t id);

/* The lowest count ids in a row, not below from, outside every range. 0 or -ENOSPC. */
int idranges_next(const struct idranges *set, uint32_t from, uint32_t count, uint32_t *ret_first);

#endif
