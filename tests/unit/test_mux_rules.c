/* A mux and a peer that does not keep to the rules, and ids. */
#include <errno.h>
#include <stdlib.h>

#include "tests/unit/muxrig.h"

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

/*
 * Sending may end the session: too much waits, the connection is dropped, and every stream with it, whose owner frees it in closed(). Where it could
 * occur: every frame of WINDOW, END and GAP that the mux sends for a channel it goes on with.
 */
static unsigned freed;

static void
free_it(struct mux_chan *c, unsigned code, const char *reason)
{
	assert_int_equal(code, STREAM_RESET_GONE);
	freed++;
	free(c->ctx);
}

static void
the_session_may_end_while_it_sends(void **state)
{
	struct mux_kind kind = holed;
	struct owner *d;

	kind.closed = free_it;
	freed = 0;
	for (unsigned at = 0; at < 3; at++) {
		uint32_t id = mux_new_id(&hub.m);

		mux_init(&dev.m, false, hub.m.ops, &dev);
		d = calloc(1, sizeof(*d));
		assert_non_null(d);
		assert_int_equal(mux_open(&dev.m, &d->c, id, &kind, d, 0, 0, 0, 0), 0);
		dev.dies = false;
		if (at == 0) {		/* WINDOW */
			for (uint64_t n = 0; n < STREAM_WINDOW; n += STREAM_DATA_MAX)
				frame(&dev, STREAM_DATA, id, n, STREAM_DATA_MAX);
			d->take_max = SIZE_MAX;
			dev.dies = true;
			mux_resume(&d->c);
		} else if (at == 1) {	/* END, the second of the two */
			frame(&dev, STREAM_END, id, 0, 0);
			dev.dies = true;
			mux_end(&d->c, NULL);
		} else {		/* GAP */
			d->total = d->hole_to = 100000;
			dev.dies = true;
			mux_want(&d->c);
			mux_pump(&dev.m, MUX_ATTACH, MUX_FILE);
		}
		assert_int_equal(freed, at + 1);
		assert_int_equal(dev.m.n, 0);
	}
	dev.dies = false;
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(what_breaks_the_rules_ends_the_channel_only), T(overlap_is_trimmed), T(ids_are_odd_and_used_once),
		T(an_unknown_channel_is_answered_once), T(the_session_may_end_while_it_sends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
