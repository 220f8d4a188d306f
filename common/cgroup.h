/* The cgroup v2 tree, also where it hangs beside v1 ("hybrid"). Plain files; nothing here logs. */
#ifndef EDGEWARD_CGROUP_H
#define EDGEWARD_CGROUP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

/* The directory of our own cgroup. 2 where v2 is the whole tree, 1 on a hybrid machine, 0 when there is none. */
int cgroup_own(char *path, size_t size);

/* Writes value into a file; 0 or -errno. */
int cgroup_write(int dirfd, const char *file, const char *value);

/* The number behind key, or the first number with key NULL; 0 if there is none. */
uint64_t cgroup_read(int dirfd, const char *file, const char *key);

/* The sum of all numbers behind key, which ends in '=' ("rbytes="). */
uint64_t cgroup_sum(int dirfd, const char *file, const char *key);

/* Removes a cgroup and those below it: 0 (also when there is none), -EBUSY while something lives there, -errno. */
int cgroup_remove(const char *path);

/*
 * Takes our own cgroup to divide it among others: moves this process to its child `leaf`. Ours it is when we are alone in it and
 * may make a child; in the root cgroup of a machine we never are. As cgroup_own(), and 0 when it is not ours; path is set
 * and *ret_fd its directory then (-1 else).
 */
int cgroup_divide(const char *leaf, char *path, size_t size, int *ret_fd);

struct cgroup_limits {		/* 0 = none */
	uint64_t memory_bytes;
	uint32_t pids, cpu_millis;
	uint64_t io_rate;		/* bytes a second, each way, of the one disk */
	uint32_t io_major, io_minor;
};

/* The whole disk that a file system lies on, as io.max wants it. 0, or -ENODEV: no one disk (tmpfs, overlay, btrfs, network). */
int cgroup_disk(const char *path, uint32_t *ret_major, uint32_t *ret_minor);

/* Makes name in dirfd with these limits: a descriptor or -errno (-ENOENT: there is no controller for one of them). */
int cgroup_make(int dirfd, const char *name, const struct cgroup_limits *limits);

struct cgroup_usage {		/* 0 = unknown */
	uint64_t cpu_ms, mem_peak_kb, io_read, io_write;	/* bytes that went to or came from a device */
	uint32_t oom_kills, pids_max;
};

/* What a cgroup has used, as far as its controllers count; the rest, or all with dirfd -1, from ru. */
void cgroup_usage(int dirfd, const struct rusage *ru, struct cgroup_usage *ret_usage);

/* Kills and removes every child whose name begins with prefix, as cgroup_end() does. */
void cgroup_sweep(const char *path, const char *prefix, unsigned tries);

/* Kills everything there and removes it, waiting at most tries * 10 ms; as cgroup_remove. */
int cgroup_end(const char *path, unsigned tries);

#endif
