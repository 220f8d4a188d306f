/* The cgroup v2 tree, also where it hangs beside v1 ("hybrid"). Plain files; nothing here logs. */
#ifndef EDGEWARD_CGROUP_H
#define EDGEWARD_CGROUP_H

#include <stddef.h>
#include <stdint.h>

/* The directory of our own cgroup. 2 where v2 is the whole tree, 1 on a hybrid machine, 0 when there is none. */
int cgroup_own(char *path, size_t size);

/* Writes value into a file; 0 or -errno. */
int cgroup_write(int dirfd, const char *file, const char *value);

/* The number behind key, or the first number with key NULL; 0 if there is none. */
uint64_t cgroup_read(int dirfd, const char *file, const char *key);

/* Removes a cgroup and those below it: 0 (also when there is none), -EBUSY while something lives there, -errno. */
int cgroup_remove(const char *path);

/* Kills everything there and removes it, waiting at most tries * 10 ms; as cgroup_remove. */
int cgroup_end(const char *path, unsigned tries);

#endif
