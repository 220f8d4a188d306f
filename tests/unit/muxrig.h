/* Two muxes over a wire that is a list of frames: what one sends the other gets, when the test says so. */
#ifndef EDGEWARD_TEST_MUXRIG_H
#define EDGEWARD_TEST_MUXRIG_H

#include "proto/hub/mux.h"
#include "tests/unit/unit.h"

#define FRAMES_MAX	256

struct side {
	struct mux m;
	struct {
		uint8_t *data;
		size_t len;
	} out[FRAMES_MAX];
	unsigned n, kicks, room;	/* room: bulk frames that may be begun */
	uint8_t *begun;
	bool dies;			/* the next frame that is no bytes ends the session, as too much output does */
};

struct owner {
	struct mux_chan c;
	size_t take_max;		/* bytes taken in one call */
	uint64_t got, sent, total;	/* total: to send */
	uint32_t sum;
	unsigned ends, closes, code;
	uint64_t hole_at, hole_to;	/* fill() and take() meet one there */
	unsigned hole_no;		/* so often it is not taken */
	bool had_digest, end_in_fill, reset_in_take;
	char reason[STREAM_REASON_MAX + 1];
};

extern const struct mux_kind file, usb, holed, http;
extern struct side hub, dev;
extern struct mux_count counts[MUX_CLASSES];
int setup(void **state);
int teardown(void **state);
unsigned carry(struct side *from, struct side *to);
void open_both(struct owner *h, struct owner *d, const struct mux_kind *kind);
void frame(struct side *to, enum stream_type type, uint32_t id, uint64_t offset, size_t len);
uint32_t last_reset(const struct side *s);

#endif
