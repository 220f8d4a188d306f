/* What the hub reads out of an agent's text frames, its verdicts on offered runs, and exit codes. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "hub/frames.h"
#include "hub/verdict.h"

static struct json_doc *doc;

static const struct json *
parse(const char *text)
{
	json_doc_free(doc);
	doc = NULL;
	assert_int_equal(json_parse_nul(text, strlen(text), &doc), 0);
	return json_root(doc);
}

static int
tear_down(void **state)
{
	(void)state;
	json_doc_free(doc);
	doc = NULL;
	return 0;
}

static void
test_envelope(void **state)
{
	static const struct {
		const char *text;
		int r;
	} rows[] = {
		{ "{\"v\":1,\"type\":\"hello\",\"payload\":{}}", 0 },
		{ "{\"v\":1,\"type\":\"anything\"}", 0 },
		{ "{\"v\":1,\"type\":\"status\",\"handle\":\"h\",\"payload\":null}", 0 },
		{ "{\"v\":2,\"type\":\"hello\"}", -EBADMSG },	/* above what was negotiated */
		{ "{\"v\":0,\"type\":\"hello\"}", -EBADMSG },
		{ "{\"v\":\"1\",\"type\":\"hello\"}", -EBADMSG },
		{ "{\"type\":\"hello\"}", -EBADMSG },
		{ "{\"v\":1}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"\"}", -EBADMSG },
		{ "{\"v\":1,\"type\":7}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"status\"}", -EBADMSG },	/* needs a handle */
		{ "{\"v\":1,\"type\":\"status\",\"handle\":\"\"}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"status\",\"handle\":\"../x\"}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"hello\",\"payload\":[]}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"hello\",\"id\":1}", -EBADMSG },
		{ "[]", -EBADMSG },
		{ "1", -EBADMSG },
	};
	struct frame f;

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(frame_decode(parse(rows[i].text), 1, &f), rows[i].r);
	assert_int_equal(frame_decode(parse("{\"v\":1,\"type\":\"started\",\"id\":\"c1\",\"handle\":\"h-_9\",\"payload\":{}}"), 1,
	    &f), 0);
	assert_int_equal(f.type, FRAME_STARTED);
	assert_string_equal(f.id, "c1");
	assert_string_equal(f.handle, "h-_9");
	assert_non_null(f.payload);
}

static void
test_hello(void **state)
{
	struct frame_hello h;
	struct frame_offer o;

	(void)state;
	assert_int_equal(frame_hello(parse("{\"protocol_version\":20,\"agent_id\":\"a\",\"capabilities\":{\"os\":\"linux\"},"
	    "\"resume\":[{\"handle_id\":\"h\",\"started_at\":\"0001-01-01T00:00:00Z\",\"log_offset\":5120,\"log_channel\":4}]}"),
	    &h), 0);
	assert_int_equal(h.protocol_version, 20);
	assert_string_equal(h.agent_id, "a");
	assert_string_equal(h.name, "");
	assert_non_null(h.capabilities);
	assert_int_equal(frame_offer(h.resume, &o), 0);
	assert_string_equal(o.handle, "h");
	assert_int_equal(o.log_offset, 5120);
	assert_int_equal(o.log_channel, 4);
	assert_null(h.resume->next);
	assert_int_equal(frame_hello(parse("{\"agent_id\":\"a\"}"), &h), -EBADMSG);
	assert_int_equal(frame_hello(parse("{\"protocol_version\":1,\"resume\":{}}"), &h), -EBADMSG);
	assert_int_equal(frame_hello(parse("{\"protocol_version\":1,\"agent_id\":7}"), &h), -EBADMSG);
	assert_int_equal(frame_hello(NULL, &h), -EBADMSG);
	assert_int_equal(frame_hello(parse("{\"protocol_version\":1,\"agent_id\":null,\"resume\":null}"), &h), 0);
	assert_null(h.resume);
	assert_int_equal(frame_offer(parse("{\"handle_id\":\"a/b\"}"), &o), -EBADMSG);
	assert_int_equal(frame_offer(parse("{\"handle_id\":\"a\",\"log_offset\":-1}"), &o), -EBADMSG);
	assert_int_equal(frame_offer(parse("\"a\""), &o), -EBADMSG);
}

static void
test_status(void **state)
{
	struct frame_status s;

	(void)state;
	assert_int_equal(frame_status(parse("{\"status\":{\"handle_id\":\"h\",\"executor_id\":\"\",\"state\":\"exited\",\"pid\":7,"
	    "\"exit_code\":3,\"started_at\":\"2026-10-05T08:00:00Z\",\"finished_at\":\"2026-10-05T08:05:00Z\","
	    "\"outcome\":\"exited\"},\"final_offset\":4101,\"log_xxh3\":\"000102030405060708090a0b0c0d0e0f\"}"), &s), 0);
	assert_int_equal(s.state, RUN_EXITED);
	assert_int_equal(s.exit_code, 3);
	assert_int_equal(s.final_offset, 4101);
	assert_true(s.has_digest);
	assert_int_equal(s.digest[15], 15);
	assert_int_equal(s.finished_at - s.started_at, 300LL * 1000000000);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"running\",\"exit_code\":0,"
	    "\"started_at\":\"0001-01-01T00:00:00Z\"}}"), &s), 0);
	assert_int_equal(s.state, RUN_RUNNING);
	assert_true(s.final_offset == FRAME_NONE);
	assert_false(s.has_digest);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"killed\",\"exit_code\":-1,\"signal\":6}}"), &s), 0);
	assert_int_equal(s.term_signal, 6);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"killed\",\"error\":\"signal: terminated\"}}"), &s), 0);
	assert_int_equal(s.term_signal, 15);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"killed\","
	    "\"error\":\"signal: segmentation fault (core dumped)\"}}"), &s), 0);
	assert_int_equal(s.term_signal, 11);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"killed\",\"error\":\"signal: 31\"}}"), &s), 0);
	assert_int_equal(s.term_signal, 31);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"killed\",\"error\":\"by policy\"}}"), &s), 0);
	assert_int_equal(s.term_signal, 0);
	/* Only the hub calls a run lost or refused. */
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"lost\"}}"), &s), -EBADMSG);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"refused\"}}"), &s), -EBADMSG);
	assert_int_equal(frame_status(parse("{\"status\":{}}"), &s), -EBADMSG);
	assert_int_equal(frame_status(parse("{}"), &s), -EBADMSG);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"exited\",\"started_at\":\"noon\"}}"), &s), -EBADMSG);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"exited\"},\"log_xxh3\":\"00\"}"), &s), -EBADMSG);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"exited\"},"
	    "\"log_xxh3\":\"000102030405060708090A0B0C0D0E0F\"}"), &s), -EBADMSG);
	assert_int_equal(frame_status(parse("{\"status\":{\"state\":\"exited\"},\"final_offset\":-1}"), &s), -EBADMSG);
}

static void
test_chunk_and_channel(void **state)
{
	static char big[40000];
	struct frame_chunk c;
	struct frame f;
	const char *handle;
	uint32_t channel;

	(void)state;
	assert_int_equal(frame_chunk(parse("{\"stream\":\"combined\",\"offset\":4096,\"text\":\"line\\n\"}"), &c), 0);
	assert_int_equal(c.offset, 4096);
	assert_int_equal(c.len, 5);
	assert_int_equal(frame_chunk(parse("{\"text\":\"a\\u0000b\"}"), &c), 0);
	assert_int_equal(c.len, 3);
	assert_memory_equal(c.text, "a\0b", 3);
	assert_int_equal(frame_decode(parse("{\"v\":1,\"type\":\"bye\",\"id\":\"c\\u0000\"}"), 1, &f), -EBADMSG);
	assert_int_equal(frame_chunk(parse("{\"offset\":-1,\"text\":\"x\"}"), &c), -EBADMSG);
	assert_int_equal(frame_chunk(parse("{\"offset\":1}"), &c), -EBADMSG);
	snprintf(big, sizeof(big), "{\"text\":\"%032768d\"}", 0);
	assert_int_equal(frame_chunk(parse(big), &c), 0);
	snprintf(big, sizeof(big), "{\"text\":\"%032769d\"}", 0);
	assert_int_equal(frame_chunk(parse(big), &c), -EBADMSG);

	static const struct {
		const char *text;
		int r;
	} rows[] = {
		{ "{\"v\":1,\"type\":\"log_open\",\"payload\":{\"handle\":\"h\",\"channel\":2}}", 0 },
		{ "{\"v\":1,\"type\":\"log_open\",\"handle\":\"h\",\"payload\":{\"channel\":2}}", 0 },
		{ "{\"v\":1,\"type\":\"log_open\",\"handle\":\"h\",\"payload\":{\"handle\":\"h\",\"channel\":4294967294}}", 0 },
		{ "{\"v\":1,\"type\":\"log_open\",\"handle\":\"h\",\"payload\":{\"handle\":\"g\",\"channel\":2}}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"log_open\",\"payload\":{\"channel\":2}}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"log_open\",\"handle\":\"h\",\"payload\":{\"channel\":3}}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"log_open\",\"handle\":\"h\",\"payload\":{\"channel\":0}}", -EBADMSG },
		{ "{\"v\":1,\"type\":\"log_open\",\"handle\":\"h\"}", -EBADMSG },
	};
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(frame_decode(parse(rows[i].text), 1, &f), 0);
		assert_int_equal(frame_log_open(&f, &handle, &channel), rows[i].r);
	}
}

static void
test_verdicts(void **state)
{
	static const struct {
		struct verdict_in in;
		bool keep;
		uint64_t from;
	} rows[] = {
		{ { false, false, RUN_RUNNING, 0 }, false, 0 },
		{ { true, false, RUN_RUNNING, 7 }, false, 0 },
		{ { true, true, RUN_PENDING, 0 }, true, 0 },
		{ { true, true, RUN_RUNNING, 4096 }, true, 4096 },
		/* Ended here, but the device has not heard that its status arrived. */
		{ { true, true, RUN_EXITED, 9 }, true, 9 },
		{ { true, true, RUN_KILLED, 9 }, true, 9 },
		{ { true, true, RUN_FAILED, 9 }, true, 9 },
		{ { true, true, RUN_LOST, 9 }, false, 0 },
		{ { true, true, RUN_REFUSED, 0 }, false, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct verdict v = verdict_decide(&rows[i].in);

		assert_int_equal(v.keep, rows[i].keep);
		assert_int_equal(v.from_offset, rows[i].from);
		assert_int_equal(v.reason != NULL, !rows[i].keep);
	}
	assert_true(verdict_resend(RUN_PENDING, true));
	assert_false(verdict_resend(RUN_PENDING, false));
	assert_false(verdict_resend(RUN_RUNNING, true));
	assert_false(verdict_resend(RUN_EXITED, true));
}

static void
test_exit_codes(void **state)
{
	static const struct {
		struct run_info info;
		int code;
	} rows[] = {
		{ { .state = RUN_EXITED, .exit_code = 0 }, 0 },
		{ { .state = RUN_EXITED, .exit_code = 7 }, 7 },
		{ { .state = RUN_EXITED, .exit_code = 255 }, 255 },
		{ { .state = RUN_EXITED, .exit_code = 256 }, 1 },
		{ { .state = RUN_EXITED, .exit_code = -1 }, 255 },
		{ { .state = RUN_KILLED, .exit_code = 143 }, 143 },
		{ { .state = RUN_KILLED, .exit_code = 15 }, 143 },
		{ { .state = RUN_KILLED, .exit_code = -1 }, 137 },
		{ { .state = RUN_KILLED, .exit_code = -1, .term_signal = 2 }, 130 },
		{ { .state = RUN_EXITED, .exit_code = 139, .outcome = "signalled" }, 139 },
		{ { .state = RUN_FAILED, .exit_code = 0 }, 1 },
		{ { .state = RUN_FAILED, .exit_code = 4 }, 4 },
		{ { .state = RUN_FAILED, .outcome = "lost" }, RUN_EXIT_LOST },
		{ { .state = RUN_LOST }, RUN_EXIT_LOST },
		{ { .state = RUN_REFUSED }, RUN_EXIT_REFUSED },
		{ { .state = RUN_KILLED, .exit_code = 137, .outcome = "timeout" }, RUN_EXIT_TIMEOUT },
		{ { .state = RUN_KILLED, .exit_code = 143, .timed_out = true }, RUN_EXIT_TIMEOUT },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(run_exit_code(&rows[i].info), rows[i].code);
}

static void
test_text_clean(void **state)
{
	char buf[8];

	(void)state;
	text_clean(buf, sizeof(buf), "a\033[31m\n");
	assert_string_equal(buf, "a [31m ");
	text_clean(buf, sizeof(buf), "abcdef\xc3\xa4");
	assert_string_equal(buf, "abcdef");
	text_clean(buf, sizeof(buf), "ab\xff" "cd");
	assert_string_equal(buf, "ab");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_envelope, tear_down),
		cmocka_unit_test_teardown(test_hello, tear_down),
		cmocka_unit_test_teardown(test_status, tear_down),
		cmocka_unit_test_teardown(test_chunk_and_channel, tear_down),
		cmocka_unit_test(test_verdicts),
		cmocka_unit_test(test_exit_codes),
		cmocka_unit_test(test_text_clean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
