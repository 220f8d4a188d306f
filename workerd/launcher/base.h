/* The common part of the views of a runner's workloads, made once and kept. */
#ifndef EDGEWARD_LAUNCHER_BASE_H
#define EDGEWARD_LAUNCHER_BASE_H

#include <stdbool.h>

#include "proto/ipc/launch.h"
#include "workerd/launcher/view.h"

struct base;
struct launcher;

/* Before a start: what is kept for it, or NULL; what the machine's mounts have made worthless goes. */
struct base *base_find(struct launcher *l, const struct launch_start *s);

/* After it: has one made for the next if there is none, or it was found stale; root is the work root. */
void base_after(struct launcher *l, const struct launch_start *s, int root, bool stale);

/* The descriptors of its namespaces, for the clone's FD_USER and FD_MNT. */
void base_fds(const struct base *base, int ret_fds[2]);

/*
 * In the clone that has become the runner, which knows them and the machine's /proc as FD_PROC and the work root as FD_ROOT: enters the base, where
 * FD_ROOT is another descriptor of the same directory. 0; -ESTALE with nothing done: it does not show any more what the machine has; another
 * error ends the start.
 */
int base_enter(const struct base *base, const struct launcher *l, const struct launch_start *s);

/* What its builder, a process of the runner, tells. */
struct base_made {
	struct view_key key;
	char place[VIEW_PLACE];		/* the work root's name */
};
const struct base_made *base_made(const struct base *base);

/* In a fork of the launcher, with FD_ROOT and a socket as FD_INIT, to which it sends a struct base_made and the two descriptors. */
_Noreturn void base_build(const struct launcher *l, const struct launch_start *s);

#endif
