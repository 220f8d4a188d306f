/*
 * Bytes on their way out: one buffer that is filled at the end and emptied at the front. It is kept between uses (a page
 * that is given back and fetched again costs more than the copy it saved) and grows only for a large message.
 */
#ifndef EDGEWARD_CONNECTD_OUTQ_H
#define EDGEWARD_CONNECTD_OUTQ_H

#include <stddef.h>
#include <stdint.h>

#define OUTQ_KEEP	(160u * 1024)	/* capacity that is kept when empty */

struct outq {
	uint8_t *buf;
	size_t cap, off, end;		/* bytes [off, end) are queued */
};

void outq_done(struct outq *q);		/* wipes and frees */

/* Room for len bytes behind what is queued, valid until the next call; NULL when there is no memory. */
uint8_t *outq_room(struct outq *q, size_t len);
void outq_commit(struct outq *q, size_t len);

/* Appends a copy. -ENOMEM. */
int outq_put(struct outq *q, const void *data, size_t len);

static inline size_t
outq_len(const struct outq *q)
{
	return q->end - q->off;
}

static inline const uint8_t *
outq_data(const struct outq *q)
{
	return q->buf + q->off;
}

/* Drops len bytes at the front. */
void outq_drop(struct outq *q, size_t len);

/* Overwrites everything that ever was in it; it must be empty. */
void outq_wipe(struct outq *q);

#endif
