/*
 * Branches that a hub ships before the start that needs them (branch_chunk, reference cloop.md 5.8 and 14.16): put together in a
 * file without a name in the state directory, so that nothing stays behind whatever ends. Bounded in number, size and time.
 *
 * On edgeward.1 also as a stream of kind bundle: stream_open {channel, kind, handle, size, sha256} -> stream_opened {channel, offset: 0};
 * our END says that all of it is here and has this digest, and the start may follow. Bytes that are no good reset the channel: REFUSED.
 */
#ifndef EDGEWARD_CONNECTD_BRANCH_H
#define EDGEWARD_CONNECTD_BRANCH_H

#include "connectd/cloop.h"

#define BRANCHES_MAX	8u
#define BRANCH_KEEP_MS	(15 * 60 * 1000)

struct branch;
struct session;

/* The frame; it is never answered. What breaks the order ends that transfer. */
void branch_chunk(struct session *s, const struct cloop_frame *f);

/* stream_open; channel is claimed. */
void branch_stream(struct session *s, const struct cloop_frame *f, uint32_t channel);

/* The complete one for a handle, for reading, which is the caller's then; -1 = there is none. The transfer is over. */
int branch_claim(struct session *s, const char *handle);

/* Those that nothing came of, nor a start for, in that time; with every beat, too, so that they go where nothing more is shipped. */
void branches_expire(struct session *s);

/* The session ends. */
void branches_free(struct session *s);

#endif
