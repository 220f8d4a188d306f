/*
 * Output whose channel was reset, or that another workerd goes on with. B33: answers for good and answers that may pass are told apart in
 * logsend_reset() and on_error().
 */
#include <stdlib.h>

#include "tests/unit/logrig.h"

/* ---- B33 ---- */

static void
reset(uint32_t code)
{
	uint8_t frame[64] = { 0 };

	stream_put_header(frame, STREAM_RESET, mirror_by_handle(&rig.mirror, "h")->log.channel, 0);
	frame[STREAM_HEADER + 3] = (uint8_t)code;
	fake_binary(fake_conn(), frame, STREAM_HEADER + 4);
	rig_turn();
}

/* "Gone" stops once, frees what is held and lets the workload run on; its end is still reported. */
static void
test_b33_gone_stops_for_good(void **state)
{
	static uint8_t data[65536];
	uint64_t at = 3;

	begin(true);
	rig_output(1, 1, 0, "abc", 3);
	rig_forget();
	reset(STREAM_RESET_GONE);
	rig_drop_frames();
	assert_int_equal(rig_sub()->limit, UINT64_MAX);
	assert_int_equal(((const struct work_offset *)(const void *)rig_rec(WORK_EV_ACK)->data)->offset, 3);
	for (int i = 0; i < 64; i++, at += sizeof(data)) {
		mirror_by_handle(&rig.mirror, "h")->w.produced = UINT32_MAX;
		rig_output(1, 2, at, data, sizeof(data));
	}
	assert_in_range(rig_count(WORK_EV_ACK), 10, 20);
	rig_tell(&(struct work_workload){ .wid = 1, .state = WORK_ENDED, .outcome = WORK_OUTCOME_EXITED, .handle = "h",
	    .produced = at });
	rig_output_end(1, 2, at, NULL);
	assert_string_equal(rig_next(), "status");
	assert_string_equal(rig_next(), "");
}

/* The same on cloop by error unknown_handle with the handle; without one nothing can be concluded. */
static void
test_b33_unknown_handle_on_cloop(void **state)
{
	begin(false);
	rig_output(1, 1, 0, "abc", 3);
	rig_hub("{\"v\":1,\"type\":\"error\",\"payload\":{\"code\":\"unknown_handle\"}}");
	rig_output(1, 1, 3, "d", 1);
	assert_non_null(rig_frame("log_chunk"));
	assert_non_null(rig_frame("log_chunk"));
	for (int i = 0; i < 100; i++)
		rig_hub("{\"v\":1,\"type\":\"error\",\"handle\":\"h\",\"payload\":{\"code\":\"unknown_handle\"}}");
	rig_output(1, 2, 4, "e", 1);
	assert_null(rig_frame("log_chunk"));
}

/* Anything else may pass: a fresh channel after a wait that grows, from what was acknowledged. */
static void
test_b33_others_are_retried(void **state)
{
	static const uint32_t codes[] = { STREAM_RESET_PROTOCOL, STREAM_RESET_WINDOW, STREAM_RESET_REFUSED,
		STREAM_RESET_LIMIT, STREAM_RESET_INTERNAL };
	uint32_t channel, last = 0;

	begin(true);
	rig_output(1, 1, 0, "abc", 3);
	for (size_t i = 0; i < COUNT(codes); i++) {
		rig_drop_frames();
		rig_forget();
		reset(codes[i]);
		rig_advance((1000 << i) - 100);
		assert_null(rig_frame("log_open"));
		rig_advance(200);
		assert_non_null(rig_frame("log_open"));
		channel = mirror_by_handle(&rig.mirror, "h")->log.channel;
		assert_true(channel != 0 && channel != last);
		last = channel;
		assert_int_equal(rig_sub()->from, 0);
		/* the heartbeats of these seconds are acknowledged */
		rig_hub("{\"v\":1,\"type\":\"heartbeat_ack\",\"payload\":{\"seq\":%llu}}", (unsigned long long)rig.link.beat_seq);
	}
	/* Frames for channels that are gone are late, not wrong. */
	window(77);
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
}

/* The workerd that an acknowledgement was told to is gone, and another one waits for just that room. */
static void
comes_back(uint64_t produced)
{
	struct work_workload w = rig_running(1, "h", produced);

	rig_workerd_dies();
	rig_forget();
	rig_workerd(&w, 1);
	rig_turn();
}

static uint64_t
acked_to_workerd(void)
{
	const struct rig_rec *rec = rig_rec(WORK_EV_ACK);

	assert_non_null(rec);
	return ((const struct work_offset *)(const void *)rec->data)->offset;
}

static void
what_was_acked_is_said_to_the_next_workerd(void **state)
{
	begin(true);
	rig_output(1, 1, 0, "abc", 3);
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":3}}");
	comes_back(3);
	assert_int_equal(rig_sub()->from, 3);
	assert_int_equal(acked_to_workerd(), 3);
	/* Where the hub wants no more of it, what was thrown away. */
	rig_output(1, epoch(), 3, "de", 2);
	reset(STREAM_RESET_GONE);
	rig_output(1, epoch(), 5, "fg", 2);
	comes_back(7);
	assert_int_equal(rig_sub()->from, 7);
	assert_int_equal(acked_to_workerd(), 7);
}

static void
what_was_acked_is_said_when_a_channel_is_tried_again(void **state)
{
	begin(true);
	rig_output(1, 1, 0, "abc", 3);
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":3}}");
	reset(STREAM_RESET_LIMIT);
	comes_back(3);
	rig_advance(1200);
	assert_int_equal(rig_sub()->from, 3);
	assert_int_equal(acked_to_workerd(), 3);
}

static void
a_hub_may_not_send_on_a_log_channel(void **state)
{
	uint8_t frame[64] = { 0 };
	struct fake_msg *m;
	struct stream_frame f;

	begin(true);
	rig_drop_frames();
	stream_put_header(frame, STREAM_DATA, 2, 0);
	fake_binary(fake_conn(), frame, STREAM_HEADER + 1);
	m = fake_take(fake_conn());
	assert_non_null(m);
	assert_int_equal(stream_parse(&f, m->data, m->len), 0);
	assert_int_equal(f.type, STREAM_RESET);
	free(m);
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
	frame[1] = 1;	/* an unknown flag */
	fake_binary(fake_conn(), frame, STREAM_HEADER + 1);
	rig_turn();
	assert_string_equal(rig.link.cause, "protocol");
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_b33_gone_stops_for_good), T(test_b33_unknown_handle_on_cloop), T(test_b33_others_are_retried),
		T(what_was_acked_is_said_to_the_next_workerd), T(what_was_acked_is_said_when_a_channel_is_tried_again),
		T(a_hub_may_not_send_on_a_log_channel),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
