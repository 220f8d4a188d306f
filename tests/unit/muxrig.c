#include "tests/unit/muxrig.h"

#include <stdlib.h>
#include <string.h>

struct side hub, dev;
struct mux_count counts[MUX_CLASSES];	/* dev's */

static void
put(struct side *s, const void *data, size_t len)
{
	assert_true(s->n < FRAMES_MAX);
	s->out[s->n].data = malloc(len);
	memcpy(s->out[s->n].data, data, len);
	s->out[s->n++].len = len;
}

static void
small(const uint8_t *frame, size_t len, void *ctx)
{
	struct side *s = ctx;

	assert_null(s->begun);
	put(s, frame, len);
	if (s->dies)
		mux_done(&s->m, "too much waits");
}

static uint8_t *
begin(size_t len, void *ctx)
{
	struct side *s = ctx;

	assert_null(s->begun);
	if (s->room == 0)
		return NULL;
	s->begun = malloc(len);
	return s->begun;
}

static void
commit(size_t len, void *ctx)
{
	struct side *s = ctx;
	uint8_t *p = s->begun;

	s->begun = NULL;
	if (len > 0) {
		put(s, p, len);
		s->room--;
	}
	free(p);
}

static void
kick(void *ctx)
{
	((struct side *)ctx)->kicks++;
}

static const struct mux_ops ops = { .small = small, .begin = begin, .commit = commit, .kick = kick };

static uint8_t
byte_at(uint64_t i)
{
	return (uint8_t)(i * 7 + (i >> 8));
}

static ssize_t
take(struct mux_chan *c, const uint8_t *data, size_t len)
{
	struct owner *o = c->ctx;
	size_t n = len < o->take_max ? len : o->take_max;

	if (o->reset_in_take) {
		mux_reset(c, STREAM_RESET_REFUSED, "enough");
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		assert_int_equal(data[i], byte_at(o->got + i));
	o->got += n;
	return (ssize_t)n;
}

static void
ended(struct mux_chan *c, const uint8_t *digest)
{
	struct owner *o = c->ctx;

	o->ends++;
	o->had_digest = digest != NULL;
}

static ssize_t
fill(struct mux_chan *c, uint8_t *buf, size_t max)
{
	struct owner *o = c->ctx;
	size_t n = o->total - o->sent < max ? (size_t)(o->total - o->sent) : max;

	if (o->sent < o->hole_to && o->sent + n > o->hole_at)
		n = (size_t)(o->hole_at - o->sent);
	for (size_t i = 0; i < n; i++)
		buf[i] = byte_at(o->sent + i);
	o->sent += n;
	if (o->hole_to > o->sent && o->sent == o->hole_at) {
		mux_hole(c, o->hole_to);
		o->sent = o->hole_to;
	}
	if (o->end_in_fill && o->sent == o->total)
		mux_end(c, (const uint8_t *)"0123456789abcdef");
	return (ssize_t)n;
}

static int
hole(struct mux_chan *c, uint64_t to)
{
	struct owner *o = c->ctx;

	if (o->hole_no > 0) {
		o->hole_no--;
		return 0;
	}
	assert_int_equal(o->got, o->hole_at);
	assert_int_equal(to, o->hole_to);
	o->got = to;
	return 1;
}

static void
closed(struct mux_chan *c, unsigned code, const char *reason)
{
	struct owner *o = c->ctx;

	o->closes++;
	o->code = code;
	strncpy(o->reason, reason, sizeof(o->reason) - 1);
}

#define KIND(name, cls) const struct mux_kind name = { .class = cls, .take = take, .ended = ended, .fill = fill, .closed = closed }
KIND(file, MUX_FILE);
KIND(usb, MUX_USB);
const struct mux_kind holed = { .class = MUX_FILE, .take = take, .hole = hole, .ended = ended, .fill = fill, .closed = closed };
KIND(http, MUX_HTTP);

int
setup(void **state)
{
	memset(&hub, 0, sizeof(hub));
	memset(&dev, 0, sizeof(dev));
	mux_init(&hub.m, true, &ops, &hub);
	mux_init(&dev.m, false, &ops, &dev);
	memset(counts, 0, sizeof(counts));
	dev.m.counts = counts;
	hub.room = dev.room = 1000;
	return 0;
}

static void
forget(struct side *s)
{
	while (s->n > 0)
		free(s->out[--s->n].data);
}

int
teardown(void **state)
{
	mux_done(&hub.m, "over");
	mux_done(&dev.m, "over");
	forget(&hub);
	forget(&dev);
	return 0;
}

/* Everything from one to the other. */
unsigned
carry(struct side *from, struct side *to)
{
	struct stream_frame f;
	unsigned n = from->n;

	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(stream_parse(&f, from->out[i].data, from->out[i].len), 0);
		mux_frame(&to->m, &f);
	}
	forget(from);
	return n;
}

void
open_both(struct owner *h, struct owner *d, const struct mux_kind *kind)
{
	uint32_t id = mux_new_id(&hub.m);

	*h = (struct owner){ .take_max = SIZE_MAX };
	*d = (struct owner){ .take_max = SIZE_MAX };
	assert_int_equal(mux_claim(&dev.m, id), 0);
	assert_int_equal(mux_open(&hub.m, &h->c, id, kind, h, 0, 0, 0, 0), 0);
	assert_int_equal(mux_open(&dev.m, &d->c, id, kind, d, 0, 0, 0, 0), 0);
}

void
frame(struct side *to, enum stream_type type, uint32_t id, uint64_t offset, size_t len)
{
	static uint8_t data[STREAM_DATA_MAX];
	struct stream_frame f = { .type = type, .channel = id, .offset = offset, .data = data, .len = len,
		.gap_to = offset + 1, .gap_reason = 1, .reset = STREAM_RESET_GONE };

	for (size_t i = 0; i < len; i++)
		data[i] = byte_at(offset + i);
	mux_frame(&to->m, &f);
}

uint32_t
last_reset(const struct side *s)
{
	struct stream_frame f;

	assert_true(s->n > 0);
	assert_int_equal(stream_parse(&f, s->out[s->n - 1].data, s->out[s->n - 1].len), 0);
	assert_int_equal(f.type, STREAM_RESET);
	return f.reset;
}
