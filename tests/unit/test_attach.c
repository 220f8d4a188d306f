/* What a hub may ask for in an attach, field by field, and what reaches workerd. */
#include <errno.h>
#include <string.h>

#include "proto/hub/attach.h"
#include "unit.h"

static uint8_t cmd[ATTACH_COMMAND_MAX];
static struct attach_command command;

static int
decode(const char *json, bool stream, struct attach_open *o)
{
	struct json_doc *doc;
	const char *why = NULL;
	size_t len = 0;
	int r;

	assert_int_equal(json_parse(json, strlen(json), &doc), 0);
	r = attach_decode(json_root(doc), "h1", stream, o, cmd, &len, &why);
	assert_true(r == 0 || why != NULL);
	if (r == 0)
		assert_int_equal(attach_command_decode(&command, cmd, len), 0);
	json_doc_free(doc);
	return r;
}

static void
test_open(void **state)
{
	struct attach_open o;

	assert_int_equal(decode("{\"session_id\":\"s1\",\"command\":[\"/bin/sh\",\"\"],\"tty\":true,\"stdin\":true,\"rows\":24,\"cols\":80,"
	    "\"env\":[\"LD_PRELOAD=x\",\"TERM=vt100\"],\"resume\":true,\"from_offset\":3}", false, &o), 0);
	assert_string_equal(o.session, "s1");
	assert_string_equal(o.handle, "h1");
	assert_int_equal(o.flags, ATTACH_TTY | ATTACH_INPUT);	/* a cloop hub has no more */
	assert_int_equal(o.rows, 24);
	assert_int_equal(o.cols, 80);
	assert_true(o.from == 0);
	assert_string_equal(command.term, "vt100");
	assert_int_equal(command.argc, 2);
	assert_memory_equal(command.argv[0].s, "/bin/sh", 7);
	/* Nothing but an id: a shell that reads nothing, and the default terminal. */
	assert_int_equal(decode("{\"session_id\":\"s\"}", false, &o), 0);
	assert_int_equal(o.flags, 0);
	assert_int_equal(command.argc, 0);
	assert_string_equal(command.term, "xterm-256color");
	assert_int_equal(decode("{\"session_id\":\"s\",\"env\":[\"TERM=../../x\"]}", false, &o), 0);
	assert_string_equal(command.term, "xterm-256color");
}

static void
test_stream(void **state)
{
	struct attach_open o;

	assert_int_equal(decode("{\"session_id\":\"s1\",\"handle\":\"h2\",\"resume\":true,\"from_offset\":77,\"operator\":\"uid 0\"}", true, &o), 0);
	assert_string_equal(o.handle, "h2");
	assert_string_equal(o.who, "uid 0");
	assert_int_equal(o.flags, ATTACH_KEEP | ATTACH_RESUME);
	assert_true(o.from == 77);
	assert_int_equal(decode("{\"session_id\":\"s1\",\"watch\":true}", true, &o), 0);
	assert_int_equal(o.flags, ATTACH_KEEP | ATTACH_WATCH);
	assert_int_equal(decode("{\"session_id\":\"s1\",\"operator\":\"a\\nb\"}", true, &o), 0);
	assert_string_equal(o.who, "");		/* nobody writes lines into the record */
}

static void
test_refused(void **state)
{
	static const char *const bad[] = { "{}", "{\"session_id\":\"\"}", "{\"session_id\":\"a\\u0001\"}", "{\"session_id\":1}",
		"{\"session_id\":\"s\",\"command\":\"sh\"}", "{\"session_id\":\"s\",\"command\":[\"sh\",2]}", "{\"session_id\":\"s\",\"command\":[\"\"]}",
		"{\"session_id\":\"s\",\"resume\":true,\"watch\":true}", "{\"session_id\":\"s\",\"from_offset\":1}",
		"{\"session_id\":\"s\",\"resume\":true,\"from_offset\":-1}", "{\"session_id\":\"s\",\"handle\":\"../x\"}" };
	struct attach_open o;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(decode(bad[i], true, &o), -EBADMSG);
}

static void
test_data(void **state)
{
	static char json[(ATTACH_DATA_MAX + 16) * 2];
	uint8_t raw[ATTACH_DATA_MAX + 3];
	struct json_doc *doc;
	size_t len;

	for (int more = 0; more < 2; more++) {
		size_t n = (ATTACH_DATA_MAX + 2) / 3 * 4 + (more ? 4 : 0);

		memcpy(json, "{\"data\":\"", 9);
		memset(json + 9, 'A', n);
		if (!more)
			memcpy(json + 9 + n - 4, "AAA=", 4);	/* 32768 is 2 above a multiple of 3 */
		memcpy(json + 9 + n, "\"}", 3);
		assert_int_equal(json_parse(json, strlen(json), &doc), 0);
		assert_int_equal(attach_decode_data(json_root(doc), raw, &len), more ? -EBADMSG : 0);
		assert_true(more || len == ATTACH_DATA_MAX);
		json_doc_free(doc);
	}
}

static void
test_command(void **state)
{
	struct attach_command c = { .term = "xterm", .argc = 1, .argv = { { "a\0b", 3 } } };
	uint8_t small[8];
	size_t len;

	assert_int_equal(attach_command_encode(&c, cmd, sizeof(cmd), &len), -EINVAL);
	c.argv[0].len = 1;
	assert_int_equal(attach_command_encode(&c, small, sizeof(small), &len), -ENOSPC);
	assert_int_equal(attach_command_encode(&c, cmd, sizeof(cmd), &len), 0);
	for (size_t n = 0; n < len; n++)
		assert_int_equal(attach_command_decode(&c, cmd, n), -EBADMSG);
	cmd[len] = 0;
	assert_int_equal(attach_command_decode(&c, cmd, len + 1), -EBADMSG);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_open), cmocka_unit_test(test_stream), cmocka_unit_test(test_refused), cmocka_unit_test(test_data),
		cmocka_unit_test(test_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
