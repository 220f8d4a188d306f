#include "connectd/outq.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void
outq_done(struct outq *q)
{
	if (q->buf != NULL)
		explicit_bzero(q->buf, q->cap);
	free(q->buf);
	*q = (struct outq){ .buf = NULL };
}

uint8_t *
outq_room(struct outq *q, size_t len)
{
	size_t have = outq_len(q), cap = q->cap;
	uint8_t *buf;

	if (q->cap - q->end >= len)
		return q->buf + q->end;
	if (q->off > 0) {
		memmove(q->buf, q->buf + q->off, have);
		q->off = 0;
		q->end = have;
		if (q->cap - q->end >= len)
			return q->buf + q->end;
	}
	if (cap == 0)
		cap = 4096;
	while (cap - have < len)
		cap = cap < OUTQ_KEEP ? (cap * 2 > OUTQ_KEEP ? OUTQ_KEEP : cap * 2) : cap * 2;
	/* Not realloc(): what is left behind would not be wiped. */
	buf = malloc(cap);
	if (buf == NULL)
		return NULL;
	if (q->buf != NULL) {
		memcpy(buf, q->buf, have);
		explicit_bzero(q->buf, q->cap);
		free(q->buf);
	}
	q->buf = buf;
	q->cap = cap;
	return q->buf + q->end;
}

void
outq_commit(struct outq *q, size_t len)
{
	q->end += len;
}

int
outq_put(struct outq *q, const void *data, size_t len)
{
	uint8_t *room;

	if (len == 0)
		return 0;
	room = outq_room(q, len);
	if (room == NULL)
		return -ENOMEM;
	memcpy(room, data, len);
	outq_commit(q, len);
	return 0;
}

void
outq_drop(struct outq *q, size_t len)
{
	q->off += len;
	if (q->off < q->end)
		return;
	q->off = q->end = 0;
	if (q->cap > OUTQ_KEEP)
		outq_done(q);
}

void
outq_wipe(struct outq *q)
{
	if (q->buf != NULL)
		explicit_bzero(q->buf, q->cap);
}
