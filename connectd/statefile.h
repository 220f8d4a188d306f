/*
 * Files connectd keeps in its state directory. A file is replaced as a whole (common/fdutil.h); one that is found damaged
 * is kept aside under a bounded number of names, and a complete temporary beside an unusable file is taken instead.
 */
#ifndef EDGEWARD_CONNECTD_STATEFILE_H
#define EDGEWARD_CONNECTD_STATEFILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STATEFILE_ASIDE	3	/* NAME.bad-0 .. NAME.bad-2 */

enum statefile_found {
	STATEFILE_NONE,		/* neither the file nor a temporary */
	STATEFILE_GOOD,
	STATEFILE_RECOVERED,	/* from the temporary; a bad main file was kept aside */
	STATEFILE_DAMAGED,	/* nothing usable; the bad file was kept aside if that could be done */
	STATEFILE_UNREADABLE,	/* it may be good, but reading failed: *ret_err is why. Nothing was touched */
};

/*
 * Loads dirfd/name by take(): 0 = good, -errno = damaged. take() is called once for each candidate and must only keep
 * what it read when it returns 0. *ret_mode (may be NULL) gets the permission bits of a good file.
 */
enum statefile_found statefile_load(int dirfd, const char *name, size_t max,
    int (*take)(const uint8_t *data, size_t len, void *ctx), void *ctx, mode_t *ret_mode, int *ret_err);

#endif
