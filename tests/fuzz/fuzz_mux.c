/* A hub that sends any frames on any channels, to owners that take as much as they like: what is kept stays within the window. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/mux.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t room[STREAM_HEADER + STREAM_DATA_MAX], *got;
static size_t left;

static uint8_t
next(void)
{
	if (left == 0)
		return 0;
	left--;
	return *got++;
}

static void
small(const uint8_t *frame, size_t len, void *ctx)
{
	struct stream_frame f;

	if (stream_parse(&f, frame, len) < 0)
		abort();
}

static uint8_t *
begin(size_t len, void *ctx)
{
	return (next() & 1) != 0 ? room : NULL;
}

static void
commit(size_t len, void *ctx)
{
	if (len > 0)
		small(room, len, ctx);
}

static void
kick(void *ctx)
{
}

static ssize_t
take(struct mux_chan *c, const uint8_t *bytes, size_t len)
{
	uint8_t how = next();

	if (how == 255) {
		mux_reset(c, STREAM_RESET_REFUSED, "no");
		free(c->ctx);
	}
	return how == 254 ? -EIO : how < 100 ? (ssize_t)len : (ssize_t)(len * how / 256);
}

static int
hole(struct mux_chan *c, uint64_t to)
{
	uint8_t how = next();

	return how == 254 ? -EIO : how & 1;
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	if ((next() & 1) != 0)
		mux_end(c, digest);
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	uint8_t how = next();

	if (how == 255)
		mux_end(c, NULL);
	if (how == 253)
		mux_hole(c, c->tx_next + max + 5000);
	return how == 254 ? -EIO : (ssize_t)(max < how ? max : how);
}

/* The storage goes at once: a later use of it is what this looks for. */
static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	free(c->ctx);
}

static const struct mux_ops ops = { .small = small, .begin = begin, .commit = commit, .kick = kick };
static const struct mux_kind kind = { .class = MUX_FILE, .take = take, .hole = hole, .ended = ended, .fill = fill, .closed = closed };

static void
open_one(struct mux *m, uint32_t id)
{
	struct mux_chan *c = malloc(sizeof(*c));

	if (c == NULL || mux_claim(m, id) < 0 || mux_open(m, c, id, &kind, c, 0, next() * 512u, 0, next()) < 0)
		free(c);
	else
		mux_want(c);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stream_frame f;
	struct mux m;

	got = (uint8_t *)data;
	left = size;
	mux_init(&m, false, &ops, NULL);
	while (left > 0) {
		uint8_t what = next();

		f = (struct stream_frame){ .type = (enum stream_type)(1 + what % 5), .channel = 1u + next() % 8, .offset = next() * 97u,
			.data = got, .len = left < 64 ? left : 64, .gap_reason = what & 0x08 ? STREAM_GAP_HOLE : 1, .reset = 1 + what % 6u };
		if ((what & 0x80) != 0)
			f.offset = m.channels != NULL ? m.channels->rx_next : 0;
		f.gap_to = f.offset + 1 + next() * 1000u;
		if (f.type == STREAM_DATA && f.len == 0)
			break;
		if ((what & 0x40) != 0)
			open_one(&m, f.channel);
		else if ((what & 0x20) != 0 && m.channels != NULL)
			mux_resume(m.channels);
		else if ((what & 0x10) != 0)
			mux_pump(&m, MUX_ATTACH, MUX_FILE);
		else
			mux_frame(&m, &f);
		for (const struct mux_chan *c = m.channels; c != NULL; c = c->next)
			if (c->kept_len - c->kept_off > c->window || c->rx_next > c->rx_limit || c->tx_next > c->tx_limit)
				abort();
	}
	mux_done(&m, "over");
	return 0;
}
