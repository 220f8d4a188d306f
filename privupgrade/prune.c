/*
 * Removes what is not needed any more.
 *
 * Who calls: trial.c, at the end of an upgrade. What is trusted: releases/ belongs to root. On error: it stays; the next upgrade tries again.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/fdutil.h"
#include "common/log.h"
#include "privupgrade/privtrial.h"
#include "proto/release/lines.h"

static bool
in_use(const struct updater *u, const char *name)
{
	char target[UPGRADE_LINK_SIZE], ours[64];
	uint64_t sequence;

	for (int i = 0; i < 2; i++) {
		link_read(u, i == 0 ? LINK_CURRENT : LINK_UPDATER, target);
		if (strncmp(target, "releases/", 9) == 0 && strcmp(target + 9, name) == 0)
			return true;
	}
	snprintf(ours, sizeof(ours), "%" PRIu64, u->state.sequence);
	if (u->open && (strcmp(name, ours) == 0 || (strncmp(u->state.from, "releases/", 9) == 0 && strcmp(u->state.from + 9, name) == 0)))
		return true;
	/* Whatever else an administrator put there is not ours. */
	snprintf(ours, sizeof(ours), "%.*s", (int)strcspn(name, "."), name);
	return lines_number(ours, 1, RELEASE_SEQUENCE_MAX, &sequence) < 0 ||
	    (strcmp(name, ours) != 0 && strcmp(name + strlen(ours), ".new") != 0);
}

void
releases_prune(const struct updater *u)
{
	int fd = openat(u->releases, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

	unlinkat(u->base, LINK_CURRENT ".new", 0);	/* what an interruption left half-made */
	unlinkat(u->base, LINK_UPDATER ".new", 0);
	if (dir == NULL)
		return;
	for (struct dirent *d; (d = readdir(dir)) != NULL; )
		if (d->d_name[0] != '.' && !in_use(u, d->d_name) && fd_remove_flat_dir(u->releases, d->d_name) < 0)
			log_warn("releases/%.64s cannot be removed: %s", d->d_name, strerror(errno));
	closedir(dir);
}
