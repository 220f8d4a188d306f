/* Two muxes that keep to the rules: bytes, windows, turns, ends, holes. */


#include "tests/unit/muxrig.h"

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

/* A wider window is said at once, holds what it says, and moves as its owner takes. */
static void
a_wider_window_is_promised(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &file);
	h.total = 4 * (2 * STREAM_WINDOW);
	d.take_max = 0;
	mux_widen(&d.c, (2 * STREAM_WINDOW));
	mux_widen(&d.c, STREAM_WINDOW);		/* never back */
	mux_widen(&d.c, MUX_WINDOW_MAX + 1);
	carry(&dev, &hub);
	mux_want(&h.c);
	for (int i = 0; i < 40; i++) {
		mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
		carry(&hub, &dev);
	}
	assert_int_equal(h.sent, (2 * STREAM_WINDOW));
	assert_int_equal(d.c.kept_len - d.c.kept_off, (2 * STREAM_WINDOW));
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
		h[i].total = 2 * STREAM_PIECE;
		mux_want(&h[i].c);
	}
	mux_pump(&hub.m, MUX_ATTACH, MUX_L2);
	assert_int_equal(hub.n, 6);
	assert_true(mux_waiting(&hub.m, MUX_FILE, MUX_FILE));
	for (unsigned i = 0; i < 6; i++) {
		assert_int_equal(stream_parse(&f, hub.out[i].data, hub.out[i].len), 0);
		assert_int_equal(f.len, STREAM_PIECE);
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
	assert_int_equal(h.sent, STREAM_PIECE);
	assert_true(mux_waiting(&hub.m, MUX_ATTACH, MUX_FILE));
	hub.room = 100;
	mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
	carry(&hub, &dev);
	assert_int_equal(d.got, 200000);
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

/* A frame carries what fits one packet with all its heads, and no byte is lost between two of them. */
static void
a_frame_carries_one_piece(void **state)
{
	static struct owner h, d;

	open_both(&h, &d, &usb);
	h.total = 100000;
	mux_want(&h.c);
	hub.room = 1000;
	mux_pump(&hub.m, MUX_ATTACH, MUX_FILE);
	assert_true(hub.n == 2 && hub.out[0].len == STREAM_HEADER + STREAM_PIECE);
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
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(bytes_go_both_ways_and_both_ends_close), T(a_slow_owner_stops_the_peer), T(a_wider_window_is_promised),
		T(end_waits_until_everything_is_taken), T(classes_go_first_and_equals_take_turns), T(without_room_nothing_is_lost),
		T(an_owner_may_end_it_inside_a_call), T(a_resumed_stream_goes_on_where_the_receiver_says),
		T(the_end_of_the_session_closes_all), T(a_hole_keeps_its_place), T(a_hole_that_does_not_fit_resets),
		T(a_frame_carries_one_piece),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
