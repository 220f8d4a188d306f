/* Starts confined as ours are, with nothing of the agent around them: in the namespaces and mounts of the full sandbox, or with the least there is. */
#ifndef EDGEWARD_BENCH_CONFINED_H
#define EDGEWARD_BENCH_CONFINED_H

#include <stddef.h>
#include <sys/types.h>

/* Runs argv with output as its standard output. The pid to wait for; its exit code is argv's. */
pid_t confined_start(int output, char **argv);

/* The same with the least; index: of the run, for the name of its cgroup, which least_end() removes when the pid was waited for. */
pid_t least_start(size_t index, int output, char **argv);
void least_end(size_t index);

#endif
