#include "proto/hub/mux.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SMALL	(STREAM_HEADER + 4 + STREAM_REASON_MAX)

void
mux_init(struct mux *m, bool odd, const struct mux_ops *ops, void *ctx)
{
	*m = (struct mux){ .ops = ops, .ctx = ctx, .next_id = odd ? 1 : 2 };
}

/* ---- the table ---- */

static struct mux_count *
count_of(const struct mux_chan *c)
{
	static struct mux_count nobodys;

	return c->mux->counts != NULL ? &c->mux->counts[c->kind->class] : &nobodys;
}

static void
take_out(struct mux_chan *c)
{
	struct mux_chan **p = &c->mux->channels;

	count_of(c)->open--;
	count_of(c)->cut += !c->tx_end || !c->rx_told;
	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	c->mux->n--;
	c->mux = NULL;
	free(c->kept);
	c->kept = NULL;
	c->kept_off = c->kept_len = c->kept_size = 0;
}

static void
put_last(struct mux *m, struct mux_chan *c)
{
	struct mux_chan **p = &m->channels;

	while (*p != NULL)
		p = &(*p)->next;
	*p = c;
	c->next = NULL;
}

void
mux_done(struct mux *m, const char *reason)
{
	while (m->channels != NULL) {
		struct mux_chan *c = m->channels;

		take_out(c);
		c->kind->closed(c, STREAM_RESET_GONE, reason);
	}
	free(m->used);
	m->used = NULL;
	m->nused = 0;
}

struct mux_chan *
mux_find(struct mux *m, uint32_t id)
{
	for (struct mux_chan *c = m->channels; c != NULL; c = c->next)
		if (c->id == id)
			return c;
	return NULL;
}

static bool
was_used(const struct mux *m, uint32_t id)
{
	for (unsigned i = 0; i < m->nused; i++)
		if (m->used[i] == id)
			return true;
	return m->nused == MUX_USED_MAX && id <= m->used_max;
}

int
mux_claim(struct mux *m, int64_t id)
{
	if (id <= 0 || id > UINT32_MAX || (id & 1) == (m->next_id & 1))
		return -EINVAL;
	if (was_used(m, (uint32_t)id))
		return -EEXIST;
	if (m->n >= MUX_CHANNELS_MAX)
		return -ENOSPC;
	if (m->nused < MUX_USED_MAX) {
		/* In powers of two: it has to grow when the number is one. */
		if ((m->nused & (m->nused - 1)) == 0) {
			uint32_t *more = reallocarray(m->used, m->nused == 0 ? 1 : 2 * (size_t)m->nused, sizeof(*more));

			if (more == NULL)
				return -ENOMEM;
			m->used = more;
		}
		m->used[m->nused++] = (uint32_t)id;
	}
	if ((uint32_t)id > m->used_max)
		m->used_max = (uint32_t)id;
	return 0;
}

uint32_t
mux_new_id(struct mux *m)
{
	uint32_t id = m->next_id;

	m->next_id += 2;
	return id;
}

int
mux_open(struct mux *m, struct mux_chan *c, uint32_t id, const struct mux_kind *kind, void *ctx, uint64_t rx_from,
    uint32_t window, uint64_t tx_from, uint64_t tx_window)
{
	if (m->n >= MUX_CHANNELS_MAX)
		return -ENOSPC;
	*c = (struct mux_chan){ .mux = m, .id = id, .kind = kind, .ctx = ctx, .rx_next = rx_from,
		.window = window == 0 ? STREAM_WINDOW : window < MUX_WINDOW_MAX ? window : MUX_WINDOW_MAX };
	c->rx_limit = rx_from + c->window;
	mux_tx_start(c, tx_from, tx_window);
	put_last(m, c);
	m->n++;
	count_of(c)->open++;
	count_of(c)->opened++;
	return 0;
}

void
mux_tx_start(struct mux_chan *c, uint64_t from, uint64_t window)
{
	window = window == 0 ? STREAM_WINDOW : window;
	c->tx_next = from;
	c->tx_limit = from > UINT64_MAX - window ? UINT64_MAX : from + window;
	if (c->want)
		mux_want(c);
}

void
mux_rx_start(struct mux_chan *c, uint64_t from)
{
	c->kept_off = c->kept_len = 0;
	c->rx_next = from;
	c->rx_limit = from > UINT64_MAX - c->window ? UINT64_MAX : from + c->window;
}

/* A frame that is no bytes. False: sending it has ended the session, and the channel with it, whose storage may be gone. */
static bool
say(struct mux_chan *c, const struct stream_frame *f)
{
	struct mux *m = c->mux;
	uint32_t id = c->id;
	uint8_t buf[SMALL];

	m->ops->small(buf, stream_put(buf, f), m->ctx);
	return mux_find(m, id) == c;
}

void
mux_widen(struct mux_chan *c, uint32_t window)
{
	struct stream_frame f = { .type = STREAM_WINDOW_TO, .channel = c->id };

	if (c->mux == NULL || window <= c->window || window > MUX_WINDOW_MAX || c->rx_next != 0)
		return;
	c->window = window;
	c->rx_limit = f.offset = window;
	(void)say(c, &f);
}

/* ---- ends ---- */

static void
send_reset(struct mux *m, uint32_t id, enum stream_reset code, const char *reason)
{
	struct stream_frame f = { .type = STREAM_RESET, .channel = id, .reset = code, .data = (const uint8_t *)reason,
		.len = strlen(reason) };
	uint8_t buf[SMALL];

	m->ops->small(buf, stream_put(buf, &f), m->ctx);
}

void
mux_drop(struct mux_chan *c)
{
	if (c->mux != NULL)
		take_out(c);
}

void
mux_reset(struct mux_chan *c, enum stream_reset code, const char *reason)
{
	struct mux *m = c->mux;

	if (m == NULL)
		return;
	take_out(c);
	send_reset(m, c->id, code, reason);
}

/* The peer, or the owner's own trouble, has ended it: the owner hears of it. */
static void
end_by(struct mux_chan *c, enum stream_reset code, const char *reason)
{
	mux_reset(c, code, reason);
	c->kind->closed(c, code, reason);
}

static void
end_by_errno(struct mux_chan *c, int err)
{
	end_by(c, err == -ENOSPC || err == -ENOMEM ? STREAM_RESET_LIMIT : STREAM_RESET_INTERNAL, strerror(-err));
}

static void
end_if_both(struct mux_chan *c)
{
	if (!c->tx_end || !c->rx_told)
		return;
	take_out(c);
	c->kind->closed(c, 0, "");
}

/* ---- receiving ---- */

/* Tells the peer when a half of the window is free again; smaller news cost more frames than they are worth. False: as say(). */
static bool
move_window(struct mux_chan *c)
{
	uint64_t limit = c->rx_next - (c->kept_len - c->kept_off) + c->window;
	uint64_t step = c->window / 2 < MUX_WINDOW_NEWS ? c->window / 2 : MUX_WINDOW_NEWS;
	struct stream_frame f = { .type = STREAM_WINDOW_TO, .channel = c->id, .offset = limit };

	if (c->rx_end || c->rx_hole != 0 || limit < c->rx_limit + step)
		return true;
	c->rx_limit = limit;
	return say(c, &f);
}

static void
tell_end(struct mux_chan *c)
{
	struct mux *m = c->mux;
	uint32_t id = c->id;

	if (!c->rx_end || c->rx_told || c->kept_off < c->kept_len || c->rx_hole != 0)
		return;
	c->rx_told = true;
	if (c->kind->ended != NULL)
		c->kind->ended(c, c->rx_digest ? c->digest : NULL);
	if (mux_find(m, id) == c)
		end_if_both(c);
}

/* Gives bytes to the owner. How many were taken; -1: the channel is gone. */
static ssize_t
give(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct mux *m = c->mux;
	uint32_t id = c->id;
	ssize_t n = c->kind->take != NULL ? c->kind->take(c, data, len) : -EPROTO;

	/* The owner may have ended it, and its storage may be gone: ids are not used twice. */
	if (mux_find(m, id) != c)
		return -1;
	if (n < 0) {
		end_by_errno(c, (int)n);
		return -1;
	}
	return (size_t)n < len ? n : (ssize_t)len;
}

/* Behind what is kept already. The window bounds the sum. */
static int
keep(struct mux_chan *c, const uint8_t *data, size_t len)
{
	size_t have = c->kept_len - c->kept_off;

	if (c->kept_off > 0) {
		memmove(c->kept, c->kept + c->kept_off, have);
		c->kept_off = 0;
		c->kept_len = have;
	}
	if (c->kept_size < have + len) {
		size_t size = have + len < c->window / 4 ? c->window / 4 : c->window;
		uint8_t *more = realloc(c->kept, size);

		if (more == NULL)
			return -ENOMEM;
		c->kept = more;
		c->kept_size = size;
	}
	memcpy(c->kept + have, data, len);
	c->kept_len = have + len;
	return 0;
}

/* The hole, when nothing is kept before it. False: the channel is gone. */
static bool
give_hole(struct mux_chan *c)
{
	struct mux *m = c->mux;
	uint32_t id = c->id;
	int r;

	if (c->rx_hole == 0 || c->kept_off < c->kept_len)
		return true;
	r = c->kind->hole(c, c->rx_hole);
	if (mux_find(m, id) != c)
		return false;
	if (r < 0) {
		end_by_errno(c, r);
		return false;
	}
	if (r == 0)
		return true;
	c->rx_hole = 0;
	c->rx_limit = c->rx_next;	/* the sender waits for this */
	return move_window(c);
}

static void
take_hole(struct mux_chan *c, const struct stream_frame *f)
{
	if (c->kind->hole == NULL || f->gap_reason != STREAM_GAP_HOLE) {
		end_by(c, STREAM_RESET_PROTOCOL, "a stream has no gaps");
		return;
	}
	if (f->offset != c->rx_next || c->rx_end || c->rx_hole != 0 || f->gap_to > UINT64_MAX - c->window) {
		end_by(c, STREAM_RESET_PROTOCOL, "a hole that does not fit what came");
		return;
	}
	c->rx_next = c->rx_limit = c->rx_hole = f->gap_to;
	give_hole(c);
}

static void
take_data(struct mux_chan *c, const struct stream_frame *f)
{
	const uint8_t *data = f->data;
	uint64_t end = f->offset + f->len;
	ssize_t n = 0;

	if (f->offset > c->rx_next || c->rx_end) {
		end_by(c, STREAM_RESET_PROTOCOL, c->rx_end ? "bytes after the end" : "a jump in the offsets");
		return;
	}
	if (end > c->rx_limit) {
		end_by(c, STREAM_RESET_WINDOW, "bytes beyond the window");
		return;
	}
	if (end <= c->rx_next)
		return;
	data += c->rx_next - f->offset;
	count_of(c)->rx_bytes += end - c->rx_next;
	c->rx_next = end;
	if (c->kept_off == c->kept_len)
		n = give(c, data, (size_t)(f->data + f->len - data));
	if (n < 0)
		return;
	data += n;
	if (data < f->data + f->len && keep(c, data, (size_t)(f->data + f->len - data)) < 0)
		end_by_errno(c, -ENOMEM);
	else
		move_window(c);
}

void
mux_resume(struct mux_chan *c)
{
	if (c->mux == NULL)
		return;
	while (c->kept_off < c->kept_len) {
		ssize_t n = give(c, c->kept + c->kept_off, c->kept_len - c->kept_off);

		if (n < 0)
			return;
		c->kept_off += (size_t)n;
		if (n == 0)
			break;
	}
	if (c->kept_off == c->kept_len)
		c->kept_off = c->kept_len = 0;
	if (give_hole(c) && move_window(c))
		tell_end(c);
}

static void
take_end(struct mux_chan *c, const struct stream_frame *f)
{
	if (f->offset != c->rx_next || c->rx_end) {
		end_by(c, STREAM_RESET_PROTOCOL, "an end that does not fit what came");
		return;
	}
	c->rx_end = true;
	c->rx_digest = f->digest != NULL;
	if (f->digest != NULL)
		memcpy(c->digest, f->digest, sizeof(c->digest));
	tell_end(c);
}

static void
take_reset(struct mux_chan *c, const struct stream_frame *f)
{
	char reason[STREAM_REASON_MAX + 1];
	size_t n = 0;

	for (; n < f->len; n++)
		reason[n] = f->data[n] >= ' ' && f->data[n] <= '~' ? (char)f->data[n] : '?';
	reason[n] = '\0';
	take_out(c);
	c->kind->closed(c, f->reset, reason);
}

/* Late frames for what has just been reset are ordinary; one answer to a channel is enough. */
static void
unknown(struct mux *m, const struct stream_frame *f)
{
	const unsigned max = sizeof(m->recent) / sizeof(m->recent[0]);

	if (f->type == STREAM_RESET || f->type == STREAM_WINDOW_TO)
		return;
	for (unsigned i = 0; i < max; i++)
		if (m->recent[i] == f->channel)
			return;
	m->recent[m->nrecent++ % max] = f->channel;
	send_reset(m, f->channel, STREAM_RESET_GONE, "no such channel");
}

void
mux_frame(struct mux *m, const struct stream_frame *f)
{
	struct mux_chan *c = mux_find(m, f->channel);

	if (c == NULL) {
		unknown(m, f);
		return;
	}
	switch (f->type) {
	case STREAM_DATA:
		take_data(c, f);
		break;
	case STREAM_WINDOW_TO:
		if (f->offset > c->tx_limit) {
			c->tx_limit = f->offset;
			if (c->want)
				m->ops->kick(m->ctx);
		}
		break;
	case STREAM_END:
		take_end(c, f);
		break;
	case STREAM_GAP:
		take_hole(c, f);
		break;
	case STREAM_RESET:
		take_reset(c, f);
		break;
	}
}

/* ---- sending ---- */

static bool
can_send(const struct mux_chan *c)
{
	return c->want && !c->tx_end && c->tx_next < c->tx_limit && c->kind->fill != NULL;
}

void
mux_want(struct mux_chan *c)
{
	c->want = true;
	if (c->mux != NULL && can_send(c))
		c->mux->ops->kick(c->mux->ctx);
}

static void
send_end(struct mux_chan *c)
{
	struct stream_frame f = { .type = STREAM_END, .channel = c->id, .offset = c->tx_next,
		.digest = c->tx_has_digest ? c->tx_digest : NULL };

	if (say(c, &f))
		end_if_both(c);
}

void
mux_end(struct mux_chan *c, const uint8_t *digest)
{
	if (c->mux == NULL || c->tx_end)
		return;
	c->tx_end = true;
	c->want = false;
	c->tx_has_digest = digest != NULL;
	if (digest != NULL)
		memcpy(c->tx_digest, digest, sizeof(c->tx_digest));
	if (!c->filling)	/* else behind the bytes that are being filled in */
		send_end(c);
}

void
mux_hole(struct mux_chan *c, uint64_t to)
{
	c->tx_hole = to;
}

static bool
send_hole(struct mux_chan *c)
{
	struct stream_frame f = { .type = STREAM_GAP, .channel = c->id, .offset = c->tx_next, .gap_to = c->tx_hole, .gap_reason = STREAM_GAP_HOLE };

	c->tx_next = c->tx_limit = c->tx_hole;
	c->tx_hole = 0;
	return say(c, &f);
}

/* One turn of a channel: 1 sent something, 0 has nothing now or is gone, -ENOBUFS there is no room. */
static int
send_some(struct mux *m, struct mux_chan *c)
{
	uint64_t left = c->tx_limit - c->tx_next;
	size_t max = left < STREAM_PIECE ? (size_t)left : STREAM_PIECE;
	uint8_t *room = m->ops->begin(STREAM_HEADER + max, m->ctx);
	ssize_t n;

	if (room == NULL)
		return -ENOBUFS;
	c->filling = true;
	n = c->kind->fill(c, room + STREAM_HEADER, max);
	c->filling = false;
	if (n > 0)
		stream_put_header(room, STREAM_DATA, c->id, c->tx_next);
	c->tx_next += n > 0 ? (size_t)n : 0;
	count_of(c)->tx_bytes += n > 0 ? (size_t)n : 0;
	m->ops->commit(n > 0 ? STREAM_HEADER + (size_t)n : 0, m->ctx);
	if (n >= 0 && c->tx_hole > c->tx_next) {
		if (!send_hole(c))
			return 0;
		n = 1;
	}
	if (n < 0)
		end_by_errno(c, (int)n);
	else if (c->tx_end)
		send_end(c);
	else if (n == 0)
		c->want = false;
	return n > 0;
}

static struct mux_chan *
next_of(const struct mux *m, enum mux_class class)
{
	for (struct mux_chan *c = m->channels; c != NULL; c = c->next)
		if (c->kind->class == class && can_send(c))
			return c;
	return NULL;
}

void
mux_pump(struct mux *m, enum mux_class first, enum mux_class last)
{
	for (unsigned class = first; class <= last; class++) {
		struct mux_chan *c;

		while ((c = next_of(m, class)) != NULL) {
			uint32_t id = c->id;
			int r = send_some(m, c);

			if (r < 0)
				return;
			/* It has had its turn. It may be gone, and its storage with it. */
			c = mux_find(m, id);
			if (r > 0 && c != NULL) {
				struct mux_chan **p = &m->channels;

				while (*p != c)
					p = &(*p)->next;
				*p = c->next;
				put_last(m, c);
			}
		}
	}
}

bool
mux_waiting(const struct mux *m, enum mux_class first, enum mux_class last)
{
	for (unsigned class = first; class <= last; class++)
		if (next_of(m, class) != NULL)
			return true;
	return false;
}
