/* The session's order and rules, on both dialects. Places: connectd/{session,welcome,beat,report,requests,frames,logsend}.c. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/hub/limits.h"
#include "tests/unit/rig.h"

static unsigned
list_len(const struct json *list)
{
	unsigned n = 0;

	for (const struct json *j = list->child; j != NULL; j = j->next)
		n++;
	return n;
}

static void
ack(uint64_t seq)
{
	rig_hub("{\"v\":1,\"type\":\"heartbeat_ack\",\"id\":\"hb-%d\",\"payload\":{\"seq\":%d,"
	    "\"server_time\":\"2026-09-21T14:13:20.5Z\"}}", (int)seq, (int)seq);
}

/* ---- handshake ---- */

static void
nothing_is_said_before_workerd_has_answered(void **state)
{
	struct work_workload w = rig_running(7, "h1", 100);

	link_kick(&rig.link);
	rig_advance(60000);
	assert_null(fake_conn());
	assert_int_equal(rig.link.state, CTL_LINK_STARTING);
	rig_workerd(&w, 1);
	assert_non_null(fake_conn());
	assert_string_equal(fake_conn()->bearer, "clac1.agent-1.S.M");
	fake_open(fake_conn(), false);
	rig_turn();
	assert_string_equal(rig_next(), "");		/* SYNC is not answered yet */
}

static void
hello_offers_what_is_held(void **state)
{
	struct work_workload w[2] = { rig_running(7, "h1", 100), rig_ended(8, "h2", 5, 3) };
	const struct json *p, *offer;

	rig_workerd(w, 2);
	rig_open(false);
	p = rig_frame("hello");
	assert_non_null(p);
	assert_int_equal(rig_num(rig_envelope(), "v"), 1);
	assert_string_equal(rig_str(rig_envelope(), "id"), "hello");
	assert_int_equal(rig_num(p, "protocol_version"), CLOOP_VERSION);
	assert_string_equal(rig_str(p, "agent_id"), "agent-1");
	assert_string_equal(rig_str(json_get(p, "capabilities"), "os"), "linux");
	assert_int_equal(rig_num(json_get(p, "capabilities"), "max_concurrent"), 4);
	assert_int_equal(rig_num(json_get(p, "capabilities"), "memory_mb"), 15900);
	assert_string_equal(rig_str(json_get(json_get(p, "capabilities"), "labels"), "site"), "lab");
	assert_null(json_get(json_get(p, "capabilities"), "sandbox"));
	assert_int_equal(list_len(json_get(p, "resume")), 2);
	offer = json_get(p, "resume")->child;
	assert_string_equal(rig_str(offer, "handle_id"), "h1");
	assert_int_equal(rig_num(offer, "log_offset"), 100);
	assert_null(json_get(offer, "log_channel"));
}

/*
 * 4.1 and B54's neighbour: cursor set before anything else, session published, heartbeat, refused ones stopped. continue,
 * terminate, no verdict, an unknown action.
 */
static void
resume_order_and_verdicts(void **state)
{
	struct work_workload w[4] = { rig_running(1, "cont", 100), rig_running(2, "term", 200), rig_running(3, "omit", 300),
		rig_running(4, "odd", 400) };
	static const struct { uint32_t wid; uint64_t from; } want[] = { { 1, 60 }, { 2, 200 }, { 3, 300 }, { 4, 0 } };
	const struct json *list;
	unsigned order[3] = { 0 }, n = 0;

	rig_workerd(w, 4);
	rig_forget();
	rig_connect(false, "[{\"handle_id\":\"cont\",\"from_offset\":60,\"action\":\"continue\"},"
	    "{\"handle_id\":\"term\",\"from_offset\":0,\"action\":\"terminate\",\"reason\":\"not tracked\"},"
	    "{\"handle_id\":\"odd\",\"from_offset\":0,\"action\":\"hibernate\"},{\"handle_id\":\"never-offered\",\"from_offset\":1}]");
	rig_turn();
	for (const struct rig_rec *r = rig.recs; r != NULL; r = r->next) {
		const struct work_sub *sub = (const struct work_sub *)(const void *)r->data;

		if (r->type == WORK_EV_SUB) {
			assert_true(n < 4);
			assert_int_equal(sub->wid, want[n].wid);
			assert_int_equal(sub->from, want[n].from);
			assert_int_equal(sub->limit, want[n].from + (1 << 20));
			n++;
			assert_int_equal(order[1] + order[2], 0);	/* before publishing */
		} else if (r->type == WORK_EV_SESSION) {
			order[1]++;
		} else if (r->type == WORK_EV_DISOWN) {
			assert_int_equal(order[1], 1);			/* after publishing */
			order[2]++;
			assert_true(sub->wid == 2 || sub->wid == 3);
		}
	}
	assert_int_equal(n, 4);
	assert_int_equal(order[2], 2);
	/* The heartbeat is the first frame, and lists what is still ours. */
	assert_string_equal(rig_next(), "heartbeat");
	list = json_get(rig_payload(), "active_handles");
	assert_int_equal(list_len(list), 2);
	assert_string_equal(list->child->str, "cont");
	assert_string_equal(list->child->next->str, "odd");
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
	/* The dying output and the end of a refused one are still reported in this session ... */
	rig_output(2, 1, 200, "bye\n", 4);
	assert_int_equal(rig_num(rig_frame("log_chunk"), "offset"), 200);
	w[1] = rig_ended(2, "term", 204, 3);
	rig_tell(&w[1]);
	rig_output_end(2, 1, 204, NULL);
	assert_int_equal(rig_num(json_get(rig_frame("status"), "status"), "exit_code"), 3);
	/* ... and it is never offered again. */
	fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
	rig_advance(3000);
	rig_open(false);
	assert_int_equal(list_len(json_get(rig_frame("hello"), "resume")), 2);
}

/* A hub that is restored from its store asks for everything again; more than there is means the end of what there is. */
static void
from_offset_is_bounded(void **state)
{
	struct work_workload w = rig_running(1, "h", 100);

	rig_workerd(&w, 1);
	rig_connect(false, "[{\"handle_id\":\"h\",\"from_offset\":5000}]");
	assert_int_equal(rig_sub()->from, 100);
}

/* ---- output and the end ---- */

static void
output_then_status_then_delivery(void **state)
{
	struct work_workload w = rig_running(1, "h", 0);
	const struct json *p;

	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	assert_non_null(rig_frame("heartbeat"));
	rig_tell(&w);
	assert_int_equal(rig_sub()->from, 0);
	rig_output(1, 1, 0, "line\n", 5);
	p = rig_frame("log_chunk");
	assert_string_equal(rig_str(rig_envelope(), "handle"), "h");
	assert_string_equal(rig_str(p, "text"), "line\n");
	assert_string_equal(rig_str(p, "stream"), "combined");
	assert_int_equal(rig_num(p, "offset"), 0);
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":5}}");
	rig_advance(60);	/* small news wait a moment for company */
	assert_int_equal(((const struct work_offset *)(const void *)rig_rec(WORK_EV_ACK)->data)->offset, 5);
	/* It has ended, but its output has not: still running for the hub. */
	w = rig_ended(1, "h", 9, 7);
	rig_tell(&w);
	rig_hub("{\"v\":1,\"type\":\"status_req\",\"id\":\"q1\",\"handle\":\"h\",\"payload\":{}}");
	p = json_get(rig_frame("status"), "status");
	assert_string_equal(rig_str(p, "state"), "running");
	assert_string_equal(rig_str(p, "finished_at"), "0001-01-01T00:00:00Z");
	rig_output(1, 1, 5, "end\n", 4);
	rig_output_end(1, 1, 9, NULL);
	assert_string_equal(rig_next(), "log_chunk");
	assert_string_equal(rig_next(), "status");
	p = rig_payload();
	assert_null(json_get(rig_envelope(), "id"));
	assert_int_equal(rig_num(p, "final_offset"), 9);
	assert_string_equal(rig_str(json_get(p, "status"), "state"), "exited");
	assert_int_equal(rig_num(json_get(p, "status"), "exit_code"), 7);
	assert_null(json_get(json_get(p, "status"), "outcome"));
	/* The ack of a beat that went out before the status proves nothing. */
	ack(1);
	assert_int_equal(rig_count(WORK_EV_DELIVERED), 0);
	rig_advance(19000);
	p = rig_frame("heartbeat");
	assert_int_equal(rig_num(p, "seq"), 2);
	/* With its ack the judgement moves behind the next beat: nothing wakes it before. */
	ack(2);
	assert_true(monotime_before(rig.link.session->beat.when, rig.link.session->check.when));
	assert_int_equal(list_len(json_get(p, "active_handles")), 1);
	assert_int_equal(rig_count(WORK_EV_DELIVERED), 1);
	ack(2);
	assert_int_equal(rig_count(WORK_EV_DELIVERED), 1);
	rig_gone(1);
	assert_int_equal(rig.mirror.n, 0);
	rig_hub("{\"v\":1,\"type\":\"signal\",\"id\":\"q2\",\"handle\":\"h\",\"payload\":{\"signal\":\"kill\"}}");
	assert_int_equal(rig_count(WORK_REQ_SIGNAL), 1);
}

/* What was not confirmed is sent again in the next session, once in each. */
static void
an_undelivered_status_is_repeated(void **state)
{
	struct work_workload w = rig_ended(1, "h", 4, 0);

	rig_workerd(&w, 1);
	for (int round = 0; round < 3; round++) {
		rig_connect(false, round == 0 ? "[{\"handle_id\":\"h\",\"from_offset\":0}]" :
		    "[{\"handle_id\":\"h\",\"from_offset\":4}]");
		if (round == 0)
			rig_output(1, rig.mirror.head->epoch, 0, "abcd", 4);
		rig_output_end(1, rig.mirror.head->epoch, 4, NULL);
		assert_non_null(rig_frame("status"));
		assert_null(rig_frame("status"));
		fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
		rig_advance(15000);
	}
	assert_int_equal(rig_count(WORK_EV_DELIVERED), 0);
}

/*
 * B55: the hub delays the ack of the first end while 19 more start and end: 20 final states, each with its own id and
 * code. No variable means "the current one": state is in struct mirror_entry and struct request.
 */
static void
test_b55_twenty_delayed_acks(void **state)
{
	char handle[16];

	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	for (uint32_t i = 1; i <= 20; i++) {
		struct work_workload w;

		snprintf(handle, sizeof(handle), "job-%u", i);
		w = rig_running(i, handle, 0);
		rig_tell(&w);
		w = rig_ended(i, handle, 0, (int32_t)i);
		rig_tell(&w);
		rig_output_end(i, 1, 0, NULL);
		rig_advance(250);
	}
	rig_drop_frames();
	assert_int_equal(rig_count(WORK_EV_DELIVERED), 0);
	fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
	rig_advance(3000);
	rig_open(false);
	assert_int_equal(list_len(json_get(rig_frame("hello"), "resume")), 20);
	rig_hub("{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-1\",\"resume_accepted\":["
	    "{\"handle_id\":\"job-1\"},{\"handle_id\":\"job-2\"},{\"handle_id\":\"job-3\"},{\"handle_id\":\"job-4\"},"
	    "{\"handle_id\":\"job-5\"},{\"handle_id\":\"job-6\"},{\"handle_id\":\"job-7\"},{\"handle_id\":\"job-8\"},"
	    "{\"handle_id\":\"job-9\"},{\"handle_id\":\"job-10\"},{\"handle_id\":\"job-11\"},{\"handle_id\":\"job-12\"},"
	    "{\"handle_id\":\"job-13\"},{\"handle_id\":\"job-14\"},{\"handle_id\":\"job-15\"},{\"handle_id\":\"job-16\"},"
	    "{\"handle_id\":\"job-17\"},{\"handle_id\":\"job-18\"},{\"handle_id\":\"job-19\"},{\"handle_id\":\"job-20\"}]}}");
	for (uint32_t i = 1; i <= 20; i++)
		rig_output_end(i, 2, 0, NULL);
	for (int i = 1; i <= 20; i++) {
		const struct json *st = json_get(rig_frame("status"), "status");

		snprintf(handle, sizeof(handle), "job-%d", i);
		assert_string_equal(rig_str(st, "handle_id"), handle);
		assert_int_equal(rig_num(st, "exit_code"), i);
	}
	rig_advance(19000);
	ack(rig.link.beat_seq);
	assert_int_equal(rig_count(WORK_EV_DELIVERED), 20);
}

/* Ended workloads hold descriptors until they are confirmed: a crowd of them asks at once, but one beat at a time. */
static void
a_crowd_is_confirmed_at_once(void **state)
{
	char handle[16];
	unsigned beats = 0;

	rig_workerd(NULL, 0);
	rig_connect(true, "[]");
	ack(rig.link.beat_seq);
	rig_drop_frames();
	for (uint32_t i = 1; i <= 40; i++) {
		struct work_workload w;

		snprintf(handle, sizeof(handle), "job-%u", i);
		w = rig_ended(i, handle, 0, 0);
		rig_tell(&w);
		rig_output_end(i, 1, 0, NULL);
	}
	rig_turn();
	while (rig_frame("heartbeat") != NULL)
		beats++;
	assert_int_equal(beats, 1);
	ack(rig.link.beat_seq);
	assert_in_range(rig_count(WORK_EV_DELIVERED), 16, 39);
	/* The rest has become a crowd itself and follows without a wait. */
	rig_turn();
	assert_non_null(rig_frame("heartbeat"));
	ack(rig.link.beat_seq);
	assert_int_equal(rig_count(WORK_EV_DELIVERED), 40);
}

/* ---- workerd goes and comes back in the middle ---- */

static void
workerd_is_replaced_within_a_session(void **state)
{
	struct work_workload w[2] = { rig_running(1, "h", 0), rig_running(2, "fresh", 0) };
	const struct work_sub *sub;

	rig_workerd(w, 1);
	rig_connect(false, "[{\"handle_id\":\"h\",\"from_offset\":0}]");
	rig_output(1, 1, 0, "abc\xc3", 4);	/* half a character is held back */
	assert_string_equal(rig_str(rig_frame("log_chunk"), "text"), "abc");
	rig_hub(RIG_START("c1", "lost"));
	rig_hub(RIG_START("c2", "fresh"));
	rig_hub("{\"v\":1,\"type\":\"signal\",\"id\":\"c3\",\"handle\":\"h\",\"payload\":{\"signal\":\"kill\"}}");
	rig_workerd_dies();
	rig_drop_frames();
	/* Meanwhile the handles stay listed, and starts are refused with a reason, after a while. */
	rig_hub(RIG_START("c4", "h4"));
	assert_null(rig_frame("started"));
	rig_advance(HOLD_MS);
	assert_string_equal(rig_str(rig_frame("started"), "error"), "the workload daemon of this device is restarting; try again");
	rig_hub(RIG_START("c5", "h5"));
	assert_string_equal(rig_str(rig_frame("started"), "error"), "the workload daemon of this device is restarting; try again");
	rig_advance(19000 - HOLD_MS);
	assert_int_equal(list_len(json_get(rig_frame("heartbeat"), "active_handles")), 1);
	rig_forget();
	w[0].wid = 11;
	w[1].wid = 12;
	rig_workerd(w, 2);
	assert_int_equal(rig_count(WORK_EV_SESSION), 1);
	sub = rig_sub();
	while (sub->wid != 11)
		sub = rig_sub();
	assert_int_equal(sub->from, 3);		/* the held byte comes again */
	assert_true(sub->epoch > 1);
	rig_output(11, sub->epoch, 3, "\xc3\xa4x", 3);
	assert_null(json_get(rig_frame("started"), "error"));
	assert_string_equal(rig_str(rig_envelope(), "id"), "c2");
	assert_string_equal(rig_str(rig_frame("log_chunk"), "text"), "\xc3\xa4x");
	assert_int_equal(rig_num(rig_payload(), "offset"), 3);
	assert_int_equal(rig_count(WORK_REQ_SIGNAL), 1);
	/* The new one was given the start that the old one had not taken; it does not take it either. */
	assert_int_equal(rig_count(WORK_REQ_START), 1);
	rig_workerd_dies();
	rig_forget();
	rig_workerd(w, 2);
	assert_int_equal(rig_count(WORK_REQ_START), 0);
	assert_string_equal(rig_str(rig_frame("started"), "error"),
	    "the workload daemon was restarted before it took the start; nothing was started");
	assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
}

/* A start that falls between the new workerd's HELLO and its list is with the new one: its word counts, not the list. */
static void
a_start_between_hello_and_list_is_answered_by_workerd(void **state)
{
	struct work_workload w;
	const struct rig_rec *r;

	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	rig_workerd_dies();
	rig_workerd_hello();
	rig_hub(RIG_START("c1", "h"));
	rig_hub("{\"v\":1,\"type\":\"signal\",\"id\":\"c2\",\"handle\":\"h\",\"payload\":{\"signal\":\"kill\"}}");
	rig_drop_frames();
	rig_workerd_lists(NULL, 0);
	assert_null(rig_frame("started"));
	assert_int_equal(rig_count(WORK_REQ_SIGNAL), 1);
	r = rig_rec(WORK_REQ_START);
	assert_non_null(r);
	w = rig_running(1, "h", 0);
	rig_tell(&w);
	rig_answer(WORK_ANS_START, r->id, WORK_OK, 1, "");
	rig_turn();
	assert_null(json_get(rig_frame("started"), "error"));
	assert_string_equal(rig_str(rig_envelope(), "id"), "c1");
}

static void
a_workerd_that_stays_away_ends_the_session(void **state)
{
	struct work_workload w = rig_running(1, "h", 0);

	rig_workerd(&w, 1);
	rig_connect(false, "[{\"handle_id\":\"h\",\"from_offset\":0}]");
	rig_workerd_dies();
	for (int i = 0; i < 29; i++) {
		rig_advance(1000);
		ack(rig.link.beat_seq);
	}
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
	rig_advance(2000);
	assert_true(rig.link.state == CTL_LINK_WAITING || rig.link.state == CTL_LINK_STARTING);	/* the first pause may be over already */
	rig_advance(60000);
	assert_null(fake_conn());
	assert_int_equal(rig.link.state, CTL_LINK_STARTING);
	assert_string_equal(rig.link.cause, "workerd-down");
	rig_workerd(&w, 1);
	assert_non_null(fake_conn());
	assert_string_equal(rig.link.cause, "");	/* the attempt may take half a minute, and workerd is not why */
}

/* ---- unknown and broken frames ---- */

static void
unknown_frames_keep_the_session(void **state)
{
	rig_workerd(NULL, 0);
	rig_connect(false, "[]");
	rig_drop_frames();
	rig_hub("{\"v\":1,\"type\":\"teleport\",\"id\":\"x\",\"payload\":{}}");
	rig_hub("{\"v\":1,\"type\":\"error\",\"payload\":{\"code\":\"odd\",\"message\":\"\\u0007\"}}");
	rig_hub("{\"v\":1,\"type\":\"error\"}");
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"nobody\",\"payload\":{\"offset\":5}}");
	rig_hub("{\"v\":1,\"type\":\"heartbeat_ack\",\"payload\":{\"seq\":99}}");
	assert_string_equal(rig_next(), "");
	rig_hub("{\"v\":1,\"type\":\"signal\",\"id\":\"q\",\"handle\":\"h\",\"payload\":{\"signal\":\"SIGUSR1\"}}");
	assert_string_equal(rig_str(rig_frame("error"), "code"), "protocol");
	rig_hub("{\"v\":1,\"type\":\"start\",\"id\":\"q\",\"payload\":{}}");
	assert_string_equal(rig_str(rig_frame("error"), "code"), "protocol");
	assert_int_equal(rig.link.state, CTL_LINK_CONNECTED);
}

static void
broken_frames_end_it(void **state)
{
	static const char *const bad[] = { "{", "[]", "{\"v\":7,\"type\":\"bye\"}", "{\"v\":0,\"type\":\"bye\"}",
		"{\"type\":\"bye\"}", "{\"v\":1}", "{\"v\":1,\"type\":\" \"}", "{\"v\":1,\"type\":\"welcome\",\"payload\":{}}",
		"{\"v\":1,\"type\":\"start\",\"id\":5,\"handle\":\"h\"}", "{\"v\":1,\"type\":\"x\",\"payload\":[1]}" };

	rig_workerd(NULL, 0);
	for (size_t i = 0; i < COUNT(bad); i++) {
		rig_connect(false, "[]");
		rig_hub("%s", bad[i]);
		assert_string_equal(rig.link.cause, "protocol");
		rig_advance(121000);
	}
	rig_connect(false, "[]");
	fake_binary(fake_conn(), "x", 1);
	assert_string_equal(rig.link.cause, "protocol");
}

/* What workerd finds between the hello and the welcome: the hub was told another thing. */
static void
news_during_the_handshake_is_told(void **state)
{
	struct work_inventory inv = { .disk_total = 1 << 30, .os = "one" };

	rig_workerd(NULL, 0);
	rig_send(WORK_EV_INVENTORY, &inv, sizeof(inv));
	rig_open(true);
	assert_non_null(rig_frame("hello"));
	inv.flags = INVENTORY_F_GIT;
	rig_send(WORK_EV_INVENTORY, &inv, sizeof(inv));
	rig_turn();
	rig_hub("{\"v\":1,\"type\":\"welcome\",\"id\":\"hello\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-1\","
	    "\"heartbeat_seconds\":15,\"resume_accepted\":[]}}");
	assert_non_null(rig_frame("inventory"));
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, rig_test_setup, rig_test_teardown)
	const struct CMUnitTest tests[] = {
		T(nothing_is_said_before_workerd_has_answered), T(hello_offers_what_is_held), T(resume_order_and_verdicts),
		T(from_offset_is_bounded), T(output_then_status_then_delivery), T(an_undelivered_status_is_repeated),
		T(test_b55_twenty_delayed_acks), T(a_crowd_is_confirmed_at_once), T(workerd_is_replaced_within_a_session),
		T(a_start_between_hello_and_list_is_answered_by_workerd), T(a_workerd_that_stays_away_ends_the_session),
		T(news_during_the_handshake_is_told), T(unknown_frames_keep_the_session), T(broken_frames_end_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
