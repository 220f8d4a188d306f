/* The binary frames of edgeward.1: which belong to a stream (proto/hub/mux.h), and those of log channels. Pure. */
#ifndef EDGEWARD_CONNECTD_EDGEWARD1_H
#define EDGEWARD_CONNECTD_EDGEWARD1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/hub/stream.h"

#define EDGEWARD1_SMALL	(STREAM_HEADER + 4 + STREAM_REASON_MAX)	/* room for every frame but DATA */

/* What a frame of the hub asks for. Pointers are views into the message. */
struct edgeward1_sink {
	void (*window)(uint32_t channel, uint64_t offset, void *ctx);
	void (*reset)(uint32_t channel, enum stream_reset code, const uint8_t *reason, size_t len, void *ctx);
	/* DATA, END or GAP: nothing a hub may send on a log channel. */
	void (*unwanted)(uint32_t channel, void *ctx);
	/* A channel that is no log gets the frame as it is. */
	bool (*is_stream)(uint32_t channel, void *ctx);
	void (*stream)(const struct stream_frame *f, void *ctx);
};

/* Parses one binary message and calls the sink. 0, or -EBADMSG: the session ends with close code 1002. */
int edgeward1_receive(const uint8_t *data, size_t len, const struct edgeward1_sink *sink, void *ctx);

/* Frames into dst (EDGEWARD1_SMALL bytes). Each returns its length. */
size_t edgeward1_gap(uint8_t *dst, uint32_t channel, uint64_t from, uint64_t to, uint8_t reason);
size_t edgeward1_end(uint8_t *dst, uint32_t channel, uint64_t total, const uint8_t *xxh3);
size_t edgeward1_reset(uint8_t *dst, uint32_t channel, enum stream_reset code, const char *reason);

#endif
