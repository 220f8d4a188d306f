/* The binary frames of edgeward.1: one WebSocket binary message = one frame, header of 16 bytes, big-endian. */
#ifndef EDGEWARD_PROTO_HUB_STREAM_H
#define EDGEWARD_PROTO_HUB_STREAM_H

#include <stddef.h>
#include <stdint.h>

#define STREAM_HEADER	16u
#define STREAM_DATA_MAX	65536u	/* what is taken */
/*
 * What is sent in one frame. With the heads of stream, WebSocket and TLS around it, it is four records of 16 KiB, and no more than one packet may
 * carry (64 KiB, over loopback and with segmentation offload): full 64 KiB were a fifth record and a second packet of a few bytes each.
 */
#define STREAM_PIECE	0xff00u

#define STREAM_WINDOW	(256u * 1024)	/* initial window beyond the start */
#define STREAM_REASON_MAX 200u
#define STREAM_GAP_HOLE	5u

enum stream_type { STREAM_DATA = 1, STREAM_WINDOW_TO = 2, STREAM_END = 3, STREAM_GAP = 4, STREAM_RESET = 5 };

enum stream_reset {
	STREAM_RESET_PROTOCOL = 1, STREAM_RESET_WINDOW = 2, STREAM_RESET_REFUSED = 3, STREAM_RESET_GONE = 4,
	STREAM_RESET_LIMIT = 5, STREAM_RESET_INTERNAL = 6,
};

struct stream_frame {
	enum stream_type type;
	uint32_t channel;
	uint64_t offset;
	const uint8_t *data;	/* DATA: the bytes; RESET: the reason, valid UTF-8, not NUL-terminated */
	size_t len;
	uint64_t gap_to;	/* GAP */
	uint8_t gap_reason;	/* GAP: 1 memory, 2 spool, 3 disk full, 4 lost; 5 a hole: zeroes of a file, in a stream alone */
	uint32_t reset;		/* RESET: enum stream_reset */
	const uint8_t *digest;	/* END: 16 bytes of canonical XXH3-128, or NULL */
};

/* Checks everything the format says; views into data. 0 or -EBADMSG (the session ends with close code 1002). */
int stream_parse(struct stream_frame *ret_frame, const uint8_t *data, size_t len);

/* The 16 bytes alone; for DATA they are written in front of bytes that are already in place. */
void stream_put_header(uint8_t dst[STREAM_HEADER], enum stream_type type, uint32_t channel, uint64_t offset);

/* A whole frame other than DATA into dst (at least STREAM_HEADER + 4 + STREAM_REASON_MAX bytes). Returns its length. */
size_t stream_put(uint8_t *dst, const struct stream_frame *frame);

#endif
