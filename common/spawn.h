/* Starting other programs so that they get what was decided and nothing else (B59). */
#ifndef EDGEWARD_SPAWN_H
#define EDGEWARD_SPAWN_H

#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

/*
 * Once, at the start of a process that will start others: standard input is /dev/null, descriptors 3 to end - 1 are kept occupied
 * (children use those numbers), every signal has its default disposition, new files get mode 022, and the limit of
 * descriptors is raised. *ret_nofile is the limit children shall have again. -errno.
 */
int spawn_set_state(int end, struct rlimit *ret_nofile);

/*
 * Starts argv[0], an absolute path, with fds[i] as descriptor 3 + i (-1: left as it is) and none above them, no signal
 * blocked. The child's pid or -errno of fork; when it cannot be run the child logs that and exits 1.
 */
pid_t spawn_daemon(char *const argv[], const int *fds, int n, const struct rlimit *nofile);

/* Path of an executable in the folder of our own. */
void spawn_beside(const char *name, char *path, size_t size);

#endif
