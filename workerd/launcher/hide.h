/* What is the agent's own is hidden in the view of a workload, wherever it lies: configuration, policy, state, sockets. */
#ifndef EDGEWARD_LAUNCHER_HIDE_H
#define EDGEWARD_LAUNCHER_HIDE_H

#include <limits.h>
#include <stddef.h>

#define HIDE_OWN	5u	/* what the command line names */
#define HIDE_MAX	(HIDE_OWN + 3u)

/* Where it really lies, without links. */
struct hidden {
	int proc;		/* the machine's /proc: the view grows where it is mounted */
	char real[HIDE_MAX][PATH_MAX];
	size_t n;
};

/* What the command line names, wherever the caller's directory will be later. At start-up: what it makes is never freed. */
const char *hide_absolute(const char *path);

/* Finds the three directories every device has and own, where NULL is none. 0 or -errno. */
int hide_find(struct hidden *h, int proc, const char *const own[HIDE_OWN]);

/* The place a path leads to; "" = whoever asks gets nowhere by it. 0 or -errno. */
int hide_resolve(int proc, const char *path, char real[PATH_MAX]);

/*
 * at shows the machine's directory real ("" = the root): lays something empty over what of h is there. root is where the view
 * grows; below at there may still be made work_dir, which has root before it, and the places of show, which have not.
 */
int hide_below(const struct hidden *h, const char *real, const char *at, const char *root, const char *work_dir, const char *show);

#endif
