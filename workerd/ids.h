/*
 * Whose work a directory is: the path a hub sent becomes a path beneath the work root, and its top-level directory says
 * which runner id works there. An existing directory belongs to its owner; a new one gets an id nobody has.
 */
#ifndef EDGEWARD_WORKERD_IDS_H
#define EDGEWARD_WORKERD_IDS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define IDS_TOP_SIZE	(NAME_MAX + 1)

struct ids {
	int root;			/* the work root, held open for reading */
	char configured[PATH_MAX];	/* as the configuration names it, without trailing '/' */
	char real[PATH_MAX];		/* symbolic links resolved */
	uint32_t first, count;		/* the pool; count 0 = everybody is the same */
};

/* Opens the root. -errno. */
int ids_init(struct ids *ids, const char *path);

/*
 * The path a hub sent, lexically cleaned: relative to the root, no empty step, no "." and no "..". "" is the root.
 * -EXDEV: outside the root; -ENAMETOOLONG. ret_path has WORK_DIR_SIZE bytes.
 */
int ids_clean(const struct ids *ids, const char *dir, char *ret_path);

/* First step of a cleaned path, "" for the root. -ENAMETOOLONG. */
int ids_top(const char *path, char ret_top[IDS_TOP_SIZE]);

/*
 * The slot for a top-level directory. taken[slot] != 0 marks ids of work that is under way (its directory may not exist
 * yet). -EUSERS: no id is free; -EACCES: the directory belongs to *ret_owner, who is no runner; -EXDEV, -ELOOP, -ENOTDIR:
 * leads outside or is none.
 */
int ids_slot(const struct ids *ids, const char *top, const uint8_t *taken, uint32_t *ret_slot, uint32_t *ret_owner);

#endif
