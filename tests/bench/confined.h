/* A start in the namespaces and mounts of the full sandbox, with nothing of the agent around it. */
#ifndef EDGEWARD_BENCH_CONFINED_H
#define EDGEWARD_BENCH_CONFINED_H

#include <sys/types.h>

/* Runs argv with output as its standard output. The pid to wait for; its exit code is argv's. */
pid_t confined_start(int output, char **argv);

#endif
