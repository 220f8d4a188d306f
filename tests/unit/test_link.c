/*
 * The link's state machine: backoff in its place (B01, B02), dead links (B03), waking (B23), ends for good, enrollment
 * (B72, B75), clock steps (B30). Places: connectd/{link,linkend,linkid,beat}.c; every end goes through link_attempt_ended().
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "connectd/jitter.h"
#include "tests/unit/rig.h"

#define WELCOME	"{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-1\"}}"
#define FIRST	"{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-9\",\"credential\":" \
	"\"clac1.agent-9.S.M\"}}"

static int
setup_quick(void **state)
{
	rig_setup("[hub]\nurl = wss://hub.example/x\n[link]\nheartbeat = 2s\ndead-after = 4s\n");
	rig_enrolled();
	rig_workerd(NULL, 0);
	return 0;
}

/* ---- B01, B02 in the state machine ---- */

static uint64_t
highest(void)
{
	return UINT64_MAX;
}

/* Accepted and closed at once, twenty times: the bound never shrinks; only a stable session resets it. */
static void
test_b01_only_a_stable_session_resets(void **state)
{
	int64_t last = 0;

	jitter_set_source(highest);
	for (int i = 0; i < 20; i++) {
		rig_session_up();
		rig_lose(HUBCONN_CLOSED, 0, 1000, "closed");
		assert_true(rig_wait_ms() >= last);
		last = rig_wait_ms();
		rig_advance(last);
	}
	assert_int_equal(last, 120000);
	rig_session_up();
	for (int i = 0; i < 59; i++) {
		rig_advance(1000);
		fake_conn()->last_rx = monotime_now();
		rig.link.session->unacked_since = MONOTIME_NEVER;
	}
	rig_lose(HUBCONN_LOST, 0, 0, "lost");
	assert_int_equal(rig_wait_ms(), 12000);
	rig_advance(12000);
	rig_session_up();
	for (int i = 0; i < 61; i++) {
		rig_advance(1000);
		fake_conn()->last_rx = monotime_now();
		rig.link.session->unacked_since = MONOTIME_NEVER;
	}
	rig_lose(HUBCONN_LOST, 0, 0, "lost");
	assert_int_equal(rig_wait_ms(), 2000);
}

struct expect {
	enum hubconn_cause cause;
	int http;
	uint16_t close;
	int64_t lo, hi;		/* of the first wait */
};

static void
test_b02_first_wait_by_cause(void **state)
{
	static const struct expect rows[] = {
		{ HUBCONN_CLOSED, 0, 1012, 10000, 31000 }, { HUBCONN_CLOSED, 0, 1013, 10000, 31000 },
		{ HUBCONN_CLOSED, 0, 1001, 10000, 31000 }, { HUBCONN_CLOSED, 0, 1000, 1000, 2000 },
		{ HUBCONN_LOST, 0, 0, 1000, 2000 }, { HUBCONN_DNS_FAILED, 0, 0, 1000, 2000 },
		{ HUBCONN_HTTP_FAILED, 401, 0, 1000, 2000 }, { HUBCONN_HTTP_FAILED, 500, 0, 1000, 2000 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		int64_t max = 0;

		for (int n = 0; n < 40; n++) {
			backoff_stable(&rig.link.backoff);
			backoff_authorized(&rig.link.backoff);
			link_kick(&rig.link);
			rig_turn();
			rig_lose(rows[i].cause, rows[i].http, rows[i].close, "x");
			assert_in_range(rig_wait_ms(), 1000, rows[i].hi);
			max = rig_wait_ms() > max ? rig_wait_ms() : max;
			rig_advance(rig_wait_ms());
		}
		assert_true(max >= rows[i].lo);
	}
}

/* The hub says bye and will be back: spread like 1012. Retry-After: not before it. */
static void
test_b02_bye_and_retry_after(void **state)
{
	int64_t max = 0;

	for (int n = 0; n < 40; n++) {
		backoff_stable(&rig.link.backoff);
		rig_session_up();
		rig_hub("{\"v\":1,\"type\":\"bye\",\"payload\":{\"reason\":\"maintenance\",\"reconnect\":true}}");
		assert_string_equal(rig.link.cause, "hub-bye");
		max = rig_wait_ms() > max ? rig_wait_ms() : max;
		rig_advance(rig_wait_ms());
	}
	assert_in_range(max, 15000, 31000);
	fake_conn()->end.retry_after_ms = 60000;
	rig_lose(HUBCONN_HTTP_FAILED, 503, 0, "http-5xx");
	assert_in_range(rig_wait_ms(), 60000, 90000);
}

/* The hub names a window: never outside it; what makes no sense counts as nothing said. */
static void
test_b02_a_window_named_in_bye(void **state)
{
	static const struct { const char *fields; int64_t from, to; } cases[] = {
		{ "\"retry_from_ms\":200,\"retry_to_ms\":300", 1000, 1000 },	/* never under its own minimum */
		{ "\"retry_from_ms\":200,\"retry_to_ms\":4200", 1000, 4200 },
		{ "\"retry_from_ms\":60000,\"retry_to_ms\":120000", 60000, 120000 },
		{ "\"retry_from_ms\":-5,\"retry_to_ms\":300", 100, 31000 },
		{ "\"retry_from_ms\":500,\"retry_to_ms\":300", 100, 31000 },
		{ "\"retry_from_ms\":1,\"retry_to_ms\":315360000000", 100, 31000 },
		{ "\"retry_from_ms\":\"x\",\"retry_to_ms\":300", 100, 31000 },
	};
	int64_t max[COUNT(cases)] = { 0 };

	for (size_t i = 0; i < COUNT(cases) * 20; i++) {
		size_t c = i % COUNT(cases);
		char frame[256];

		snprintf(frame, sizeof(frame), "{\"v\":1,\"type\":\"bye\",\"payload\":{\"reconnect\":true,%s}}", cases[c].fields);
		backoff_stable(&rig.link.backoff);
		rig_session_up();
		rig_hub("%s", frame);
		assert_in_range(rig_wait_ms(), cases[c].from, cases[c].to);
		max[c] = rig_wait_ms() > max[c] ? rig_wait_ms() : max[c];
		rig_advance(rig_wait_ms());
	}
	for (size_t c = 3; c < COUNT(cases); c++)
		assert_true(max[c] > 10000);
}

/* 500 devices, one cause, one moment. */
static void
test_b02_a_fleet(void **state)
{
	static struct link links[500];
	static unsigned bins[40];
	int64_t lo = INT64_MAX, hi = 0;

	for (int i = 0; i < 500; i++) {
		link_init(&links[i], &rig.link.p);
		link_kick(&links[i]);
		assert_non_null(links[i].conn);
		fake_end(links[i].conn, HUBCONN_CLOSED, 0, 1012, "closed");
	}
	rig_turn();
	for (int i = 0; i < 500; i++) {
		int64_t ms = monotime_diff_ms(links[i].retry.when, monotime_now());

		lo = ms < lo ? ms : lo;
		hi = ms > hi ? ms : hi;
		bins[ms / 1000]++;
		link_done(&links[i]);
	}
	assert_true(hi - lo >= 25000);
	for (int i = 0; i < 40; i++)
		assert_true(bins[i] <= 50);
}

/* ---- B03 ---- */

static void
ack_beats(void)
{
	const struct json *p;
	int64_t seq;

	while ((p = rig_frame("heartbeat")) != NULL)
		if (json_get_int(p, "seq", 0, INT64_MAX, &seq))
			rig_hub("{\"v\":1,\"type\":\"heartbeat_ack\",\"payload\":{\"seq\":%d}}", (int)seq);
}

static void
test_b03_silence(void **state)
{
	int64_t last;

	rig_session_up();
	for (int i = 0; i < 100; i++) {
		rig_advance(500);
		ack_beats();
		assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
	}
	last = fake_conn()->last_rx.ns / 1000000;
	while (rig.link.state == CTL_LINK_CONNECTED)
		rig_advance(100);
	assert_in_range(rig_ms() - last, 4000, 4150);
	assert_string_equal(rig.link.cause, "dead");
	assert_null(fake_conn());		/* given back at once: a dead link gets no close frame */
	rig_advance(3000);
	assert_non_null(fake_conn());
}

/* The same while data waits in the queue, and with other bytes arriving but no acks. */
static void
test_b03_full_queue_and_no_acks(void **state)
{
	int64_t last;

	rig_session_up();
	fake_conn()->queued = 1 << 20;
	last = rig_ms();
	while (rig.link.state == CTL_LINK_CONNECTED)
		rig_advance(100);
	assert_in_range(rig_ms() - last, 3900, 4200);
	rig_advance(3000);
	rig_session_up();
	last = rig_ms();
	while (rig.link.state == CTL_LINK_CONNECTED) {
		rig_advance(100);
		if (rig.link.state == CTL_LINK_CONNECTED) {
			fake_conn()->queued = 0;
			rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"x\",\"payload\":{\"offset\":0}}");
		}
	}
	assert_in_range(rig_ms() - last, 3900, 4200);
	assert_string_equal(rig.link.cause, "no-ack");
}

static void
a_welcome_that_does_not_come(void **state)
{
	rig_open(false);
	rig_advance(14000);
	assert_int_equal(rig.link.state, CTL_LINK_HELLO);
	rig_advance(1100);
	assert_string_equal(rig.link.cause, "handshake-timeout");
	assert_int_equal(rig.link.state, CTL_LINK_WAITING);
}

static void
heartbeats_keep_their_distance(void **state)
{
	int64_t last, gap, lo = INT64_MAX, hi = 0, seq = 0;

	rig_session_up();
	ack_beats();
	last = rig_ms();
	for (int n = 0; n < 60;) {
		const struct json *p;

		rig_advance(50);
		p = rig_frame("heartbeat");
		if (p == NULL)
			continue;
		gap = rig_ms() - last;
		last = rig_ms();
		lo = gap < lo ? gap : lo;
		hi = gap > hi ? gap : hi;
		json_get_int(p, "seq", 0, INT64_MAX, &seq);
		rig_hub("{\"v\":1,\"type\":\"heartbeat_ack\",\"payload\":{\"seq\":%d}}", (int)seq);
		n++;
	}
	assert_in_range(lo, 11200, 13000);
	assert_in_range(hi, 17000, 18850);
	assert_int_equal(seq, 61);
	/* The counter goes on over sessions. */
	rig_lose(HUBCONN_LOST, 0, 0, "lost");
	rig_advance(15000);
	rig_session_up();
	json_get_int(rig_frame("heartbeat"), "seq", 0, INT64_MAX, &seq);
	assert_int_equal(seq, 62);
}

/* ---- B23 ---- */

static void
test_b23_a_storm_of_events(void **state)
{
	unsigned before = fake_started, n;
	int64_t began = rig_ms();

	/* Every attempt fails at once, a thousand events a second. */
	for (int i = 0; i < 10000; i++) {
		link_wake(&rig.link, "address");
		if (i % 50 == 0)
			rig_advance(50);
		if (fake_conn() != NULL)
			rig_lose(HUBCONN_NO_ROUTE, 0, 0, "no-route");
	}
	n = fake_started - before;
	assert_true(n >= 8 && n <= (rig_ms() - began) / 1000 + 2);
}

static void
test_b23_no_wait_is_long_and_can_be_cut(void **state)
{
	for (int i = 0; i < 30; i++) {
		link_kick(&rig.link);
		rig_turn();
		rig_lose(HUBCONN_HTTP_FAILED, 401, 0, "http-401");
		assert_true(rig_wait_ms() <= 300000);
		assert_int_equal(rig.link.state, CTL_LINK_WAITING);
		rig_advance(i < 29 ? rig_wait_ms() : 2000);
	}
	assert_null(fake_conn());
	assert_true(rig_wait_ms() > 60000);
	link_reconnect(&rig.link);
	rig_turn();
	assert_non_null(fake_conn());
	rig_lose(HUBCONN_DNS_FAILED, 0, 0, "dns");
	rig_advance(1500);
	link_wake(&rig.link, "resolver");
	rig_advance(50);
	assert_non_null(fake_conn());
}

static void
reconnect_out_of_a_session(void **state)
{
	struct hubconn *old;

	rig_session_up();
	rig_advance(2000);
	old = fake_conn();
	link_reconnect(&rig.link);
	rig_turn();
	assert_non_null(fake_conn());
	assert_ptr_not_equal(fake_conn(), old);
	/* Also out of an attempt that hangs. */
	rig_advance(2000);
	link_reconnect(&rig.link);
	rig_advance(1100);
	assert_non_null(fake_conn());
	assert_true(monotime_diff_ms(monotime_now(), fake_conn()->started) < 1200);
}

/* ---- ends for good ---- */

static void
stops_for_good(void **state)
{
	static const struct { const char *frame, *cause; bool before; } rows[] = {
		{ "{\"v\":1,\"type\":\"bye\",\"payload\":{\"reason\":\"credential revoked\",\"reconnect\":false}}", "hub-bye", false },
		{ "{\"v\":1,\"type\":\"error\",\"payload\":{\"code\":\"unauthorized\",\"message\":\"m\"}}", "unauthorized", true },
		{ "{\"v\":1,\"type\":\"error\",\"payload\":{\"code\":\"version_unsupported\"}}", "version", true },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		if (rows[i].before)
			rig_open(false);
		else
			rig_session_up();
		rig_hub("%s", rows[i].frame);
		assert_int_equal(rig.link.state, CTL_LINK_STOPPED);
		assert_string_equal(rig.link.cause, rows[i].cause);
		rig_advance(600000);
		link_wake(&rig.link, "address");
		rig_advance(1000);
		assert_null(fake_conn());
		assert_int_equal(rig.cred.state, CRED_GOOD);	/* nothing is deleted by itself */
		link_reconnect(&rig.link);
		rig_advance(1000);
		assert_non_null(fake_conn());
	}
	/* Any other error in the handshake is retried. */
	rig_open(false);
	rig_hub("{\"v\":1,\"type\":\"error\",\"payload\":{\"code\":\"busy\",\"message\":\"later\"}}");
	assert_int_equal(rig.link.state, CTL_LINK_WAITING);
}

/* B23, B72: a credential an operator puts there is tried without being told to. */
static void
test_b23_a_changed_credential_wakes(void **state)
{
	struct cred_store other = { 0 };
	struct cred cred = rig.cred.cred;

	rig_session_up();
	rig_hub("{\"v\":1,\"type\":\"bye\",\"payload\":{\"reconnect\":false}}");
	rig_advance(100000);
	assert_int_equal(rig.link.state, CTL_LINK_STOPPED);
	cred_load(&other, rig.cred.dirfd);
	snprintf(cred.credential, sizeof(cred.credential), "clac1.other.S.M");
	assert_int_equal(cred_save(&other, &cred), 0);
	rig_advance(11000);
	assert_non_null(fake_conn());
	assert_string_equal(fake_conn()->bearer, "clac1.other.S.M");
}

static void
a_configuration_error_is_not_retried(void **state)
{
	fake_start_result = -22;
	rig_lose(HUBCONN_LOST, 0, 0, "lost");
	rig_advance(3000);
	assert_int_equal(rig.link.state, CTL_LINK_STOPPED);
	assert_string_equal(rig.link.cause, "config");
	rig_advance(600000);
	assert_int_equal(rig.link.state, CTL_LINK_STOPPED);
	fake_start_result = 0;
}

/* ---- B30: the wall clock steps, nothing of ours moves ---- */

static void
test_b30_wall_clock_steps(void **state)
{
	static const int64_t steps[] = { 86400, -86400, 1, -1, -1790000000, 2300000000 };

	for (size_t i = 0; i < COUNT(steps); i++) {
		int64_t due, began;

		link_kick(&rig.link);
		rig_turn();
		rig_lose(HUBCONN_LOST, 0, 0, "lost");
		due = rig_wait_ms();
		began = rig_ms();
		rig_set_wall(rig_wall() + steps[i] * 1000000000);
		while (fake_conn() == NULL)
			rig_advance(10);
		assert_in_range(rig_ms() - began, due, due + 10);
		rig_session_up();
		rig_set_wall(rig_wall() - steps[i] * 1000000000);
		rig_advance(5000);
		assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
		backoff_stable(&rig.link.backoff);
		rig_lose(HUBCONN_LOST, 0, 0, "lost");
		rig_advance(3000);
	}
}

/* B77: another device has this one's identity. Neither comes back at once, so there is no war; both sides say what it is. */
static void
test_b77_identity_in_use_twice(void **state)
{
	const struct json *health;

	for (int i = 0; i < 5; i++) {
		rig_session_up();
		rig_lose(HUBCONN_CLOSED, 0, 1000, "superseded");
		assert_string_equal(rig.link.cause, "identity-duplicate");
		assert_in_range(rig_wait_ms(), 59000, 121000);
		while (fake_conn() == NULL)
			rig_advance(1000);
	}
	rig_connect(true, "[]");
	rig_drop_frames();
	rig_advance(19000);
	health = json_get(rig_frame("heartbeat"), "health");
	assert_non_null(health);
	assert_string_equal(health->child->str, "identity-duplicate");
	/* What is not said of a session that lives is an end like any other. */
	rig_lose(HUBCONN_CLOSED, 0, 1000, "closed");
	assert_string_equal(rig.link.cause, "closed");
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, rig_test_setup_up, rig_test_teardown)
#define Q(f)	cmocka_unit_test_setup_teardown(f, setup_quick, rig_test_teardown)
	const struct CMUnitTest tests[] = {
		T(test_b01_only_a_stable_session_resets), T(test_b02_first_wait_by_cause), T(test_b02_bye_and_retry_after),
		T(test_b02_a_window_named_in_bye), T(test_b02_a_fleet), Q(test_b03_silence), Q(test_b03_full_queue_and_no_acks),
		T(a_welcome_that_does_not_come), T(heartbeats_keep_their_distance), T(test_b23_a_storm_of_events),
		T(test_b23_no_wait_is_long_and_can_be_cut), T(reconnect_out_of_a_session), T(stops_for_good),
		T(test_b23_a_changed_credential_wakes), T(a_configuration_error_is_not_retried), T(test_b30_wall_clock_steps),
		T(test_b77_identity_in_use_twice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
