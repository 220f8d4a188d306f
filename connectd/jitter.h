/* Random numbers for waiting times: straight from getrandom, so that no two processes ever share a sequence. */
#ifndef EDGEWARD_CONNECTD_JITTER_H
#define EDGEWARD_CONNECTD_JITTER_H

#include <stdint.h>

/* Uniform in [lo, hi]; hi when hi < lo. */
int64_t jitter_between(int64_t lo, int64_t hi);

/* Tests put their own source here; NULL restores the kernel's. */
void jitter_set_source(uint64_t (*source)(void));

#endif
