/* Runs another program to its end, with a bound on time and output: for one-shots, never for a process with an event loop. */
#ifndef EDGEWARD_RUNPROG_H
#define EDGEWARD_RUNPROG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * argv[0] is an absolute path. It gets an empty environment but for PATH, the root directory, /dev/null as input, no other descriptor, its
 * own session, no core file. With a uid other than 0 it runs as that user and group, without groups, capabilities or a way to
 * gain any, and can put no byte into a file. stdout and stderr go to out (size bytes with the NUL); when it says more, or after ms, it and its session are killed.
 * Its exit code, -ETIMEDOUT, -EFBIG, -ECHILD when a signal ended it (the signal's number is then in out), -errno.
 */
int run_program(const char *const argv[], uid_t uid, gid_t gid, int64_t ms, char *out, size_t size);

#endif
