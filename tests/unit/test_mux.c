/* Two muxes over a wire that is a list of frames: what one sends the other gets, when the test says so. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static struct side hub, dev;
static struct mux_count counts[MUX_CLASSES];	/* dev's */

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

#define KIND(name, cls) static const struct mux_kind name = { .class = cls, .take = take, .ended = ended, .fill = fill, .closed = closed }
KIND(file, MUX_FILE);
KIND(usb, MUX_USB);
static const struct mux_kind holed = { .class = MUX_FILE, .take = take, .hole = hole, .ended = ended, .fill = fill, .closed = closed };
KIND(http, MUX_HTTP);

static int
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

static int
teardown(void **state)
{
	mux_done(&hub.m, "over");
	mux_done(&dev.m, "over");
	forget(&hub);
	forget(&dev);
	return 0;
}

/* Everything from one to the other. */
static unsigned
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

static void
open_both(struct owner *h, struct owner *d, const struct mux_kind *kind)
{
	uint32_t id = mux_new_id(&hub.m);

	*h = (struct owner){ .take_max = SIZE_MAX };
	*d = (struct owner){ .take_max = SIZE_MAX };
	assert_int_equal(mux_claim(&dev.m, id), 0);
	assert_int_equal(mux_open(&hub.m, &h->c, id, kind, h, 0, 0, 0, 0), 0);
	assert_int_equal(mux_open(&dev.m, &d->c, id, kind, d, 0, 0, 0, 0), 0);
}

static void
bytes_go_both_ways_and_both_ends_close(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	h.total = 3000000;
	d.total = 500000;
	h.end_in_fill = d.end_in_fill = true;
	mux_want(&h.c);
	mux_want(&d.c);
	assert_true(hub.kicks == 1 && dev.kicks == 1);
	for (int i = 0; i < 200 && (h.closes == 0 || d.closes == 0); i++) {
		mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
		mux_pump(&dev.m, MUX_ATTACH, MUX_FILE);
		carry(&hub, &dev);
		carry(&dev, &hub);
	}
	assert_true(d.got == 3000000 && h.got == 500000);
	assert_true(h.closes == 1 && d.closes == 1 && h.code == 0 && d.code == 0);
	assert_true(h.ends == 1 && d.ends == 1 && h.had_digest && d.had_digest);
	assert_int_equal(hub.m.n, 0);
	assert_true(counts[MUX_FILE].rx_bytes == 3000000 && counts[MUX_FILE].tx_bytes == 500000);
	assert_true(counts[MUX_FILE].opened == 1 && counts[MUX_FILE].open == 0 && counts[MUX_FILE].cut == 0);
}

/* What is not taken is kept, never more than the window, and the peer stops there. */
static void
a_slow_owner_stops_the_peer(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	h.total = 1 << 20;
	d.take_max = 0;
	mux_want(&h.c);
	for (int i = 0; i < 20; i++) {
		mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
		carry(&hub, &dev);
		carry(&dev, &hub);
	}
	assert_int_equal(h.sent, STREAM_WINDOW);
	assert_int_equal(d.c.kept_len - d.c.kept_off, STREAM_WINDOW);
	assert_false(mux_waiting(&hub.m, MUX_ATTACH, MUX_FILE));
	d.take_max = 1000;
	mux_resume(&d.c);
	assert_int_equal(d.got, STREAM_WINDOW);
	for (int i = 0; i < 4000 && d.got < h.total; i++) {
		mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
		carry(&hub, &dev);
		mux_resume(&d.c);
		carry(&dev, &hub);
		assert_true(d.c.kept_len - d.c.kept_off <= STREAM_WINDOW);
	}
	assert_true(d.got == h.total && d.closes == 0);
}

/* A wider window is said at once, holds what it says, and moves by its own half. */
static void
a_wider_window_is_promised(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	h.total = 4 * MUX_WINDOW_BULK;
	d.take_max = 0;
	mux_widen(&d.c, MUX_WINDOW_BULK);
	mux_widen(&d.c, STREAM_WINDOW);		/* never back */
	mux_widen(&d.c, MUX_WINDOW_MAX + 1);
	carry(&dev, &hub);
	mux_want(&h.c);
	for (int i = 0; i < 40; i++) {
		mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
		carry(&hub, &dev);
	}
	assert_int_equal(h.sent, MUX_WINDOW_BULK);
	assert_int_equal(d.c.kept_len - d.c.kept_off, MUX_WINDOW_BULK);
	mux_widen(&d.c, MUX_WINDOW_MAX);	/* not behind what came */
	d.take_max = 1u << 20;
	for (int i = 0; i < 100 && d.got < h.total; i++) {
		mux_resume(&d.c);
		carry(&dev, &hub);
		mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
		carry(&hub, &dev);
	}
	assert_true(d.got == h.total && d.closes == 0 && h.closes == 0);
}

static void
end_waits_until_everything_is_taken(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	h.total = 100;
	h.end_in_fill = true;
	d.take_max = 60;
	mux_want(&h.c);
	mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
	carry(&hub, &dev);
	assert_true(d.got == 60 && d.ends == 0);
	mux_resume(&d.c);
	assert_true(d.got == 100 && d.ends == 1 && d.closes == 0);
	mux_end(&d.c, NULL);
	assert_true(d.closes == 1 && d.code == 0);
	carry(&dev, &hub);
	assert_true(h.closes == 1 && h.ends == 1 && !h.had_digest);
}

static void
classes_go_first_and_equals_take_turns(void **state)
{
	static struct owner h[4], d[4];
	uint32_t order[6];
	struct stream_frame f;

	open_both(&h[0], &d[0], &file);
	open_both(&h[1], &d[1], &usb);
	open_both(&h[2], &d[2], &usb);
	open_both(&h[3], &d[3], &http);
	for (int i = 0; i < 4; i++) {
		h[i].total = 2 * STREAM_DATA_MAX;
		mux_want(&h[i].c);
	}
	mux_pump(&hub.m, MUX_ATTACH, MUX_L2);
	assert_int_equal(hub.n, 6);
	assert_true(mux_waiting(&hub.m, MUX_FILE, MUX_FILE));
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(stream_parse(&f, hub.out[i].data, hub.out[i].len), 0);
		assert_int_equal(f.len, STREAM_DATA_MAX);
		order[i] = f.channel;
	}
	assert_true(order[0] == 7 && order[1] == 7);
	assert_true(order[2] == 3 && order[3] == 5 && order[4] == 3 && order[5] == 5);
	mux_pump(&hub.m, MUX_FILE, MUX_FILE);
	assert_int_equal(hub.n, 8);
}

static void
without_room_nothing_is_lost(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	h.total = 200000;
	hub.room = 1;
	mux_want(&h.c);
	mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
	assert_int_equal(h.sent, STREAM_DATA_MAX);
	assert_true(mux_waiting(&hub.m, MUX_ATTACH, MUX_FILE));
	hub.room = 100;
	mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
	carry(&hub, &dev);
	assert_int_equal(d.got, 200000);
}

static void
frame(struct side *to, enum stream_type type, uint32_t id, uint64_t offset, size_t len)
{
	static uint8_t data[STREAM_DATA_MAX];
	struct stream_frame f = { .type = type, .channel = id, .offset = offset, .data = data, .len = len,
		.gap_to = offset + 1, .gap_reason = 1, .reset = STREAM_RESET_GONE };

	for (size_t i = 0; i < len; i++)
		data[i] = byte_at(offset + i);
	mux_frame(&to->m, &f);
}

static uint32_t
last_reset(const struct side *s)
{
	struct stream_frame f;

	assert_true(s->n > 0);
	assert_int_equal(stream_parse(&f, s->out[s->n - 1].data, s->out[s->n - 1].len), 0);
	assert_int_equal(f.type, STREAM_RESET);
	return f.reset;
}

static void
what_breaks_the_rules_ends_the_channel_only(void **state)
{
	static const struct {
		enum stream_type type;
		uint64_t offset;
		size_t len;
		uint32_t code;
	} bad[] = {
		{ STREAM_DATA, 1, 10, STREAM_RESET_PROTOCOL },
		{ STREAM_GAP, 0, 0, STREAM_RESET_PROTOCOL },
		{ STREAM_END, 1, 0, STREAM_RESET_PROTOCOL },
	};
	static struct owner h, d, keep_h, keep_d;

	open_both(&keep_h, &keep_d, &file);
	for (size_t i = 0; i < COUNT(bad); i++) {
		open_both(&h, &d, &file);
		frame(&dev, bad[i].type, d.c.id, bad[i].offset, bad[i].len);
		assert_true(d.closes == 1 && d.code == bad[i].code);
		assert_int_equal(last_reset(&dev), bad[i].code);
		carry(&dev, &hub);
		assert_true(h.closes == 1 && h.code == bad[i].code);
	}
	open_both(&h, &d, &file);
	d.take_max = 0;
	for (unsigned i = 0; i < 4; i++)
		frame(&dev, STREAM_DATA, d.c.id, i * STREAM_DATA_MAX, STREAM_DATA_MAX);
	assert_int_equal(d.closes, 0);
	frame(&dev, STREAM_DATA, d.c.id, 4 * STREAM_DATA_MAX, 1);
	assert_true(d.closes == 1 && d.code == STREAM_RESET_WINDOW);
	assert_int_equal(keep_d.closes, 0);
	assert_int_equal(dev.m.n, 1);
	mux_drop(&h.c);
}

static void
overlap_is_trimmed(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	frame(&dev, STREAM_DATA, d.c.id, 0, 100);
	frame(&dev, STREAM_DATA, d.c.id, 0, 100);
	frame(&dev, STREAM_DATA, d.c.id, 50, 100);
	assert_int_equal(d.got, 150);
	frame(&dev, STREAM_END, d.c.id, 150, 0);
	assert_int_equal(d.ends, 1);
	frame(&dev, STREAM_DATA, d.c.id, 150, 1);
	assert_true(d.closes == 1 && d.code == STREAM_RESET_PROTOCOL);
}

static void
ids_are_odd_and_used_once(void **state)
{
	assert_int_equal(mux_claim(&dev.m, 0), -EINVAL);
	assert_int_equal(mux_claim(&dev.m, -1), -EINVAL);
	assert_int_equal(mux_claim(&dev.m, 2), -EINVAL);
	assert_int_equal(mux_claim(&dev.m, 1ll << 32), -EINVAL);
	assert_int_equal(mux_claim(&dev.m, 5), 0);
	assert_int_equal(mux_claim(&dev.m, 3), 0);
	assert_int_equal(mux_claim(&dev.m, 5), -EEXIST);
	for (uint32_t i = 0; i < MUX_USED_MAX - 2; i++)
		assert_int_equal(mux_claim(&dev.m, 7 + 2 * i), 0);
	/* Nothing more is remembered: they have to go up from here. */
	assert_int_equal(mux_claim(&dev.m, 7), -EEXIST);
	assert_int_equal(mux_claim(&dev.m, 7 + 2 * MUX_USED_MAX), 0);
	assert_int_equal(mux_claim(&dev.m, 7 + 2 * MUX_USED_MAX - 2), -EEXIST);
}

static void
an_unknown_channel_is_answered_once(void **state)
{
	frame(&dev, STREAM_DATA, 99, 0, 10);
	frame(&dev, STREAM_DATA, 99, 10, 10);
	frame(&dev, STREAM_WINDOW_TO, 97, 10, 0);
	frame(&dev, STREAM_RESET, 97, 0, 0);
	assert_int_equal(dev.n, 1);
	assert_int_equal(last_reset(&dev), STREAM_RESET_GONE);
}

static void
an_owner_may_end_it_inside_a_call(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	d.reset_in_take = true;
	frame(&dev, STREAM_DATA, d.c.id, 0, 100);
	assert_int_equal(d.closes, 0);	/* it knows */
	assert_int_equal(last_reset(&dev), STREAM_RESET_REFUSED);
	assert_true(counts[MUX_FILE].opened == 1 && counts[MUX_FILE].open == 0 && counts[MUX_FILE].cut == 1);
	carry(&dev, &hub);
	assert_true(h.closes == 1 && h.code == STREAM_RESET_REFUSED);
	assert_string_equal(h.reason, "enough");
}

static void
a_resumed_stream_goes_on_where_the_receiver_says(void **state)
{
	static struct owner h, d;
	uint32_t id = mux_new_id(&hub.m);

	h = (struct owner){ .take_max = SIZE_MAX, .sent = 1000, .total = 5000, .end_in_fill = true };
	d = (struct owner){ .take_max = SIZE_MAX, .got = 1000 };
	assert_int_equal(mux_open(&hub.m, &h.c, id, &file, &h, 0, 0, 0, 0), 0);
	assert_int_equal(mux_open(&dev.m, &d.c, id, &file, &d, 1000, 2000, 0, 0), 0);
	mux_tx_start(&h.c, 1000, 2000);
	mux_want(&h.c);
	for (int i = 0; i < 10; i++) {
		mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
		carry(&hub, &dev);
		carry(&dev, &hub);
	}
	assert_true(d.got == 5000 && d.ends == 1);
}

/* A hole is told behind what comes before it, however slow the owner is; what follows waits for the owner, and nothing is beyond a window. */
static void
a_hole_keeps_its_place(void **state)
{
	static struct owner h, d;

	for (unsigned slow = 0; slow < 3; slow++) {
		open_both(&h, &d, &holed);
		h.hole_at = d.hole_at = slow == 2 ? 0 : 100000;
		h.hole_to = d.hole_to = 1ull << 40;
		h.total = (1ull << 40) + 300000;
		h.end_in_fill = true;
		d.take_max = slow > 0 ? 0 : SIZE_MAX;
		d.hole_no = slow;
		mux_want(&h.c);
		for (int i = 0; i < 40; i++) {
			mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
			carry(&hub, &dev);
			if (i == 5)
				assert_true(slow == 0 || d.got == 0);
			if (i > 5) {
				d.take_max = SIZE_MAX;
				mux_resume(&d.c);
			}
			carry(&dev, &hub);
		}
		assert_true(d.got == h.total && d.ends == 1 && d.had_digest);
		mux_drop(&h.c);
		mux_drop(&d.c);
	}
}

static void
a_hole_that_does_not_fit_resets(void **state)
{
	const struct stream_frame bad[] = {
		{ .type = STREAM_GAP, .offset = 5, .gap_to = 9, .gap_reason = STREAM_GAP_HOLE },
		{ .type = STREAM_GAP, .offset = 0, .gap_to = 9, .gap_reason = 1 },
		{ .type = STREAM_GAP, .offset = 0, .gap_to = UINT64_MAX, .gap_reason = STREAM_GAP_HOLE },
	};
	static struct owner h, d;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]) + 1; i++) {
		struct stream_frame f = bad[i < 3 ? i : 0];

		open_both(&h, &d, i < 3 ? &holed : &file);	/* one that has no holes */
		f.offset = i < 3 ? f.offset : 0;
		f.channel = d.c.id;
		d.hole_no = 1000;
		mux_frame(&dev.m, &f);
		assert_true(d.closes == 1 && d.code == STREAM_RESET_PROTOCOL);
		mux_drop(&h.c);
	}
	/* And bytes before it was taken are beyond the window. */
	open_both(&h, &d, &holed);
	d.hole_no = 1000;
	mux_frame(&dev.m, &(struct stream_frame){ .type = STREAM_GAP, .channel = d.c.id, .gap_to = 9, .gap_reason = STREAM_GAP_HOLE });
	assert_int_equal(d.closes, 0);
	mux_frame(&dev.m, &(struct stream_frame){ .type = STREAM_DATA, .channel = d.c.id, .offset = 9, .data = (const uint8_t *)"x", .len = 1 });
	assert_true(d.closes == 1 && d.code == STREAM_RESET_WINDOW);
}

/* The owner of the connection may ask for a small first frame; what follows is as long as ever, and no byte is lost between them. */
static void
a_piece_is_no_longer_than_asked_for(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &usb);
	h.total = 100000;
	mux_want(&h.c);
	hub.m.piece = STREAM_FIRST;
	hub.room = 1;
	mux_pump(&hub.m, MUX_ATTACH, MUX_USB);
	assert_true(hub.n == 1 && hub.out[0].len == STREAM_HEADER + STREAM_FIRST);
	hub.m.piece = STREAM_DATA_MAX;
	hub.room = 1000;
	mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
	assert_true(hub.n == 3 && hub.out[1].len == STREAM_HEADER + STREAM_DATA_MAX);
	carry(&hub, &dev);
	assert_int_equal(d.got, 100000);
}

static void
the_end_of_the_session_closes_all(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	mux_done(&dev.m, "the session has ended");
	assert_true(d.closes == 1 && d.code == STREAM_RESET_GONE);
	assert_int_equal(dev.n, 0);
	assert_int_equal(mux_open(&dev.m, &d.c, 9, &file, &d, 0, 0, 0, 0), 0);
	mux_drop(&d.c);
}

int
main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(bytes_go_both_ways_and_both_ends_close), T(a_slow_owner_stops_the_peer), T(a_wider_window_is_promised), T(end_waits_until_everything_is_taken),
		T(classes_go_first_and_equals_take_turns), T(without_room_nothing_is_lost),
		T(what_breaks_the_rules_ends_the_channel_only), T(overlap_is_trimmed), T(ids_are_odd_and_used_once),
		T(an_unknown_channel_is_answered_once), T(an_owner_may_end_it_inside_a_call),
		T(a_resumed_stream_goes_on_where_the_receiver_says), T(the_end_of_the_session_closes_all), T(a_piece_is_no_longer_than_asked_for),
		T(a_hole_keeps_its_place), T(a_hole_that_does_not_fit_resets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
