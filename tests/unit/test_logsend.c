/*
 * Output on its way to the hub. B36: text is cut in connectd/logcloop.c only (and checked by proto/hub/utf8.c); credit, and a link that is full.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/logrig.h"

/* ---- B36 ---- */

/* A reference that is written differently: one for one, '?' for what is not part of a well-formed sequence. */
static void
reference(uint8_t *s, size_t len)
{
	for (size_t i = 0; i < len;) {
		size_t best = 0;

		for (size_t n = 1; n <= 4 && n <= len - i; n++)
			if (utf8_valid_prefix(s + i, n, NULL) == n && (n == 1 || utf8_valid_prefix(s + i, 1, NULL) == 0)) {
				best = n;
				break;
			}
		if (best == 0)
			s[i++] = '?';
		else
			i += best;
	}
}

/* Four-byte characters at every offset of every edge: of records (65536 and odd sizes) and of frames (32768). */
static void
test_b36_characters_across_every_edge(void **state)
{
	static const size_t sizes[] = { 65536, 65535, 32768, 32767, 32769, 4093 };
	static uint8_t data[140000];

	for (size_t shift = 0; shift < 5; shift++)
		for (size_t s = 0; s < COUNT(sizes); s++) {
			struct got g = { 0 };
			size_t len = shift;

			memset(data, 'x', shift);
			while (len + 4 <= sizeof(data)) {
				memcpy(data + len, "\xf0\x9f\x98\x80", 4);
				len += 4;
			}
			begin(false);
			feed(data, len, sizes[s], &g);
			assert_int_equal(g.len, len);
			assert_memory_equal(g.data, data, len);
			free(g.data);
			fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
			rig_gone(1);
			rig_advance(13000);
		}
}

/* All byte values in every small arrangement, in records of one byte and of many: length stays, content as the reference. */
static void
test_b36_all_bytes(void **state)
{
	static const uint8_t edges[] = { 0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xed,
		0xef, 0xf0, 0xf4, 0xf5, 0xff };
	static uint8_t data[256 + 19 * 19 * 19 * 3], want[sizeof(data)];
	static const size_t sizes[] = { 1, 2, 3, 7, 4096 };
	size_t len = 0;

	for (int i = 0; i < 256; i++)
		data[len++] = (uint8_t)i;
	for (size_t a = 0; a < COUNT(edges); a++)
		for (size_t b = 0; b < COUNT(edges); b++)
			for (size_t c = 0; c < COUNT(edges); c++) {
				data[len++] = edges[a];
				data[len++] = edges[b];
				data[len++] = edges[c];
			}
	/* NUL cannot be told apart by this parser (it refuses it): the hub's own parser does that. */
	for (size_t i = 0; i < len; i++)
		if (data[i] == 0)
			data[i] = 1;
	memcpy(want, data, len);
	reference(want, len);
	for (size_t s = 0; s < COUNT(sizes); s++) {
		struct got g = { 0 };
		size_t n = sizes[s] == 1 ? 1500 : len;

		begin(false);
		feed(data, n, sizes[s], &g);
		rig_output_end(1, epoch(), n, NULL);	/* what was held back comes out */
		collect_cloop(&g);
		assert_int_equal(g.len, n);
		assert_memory_equal(g.data, want, n - 3);
		free(g.data);
		fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
		rig_gone(1);
		rig_advance(13000);
	}
}

/* ---- credit ---- */

static void
cloop_credit_follows_the_acks(void **state)
{
	static uint8_t data[65536];
	const struct work_sub *sub;

	memset(data, 'a', sizeof(data));
	begin(false);
	assert_int_equal(rig_sub()->limit, 1 << 20);
	for (uint64_t at = 0; at < 1 << 20; at += sizeof(data))
		rig_output(1, 1, at, data, sizeof(data));
	assert_int_equal(rig_count(WORK_EV_CREDIT), 0);
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":32768}}");
	sub = (const struct work_sub *)(const void *)rig_rec(WORK_EV_CREDIT)->data;
	assert_int_equal(sub->limit, (1 << 20) + 32768);
	/* More than was sent cannot have been received. */
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":99999999}}");
	sub = (const struct work_sub *)(const void *)rig_rec(WORK_EV_CREDIT)->data;
	assert_int_equal(sub->limit, 2 << 20);
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":5}}");
	rig_hub("{\"v\":1,\"type\":\"log_ack\",\"handle\":\"h\",\"payload\":{\"offset\":-5}}");
	assert_int_equal(rig_count(WORK_EV_CREDIT), 0);
}

/* workerd that sends beyond its credit, out of order or after the end has broken the protocol: its channel ends. */
static void
workerd_must_keep_to_its_credit(void **state)
{
	for (int what = 0; what < 4; what++) {
		begin(true);
		rig_output(1, epoch(), 0, "abc", 3);
		assert_int_equal(rig.w_ended, (unsigned)what);
		if (what == 0)
			rig_output(1, epoch(), 5, "x", 1);
		if (what == 1)
			rig_output(1, epoch(), 2, "x", 1);
		if (what == 2)
			rig_output_end(1, epoch(), 4, NULL);
		if (what == 3) {
			rig_output_end(1, epoch(), 3, NULL);
			rig_output(1, epoch(), 3, "x", 1);
		}
		assert_int_equal(rig.w_ended, (unsigned)what + 1);
		fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
		rig_turn();
		rig_workerd(NULL, 0);
		rig_advance(13000);
	}
}

/* ---- edgeward.1 ---- */

static void
stream_from_start_to_end(void **state)
{
	static uint8_t data[3 * 65536];
	uint8_t digest[16];
	struct work_workload w;
	struct got g = { 0 };
	const struct json *p;
	uint32_t channel;
	int64_t v;

	memset(digest, 0xab, sizeof(digest));
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	begin(true);
	p = rig_frame("log_open");
	assert_string_equal(json_get_str(rig_envelope(), "handle"), "h");
	assert_true(json_get_int(p, "channel", 2, 1000, &v) && v % 2 == 0);
	channel = (uint32_t)v;
	assert_int_equal(rig_sub()->limit, STREAM_WINDOW);
	for (size_t at = 0; at < sizeof(data); at += 65536)
		rig_output(1, 1, at, data + at, 65536);
	collect_stream(&g);
	assert_int_equal(g.frames, 3);
	assert_memory_equal(g.data, data, sizeof(data));
	assert_int_equal(rig_count(WORK_EV_CREDIT), 0);
	window(sizeof(data) + STREAM_WINDOW);	/* not worth a record: workerd has most of its credit left */
	assert_int_equal(rig_count(WORK_EV_CREDIT), 0);
	window(2 * sizeof(data) + STREAM_WINDOW);
	assert_int_equal(((const struct work_sub *)(const void *)rig_rec(WORK_EV_CREDIT)->data)->limit,
	    2 * sizeof(data) + STREAM_WINDOW);
	window(5);	/* a window never shrinks */
	assert_int_equal(rig_count(WORK_EV_CREDIT), 0);
	/* A gap in the middle, bytes behind it. */
	rig_send(WORK_EV_GAP, &(struct work_gap){ .wid = 1, .epoch = 1, .from = sizeof(data), .to = 1000000, .reason = 1 },
	    sizeof(struct work_gap));
	window(1000000 + STREAM_WINDOW);
	rig_output(1, 1, 1000000, "tail", 4);
	w = rig_ended(1, "h", 1000004, 0);
	w.cpu_ms = 12;
	rig_tell(&w);
	rig_output_end(1, 1, 1000004, digest);
	{
		struct fake_msg *m;
		struct stream_frame f;
		enum stream_type order[] = { STREAM_GAP, STREAM_DATA, STREAM_END };

		for (int i = 0; i < 3; i++) {
			m = fake_take(fake_conn());
			assert_true(m != NULL && m->binary);
			assert_int_equal(stream_parse(&f, m->data, m->len), 0);
			assert_int_equal(f.type, order[i]);
			assert_int_equal(f.channel, channel);
			if (i == 2) {
				assert_int_equal(f.offset, 1000004);
				assert_memory_equal(f.digest, digest, 16);
			}
			free(m);
		}
	}
	assert_string_equal(rig_next(), "status");
	p = rig_payload();
	assert_string_equal(json_get_str(p, "log_xxh3"), "abababababababababababababababab");
	assert_true(json_get_int(p, "final_offset", 1000004, 1000004, &v));
	assert_string_equal(json_get_str(json_get(p, "status"), "outcome"), "exited");
	assert_true(json_get_int(json_get(json_get(p, "status"), "usage"), "cpu_ms", 12, 12, &v));
	/* On this dialect the confirming heartbeat comes soon. */
	rig_advance(1100);
	assert_non_null(rig_frame("heartbeat"));
	assert_int_equal(json_get(rig_payload(), "health")->type, JSON_ARRAY);
	free(g.data);
}

/* A resumed channel is named in the offer, not opened again, and goes on where the hub says. */
static void
stream_resumes(void **state)
{
	const struct json *offer;
	struct got g = { .next = 2 };
	int64_t channel;

	begin(true);
	rig_output(1, 1, 0, "abcdef", 6);
	fake_end(fake_conn(), HUBCONN_LOST, 0, 0, "lost");
	rig_advance(3000);
	mirror_by_handle(&rig.mirror, "h")->w.produced = 6;
	rig_open(true);
	offer = json_get(rig_frame("hello"), "resume")->child;
	assert_true(json_get_int(offer, "log_channel", 2, 1000, &channel));
	rig_forget();
	rig_hub("{\"v\":1,\"type\":\"welcome\",\"payload\":{\"protocol_version\":1,\"executor_id\":\"agent-1\",\"resume_accepted\":["
	    "{\"handle_id\":\"h\",\"from_offset\":2,\"action\":\"continue\"}]}}");
	/* A record of the old subscription that was still under way is of no use. */
	rig_output(1, 1, 6, "old", 3);
	rig_output(1, 2, 2, "cdef", 4);
	assert_string_equal(rig_next(), "heartbeat");
	collect_stream(&g);
	assert_int_equal(g.len, 4);
	assert_memory_equal(g.data, "cdef", 4);
	free(g.data);
}

/* ---- a link that is full ---- */

static void
full_link(bool edgeward1)
{
	static uint8_t data[65536];
	struct got g = { 0 };
	unsigned rounds = 0;

	memset(data, 0xc3, sizeof(data));	/* nothing valid: the worst case */
	for (size_t i = 0; i < sizeof(data); i += 3)
		data[i] = '"';
	begin(edgeward1);
	fake_conn()->room = 1;			/* one message, then it is full */
	for (uint64_t at = 0; at < 4 * sizeof(data); at += sizeof(data)) {
		struct work_output o = { .wid = 1, .epoch = epoch(), .offset = at };
		static uint8_t rec[sizeof(o) + sizeof(data)];

		memcpy(rec, &o, sizeof(o));
		memcpy(rec + sizeof(o), data, sizeof(data));
		rig_send(WORK_EV_OUTPUT, rec, sizeof(rec));
	}
	rig_output_end(1, epoch(), 4 * sizeof(data), NULL);
	rig_tell(&(struct work_workload){ .wid = 1, .state = WORK_ENDED, .outcome = WORK_OUTCOME_EXITED, .handle = "h",
	    .produced = 4 * sizeof(data) });
	while (g.len < 4 * sizeof(data) && rounds++ < 100) {
		rig_turn();
		assert_true(fake_conn()->queued <= 250000);
		if (edgeward1)
			collect_stream(&g);
		else
			collect_cloop(&g);
		fake_drain(fake_conn());
	}
	assert_int_equal(g.len, 4 * sizeof(data));
	assert_true(rounds >= 4);
	rig_turn();
	rig_advance(100);
	assert_true(mirror_by_handle(&rig.mirror, "h")->report.sent);
	if (edgeward1)
		for (size_t i = 0; i < 4; i++)
			assert_memory_equal(g.data + i * sizeof(data), data, sizeof(data));
	free(g.data);
}

static void
full_link_on_edgeward1(void **state)
{
	full_link(true);
}

static void
full_link_on_cloop(void **state)
{
	full_link(false);
}

/* Bulk that is refused delays no heartbeat. */
static void
heartbeats_pass_a_full_link(void **state)
{
	begin(true);
	fake_conn()->room = 0;
	rig_output(1, epoch(), 0, "abc", 3);
	assert_true(rig.link.session->logs.paused);
	rig_advance(19000);
	assert_non_null(rig_frame("heartbeat"));
}

int
main(void)
{
#define T(f)	cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		T(test_b36_characters_across_every_edge), T(test_b36_all_bytes), T(cloop_credit_follows_the_acks),
		T(workerd_must_keep_to_its_credit), T(stream_from_start_to_end), T(stream_resumes), T(full_link_on_edgeward1),
		T(full_link_on_cloop), T(heartbeats_pass_a_full_link),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
