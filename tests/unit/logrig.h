/* Output on its way to the hub: one workload, h, of a device that is connected, and what the hub has received of it. */
#ifndef EDGEWARD_TEST_LOGRIG_H
#define EDGEWARD_TEST_LOGRIG_H

#include "proto/hub/stream.h"
#include "proto/hub/utf8.h"
#include "tests/unit/rig.h"

/* ---- what the hub has received ---- */

struct got {
	uint8_t *data;
	size_t len, size;
	unsigned frames, gaps;
	uint64_t next;
};

int setup(void **state);
int teardown(void **state);
void begin(bool edgeward1);
uint32_t epoch(void);
void collect_cloop(struct got *g);
void collect_stream(struct got *g);
void window(uint64_t offset);
void feed(const uint8_t *data, size_t len, size_t n, struct got *g);

#endif
