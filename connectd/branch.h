/*
 * Branches that a hub ships before the start that needs them (branch_chunk, reference cloop.md 5.8 and 14.16): put together in a
 * file without a name in the state directory, so that nothing stays behind whatever ends. Bounded in number, size and time.
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

/* The complete one for a handle, for reading, which is the caller's then; -1 = there is none. The transfer is over. */
int branch_claim(struct session *s, const char *handle);

/* The session ends. */
void branches_free(struct session *s);

#endif
