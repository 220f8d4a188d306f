/*
 * Frames that wait for workerd. A workerd that is replaced (a reload, an upgrade, a crash) is away for a moment: a hub's
 * frame that needs it waits for the next one instead of being refused, and so does every later frame that could be about
 * the same thing, so that their order stays. Bounded in time, number and bytes; then they are let go and refused by whoever
 * handles them.
 */
#ifndef EDGEWARD_CONNECTD_HOLD_H
#define EDGEWARD_CONNECTD_HOLD_H

#include "common/loop.h"
#include "connectd/cloop.h"
#include "proto/hub/json.h"
#include "proto/hub/stream.h"

#define HOLD_MS		10000		/* as long as workerd has been away so long */
#define HOLD_FRAMES	64u
#define HOLD_BYTES	(4u << 20)	/* as they are kept: many times what was sent, if a hub wants it so */

struct session;
struct held_frame;

struct hold {
	struct held_frame *first, **last;
	unsigned n;
	size_t bytes;
	struct loop_timer over;
};

void hold_init(struct session *s);
void hold_done(struct session *s);

/* True if it waits now and doc is taken. False: to be handled at once. */
bool hold_take(struct session *s, const struct cloop_frame *f, struct json_doc *doc);

/* workerd is there: all that waits is handled, in order. */
void hold_release(struct session *s);

/*
 * A frame of a stream that may still wait to be opened. A WINDOW is kept for it, and a RESET takes it out, answered: true. Bytes that come
 * before the answer have no place here: all that waits is let go at once.
 */
bool hold_stream_frame(struct session *s, const struct stream_frame *f);

#endif
