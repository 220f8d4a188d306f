/* Frames that wait for a workerd that is being replaced. Place: connectd/hold.c. */
#include <stdio.h>
#include <string.h>

#include "connectd/hold.h"
#include "proto/hub/stream.h"
#include "tests/unit/rig.h"

#define AWAY	"the workload daemon of this device is restarting; try again"
#define SIGNAL(id, h)	"{\"v\":1,\"type\":\"signal\",\"id\":\"" id "\",\"handle\":\"" h "\",\"payload\":{\"signal\":\"kill\"}}"
#define STATUS(id, h)	"{\"v\":1,\"type\":\"status_req\",\"id\":\"" id "\",\"handle\":\"" h "\",\"payload\":{}}"
#define GET(id, n)	"{\"v\":1,\"type\":\"stream_open\",\"id\":\"" id "\",\"payload\":{\"channel\":" n ",\"kind\":\"file\"," \
	"\"handle\":\"h\",\"path\":\"x\",\"mode\":\"get\"}}"

static void
workerd_is_replaced(bool edgeward1)
{
	rig_workerd(NULL, 0);
	rig_connect(edgeward1, "[]");
	rig_workerd_dies();
	rig_drop_frames();
}

/* What needs workerd, and what may be about that, in the order of the hub. */
static void
they_reach_the_next_workerd_in_order(void **state)
{
	struct work_workload w = rig_running(1, "h", 0);
	const struct rig_rec *r;
	char handle[16] = "";

	workerd_is_replaced(false);
	rig_hub(RIG_START("c1", "h"));
	rig_hub(SIGNAL("c2", "h"));
	rig_hub(STATUS("c3", "h"));
	rig_hub(RIG_START("c4", "g"));
	rig_advance(HOLD_MS - 100);
	assert_null(rig_frame("started"));
	rig_forget();
	rig_workerd_hello();
	assert_int_equal(rig_count(WORK_REQ_START), 0);
	rig_workerd_lists(NULL, 0);
	assert_int_equal(rig_count(WORK_REQ_START), 2);
	assert_int_equal(rig_count(WORK_REQ_SIGNAL), 1);
	assert_string_equal(rig_str(json_get(rig_frame("status"), "status"), "state"), "pending");	/* it is starting: not unknown */
	r = rig_rec(WORK_REQ_START);
	rig_answer(WORK_ANS_START, r->id, WORK_OK, 1, "");
	rig_tell(&w);
	rig_turn();
	assert_non_null(rig_frame("started"));
	assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
	r = rig_rec(WORK_REQ_SIGNAL);
	memcpy(handle, r->data + offsetof(struct work_signal, handle), 2);
	assert_string_equal(handle, "h");
	assert_int_equal(rig_count(WORK_REQ_START), 1);
}

/* The new one has said hello and not yet what it holds when this frame comes: it does not pass the start that is still to be given to it. */
static void
stays_behind_a_start(const char *frame, uint16_t type)
{
	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	rig_hub(RIG_START("c1", "h"));
	rig_workerd_dies();
	rig_drop_frames();
	rig_forget();
	rig_workerd_hello();
	rig_hub("%s", frame);
	rig_workerd_lists(NULL, 0);
	assert_non_null(rig_rec(WORK_REQ_START));	/* drops what came before it */
	assert_int_equal(rig_count(type), 1);
}

static void
a_signal_stays_behind_its_start(void **state)
{
	stays_behind_a_start(SIGNAL("c2", "h"), WORK_REQ_SIGNAL);
}

/* Neither does the end of a secret that the start brings. */
static void
a_revocation_stays_behind_its_start(void **state)
{
	stays_behind_a_start("{\"v\":1,\"type\":\"revoke\",\"id\":\"c2\",\"payload\":{\"lease_id\":\"l\"}}", WORK_REQ_REVOKE);
}

/* A session does not wait for what is not held, and what nobody waits for is answered at once. */
static void
others_do_not_wait(void **state)
{
	workerd_is_replaced(false);
	rig_hub(STATUS("c1", "none"));
	assert_string_equal(rig_next(), "error");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
	rig_hub(RIG_START("c2", "h"));
	rig_hub("{\"v\":1,\"type\":\"inventory_req\",\"id\":\"c3\",\"payload\":{}}");
	assert_string_not_equal(rig_next(), "");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c3");
}

/* Services have nothing to do with workerd. */
static void
nor_does_a_stream_to_a_service(void **state)
{
	workerd_is_replaced(true);
	rig_hub(GET("c1", "1"));
	rig_hub("{\"v\":1,\"type\":\"stream_open\",\"id\":\"c2\",\"payload\":{\"channel\":3,\"kind\":\"http\",\"purpose\":\"status\"}}");
	assert_string_not_equal(rig_next(), "");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c2");
}

/* After HOLD_MS of absence they are refused, and so is what comes later, at once. */
static void
not_for_ever(void **state)
{
	workerd_is_replaced(false);
	rig_advance(HOLD_MS / 2);
	rig_hub(RIG_START("c1", "h"));
	rig_advance(HOLD_MS / 2 - 100);
	assert_null(rig_frame("started"));
	rig_advance(200);
	assert_string_equal(rig_str(rig_frame("started"), "error"), AWAY);
	rig_hub(RIG_START("c2", "h"));
	assert_string_equal(rig_str(rig_frame("started"), "error"), AWAY);
}

/* More than fits: nothing is lost, nothing changes places. */
static void
bounded(void **state)
{
	static char big[1u << 20], frame[COUNT(big) + 256];
	unsigned n = 0;
	char id[8];

	workerd_is_replaced(false);
	for (unsigned i = 0; i <= HOLD_FRAMES; i++)
		rig_hub("{\"v\":1,\"type\":\"start\",\"id\":\"n%u\",\"handle\":\"h\",\"payload\":{\"handle_id\":\"h\",\"spec\":{\"argv\":[\"a\"]}}}", i);
	for (; rig_frame("started") != NULL; n++) {
		snprintf(id, sizeof(id), "n%u", n);
		assert_string_equal(rig_str(rig_envelope(), "id"), id);
		assert_string_equal(rig_str(rig_payload(), "error"), AWAY);
	}
	assert_int_equal(n, HOLD_FRAMES + 1);
	memset(big, 'x', sizeof(big) - 1);
	for (unsigned i = 0; i < 5; i++) {
		snprintf(frame, sizeof(frame), "{\"v\":1,\"type\":\"start\",\"id\":\"b%u\",\"handle\":\"h\",\"payload\":{\"handle_id\":\"h\","
		    "\"spec\":{\"argv\":[\"a\"],\"env\":[\"X=%s\"]}}}", i, big);
		fake_text(fake_conn(), frame);
	}
	rig_advance(HOLD_MS);
	for (n = 0; rig_next()[0] != '\0'; n++) {
		snprintf(id, sizeof(id), "b%u", n);
		assert_string_equal(rig_str(rig_envelope(), "id"), id);
	}
	assert_int_equal(n, 5);
}

/* Numbers are two bytes as they are sent and thirty times that as they are kept. */
static void
bounded_in_memory(void **state)
{
	static char frame[(1u << 16) + 256];
	unsigned n = 0;

	workerd_is_replaced(false);
	for (unsigned i = 0; i < 4; i++) {
		size_t at = (size_t)snprintf(frame, sizeof(frame), "{\"v\":1,\"type\":\"start\",\"id\":\"m%u\",\"handle\":\"h\",\"payload\":{\"x\":[0", i);

		for (; at < 1u << 16; at += 2)
			memcpy(frame + at, ",0", 2);
		memcpy(frame + at, "]}}", 4);
		fake_text(fake_conn(), frame);
	}
	rig_turn();
	while (rig_next()[0] != '\0')
		n++;
	assert_true(n > 0);	/* all of them would be more than HOLD_BYTES */
}

/* workerd has closed its end, and the loop has not come to see it: the frame does not go there to be refused. */
static void
one_that_is_just_gone(void **state)
{
	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	rig_drop_frames();
	rig_forget();
	ipc_chan_done(&rig.w);
	fake_text(fake_conn(), RIG_START("c1", "h"));
	rig_turn();
	assert_null(rig_frame("started"));
	rig_workerd(NULL, 0);
	assert_int_equal(rig_count(WORK_REQ_START), 1);
	assert_null(rig_frame("started"));
}

/* A stream that its hub gave up while it waited is not opened. */
static void
a_stream_that_is_reset(void **state)
{
	uint8_t frame[STREAM_HEADER + 4 + STREAM_REASON_MAX];
	struct stream_frame reset = { .type = STREAM_RESET, .channel = 3, .reset = STREAM_RESET_GONE, .data = (const uint8_t *)"", .len = 0 };

	workerd_is_replaced(true);
	rig_hub(GET("c1", "1"));
	rig_hub(GET("c2", "3"));
	rig_hub(GET("c3", "5"));
	fake_binary(fake_conn(), frame, stream_put(frame, &reset));
	rig_turn();
	assert_string_equal(rig_str(rig_frame("error"), "message"), "the hub has reset this channel");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c2");
	rig_forget();
	rig_workerd(NULL, 0);
	assert_int_equal(rig_count(WORK_REQ_FILE), 2);
	assert_null(rig_frame("error"));
}

/* A hub may promise more on a stream before it is opened: that waits with it. */
static void
a_window_waits_with_its_stream(void **state)
{
	uint8_t frame[STREAM_HEADER + 4 + STREAM_REASON_MAX];
	struct stream_frame window = { .type = STREAM_WINDOW_TO, .channel = 1, .offset = 1 << 20 };

	workerd_is_replaced(true);
	rig_hub(GET("c1", "1"));
	fake_binary(fake_conn(), frame, stream_put(frame, &window));
	rig_turn();
	assert_string_equal(rig_next(), "");
	rig_forget();
	rig_workerd(NULL, 0);
	assert_int_equal(rig_count(WORK_REQ_FILE), 1);
}

/* Its first bytes do not wait, and are not lost either: the stream is refused as a whole. */
static void
a_stream_whose_bytes_come_first(void **state)
{
	uint8_t frame[STREAM_HEADER + 4 + STREAM_REASON_MAX];
	struct stream_frame end = { .type = STREAM_END, .channel = 1 };

	workerd_is_replaced(true);
	rig_hub(GET("c1", "1"));
	fake_binary(fake_conn(), frame, stream_put(frame, &end));
	rig_turn();
	assert_non_null(rig_frame("error"));
	assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
	rig_forget();
	rig_workerd(NULL, 0);
	assert_int_equal(rig_count(WORK_REQ_FILE), 0);
}

/* The session ends first: what waits goes with it, and is not done in the next one. */
static void
they_end_with_their_session(void **state)
{
	workerd_is_replaced(false);
	rig_hub(RIG_START("c1", "h"));
	fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
	rig_turn();
	rig_workerd(NULL, 0);
	rig_forget();
	rig_advance(HOLD_MS + 5000);
	assert_int_equal(rig_count(WORK_REQ_START), 0);
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, rig_test_setup, rig_test_teardown)
	const struct CMUnitTest tests[] = {
		T(they_reach_the_next_workerd_in_order), T(a_signal_stays_behind_its_start), T(a_revocation_stays_behind_its_start),
		 T(others_do_not_wait), T(nor_does_a_stream_to_a_service), T(not_for_ever), T(bounded), T(bounded_in_memory), T(one_that_is_just_gone),
		T(a_stream_that_is_reset), T(a_window_waits_with_its_stream), T(a_stream_whose_bytes_come_first), T(they_end_with_their_session),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
