#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/json.h"
#include "tests/unit/unit.h"

static struct json_doc *doc;

static int
parse(const char *s)
{
	json_doc_free(doc);
	doc = NULL;
	return json_parse(s, strlen(s), &doc);
}

static int
teardown(void **state)
{
	json_doc_free(doc);
	doc = NULL;
	return 0;
}

static void
reads(void **state)
{
	const struct json *o, *a;
	char buf[4];
	int64_t i = 7;
	bool b = false;

	assert_int_equal(parse("{\"s\":\"h\\u00e4\",\"i\":-9223372036854775808,\"b\":true,\"n\":null,\"d\":1.5,\"big\":9223372036854775808,"
	    "\"a\":[1,[2],{\"x\":3}],\"s\":\"second\",\"nul\":\"a\\u0000b\"}"), 0);
	o = json_root(doc);
	assert_string_equal(json_get_str(o, "s"), "h\xc3\xa4");
	assert_true(json_get_int(o, "i", INT64_MIN, 0, &i));
	assert_true(i == INT64_MIN);
	assert_false(json_get_int(o, "i", 0, 10, &i));
	assert_true(json_get_bool(o, "b", &b) && b);
	assert_int_equal(json_get(o, "n")->type, JSON_NULL);
	assert_false(json_get_int(o, "d", 0, 10, &i));
	assert_int_equal(json_get(o, "d")->type, JSON_REAL);
	assert_int_equal(json_get(o, "big")->type, JSON_REAL);
	assert_int_equal(json_get(o, "nul")->type, JSON_REAL);
	assert_null(json_get_str(o, "nul"));
	assert_null(json_get_str(o, "i"));
	assert_null(json_get(json_get(o, "s"), "x"));
	assert_null(json_get(NULL, "x"));
	a = json_get(o, "a");
	assert_int_equal(a->child->i, 1);
	assert_int_equal(a->child->next->child->i, 2);
	assert_true(json_get_int(a->child->next->next, "x", 3, 3, &i));
	assert_null(a->child->next->next->next);
	assert_false(json_copy_str(o, "s", buf, 3));
	assert_string_equal(buf, "");
	assert_true(json_copy_str(o, "s", buf, 4));
}

static void
what_may_be_absent(void **state)
{
	const struct json *o;
	char buf[4];
	int64_t i = 9;

	assert_int_equal(parse("{\"i\":5,\"n\":null,\"s\":\"abc\",\"long\":\"abcd\"}"), 0);
	o = json_root(doc);
	assert_true(json_opt_int(o, "i", 0, 5, &i) && i == 5);
	assert_true(json_opt_int(o, "none", 1, 5, &i) && i == 0);
	i = 9;
	assert_true(json_opt_int(o, "n", 1, 5, &i) && i == 0);
	assert_true(json_opt_int(NULL, "i", 1, 5, &i));
	assert_false(json_opt_int(o, "i", 0, 4, &i));
	assert_false(json_opt_int(o, "s", 0, 5, &i));
	assert_true(json_opt_str(o, "s", buf, sizeof(buf)));
	assert_string_equal(buf, "abc");
	assert_true(json_opt_str(o, "none", buf, sizeof(buf)));
	assert_string_equal(buf, "");
	strcpy(buf, "x");
	assert_true(json_opt_str(o, "n", buf, sizeof(buf)));
	assert_string_equal(buf, "");
	assert_false(json_opt_str(o, "long", buf, sizeof(buf)));
	assert_false(json_opt_str(o, "i", buf, sizeof(buf)));
}

static void
refuses(void **state)
{
	static const char *const bad[] = {
		"", " ", "{", "{}x", "[1,]", "{\"a\":1,}", "\"a", "{\"a\\u0000\":1}", "01", "nul",
		"\"\xff\"", "\"\xed\xa0\x80\"", "{\"a\" 1}", "'a'", "\"\n\"",
	};
	char deep[2 * JSON_DEPTH_MAX + 3] = { 0 }, *many;

	for (size_t i = 0; i < COUNT(bad); i++)
		if (parse(bad[i]) != -EBADMSG)
			fail_msg("accepted: %s", bad[i]);
	memset(deep, '[', JSON_DEPTH_MAX);
	memset(deep + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
	assert_int_equal(parse(deep), 0);
	memset(deep, '[', JSON_DEPTH_MAX + 1);
	memset(deep + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
	assert_int_equal(parse(deep), -EBADMSG);
	many = malloc(2 * JSON_NODES_MAX + 2);
	assert_non_null(many);
	for (size_t i = 0; i <= JSON_NODES_MAX; i++)
		memcpy(many + 2 * i, "1,", 2);
	many[0] = '[';
	many[2 * JSON_NODES_MAX] = ']';
	many[2 * JSON_NODES_MAX + 1] = '\0';
	many[1] = '1';
	assert_int_equal(parse(many), -EBADMSG);
	free(many);
}

/* Log text may hold NULs; a name or a message with one is not found, so that nobody reads half of it. */
static void
reads_nul(void **state)
{
	static const char text[] = "{\"text\":\"a\\u0000b\",\"name\":\"ok\"}";
	const struct json *o, *t;
	char buf[8];

	json_doc_free(doc);
	doc = NULL;
	assert_int_equal(json_parse_nul(text, strlen(text), &doc), 0);
	o = json_root(doc);
	t = json_get(o, "text");
	assert_int_equal(t->type, JSON_STRING);
	assert_int_equal(t->len, 3);
	assert_memory_equal(t->str, "a\0b", 4);
	assert_null(json_get_str(o, "text"));
	assert_false(json_copy_str(o, "text", buf, sizeof(buf)));
	assert_string_equal(json_get_str(o, "name"), "ok");
	json_doc_free(doc);
	doc = NULL;
	assert_int_equal(json_parse_nul("{\"a\\u0000\":1}", 13, &doc), -EBADMSG);
}

static void
writes(void **state)
{
	char buf[256];
	struct json_w w;
	size_t len;

	json_w_init(&w, buf, sizeof(buf));
	json_w_obj(&w, NULL);
	json_w_str(&w, "s", "a\"\\\n\x01\x7f\xc3\xa4");
	json_w_strn(&w, "bad", "x\xffy\xc3", 4);
	json_w_int(&w, "min", INT64_MIN);
	json_w_int(&w, "max", INT64_MAX);
	json_w_arr(&w, "a");
	json_w_bool(&w, NULL, true);
	json_w_null(&w, NULL);
	json_w_obj(&w, NULL);
	json_w_end_obj(&w);
	json_w_end_arr(&w);
	json_w_raw(&w, "r", "{}", 2);
	json_w_end_obj(&w);
	assert_int_equal(json_w_done(&w, &len), 0);
	buf[len] = '\0';
	assert_string_equal(buf, "{\"s\":\"a\\\"\\\\\\n\\u0001\x7f\xc3\xa4\",\"bad\":\"x?y?\",\"min\":-9223372036854775808,"
	    "\"max\":9223372036854775807,\"a\":[true,null,{}],\"r\":{}}");
	assert_int_equal(parse(buf), 0);
	assert_string_equal(json_get_str(json_root(doc), "bad"), "x?y?");
}

static void
every_size_of_buffer(void **state)
{
	char buf[128];

	for (size_t size = 0; size < sizeof(buf); size++) {
		struct json_w w;
		size_t len = 0;
		int r;

		memset(buf, '#', sizeof(buf));
		json_w_init(&w, buf, size);
		json_w_obj(&w, NULL);
		json_w_str(&w, "key", "0123456789\n");
		json_w_int(&w, "i", 123);
		json_w_end_obj(&w);
		r = json_w_done(&w, &len);
		assert_true(r == -ENOSPC || (r == 0 && len <= size));
		for (size_t i = size; i < sizeof(buf); i++)
			assert_int_equal(buf[i], '#');
		if (size >= 100)
			assert_int_equal(r, 0);
	}
}

/* Every byte at every place of a word, among plain neighbours and among others like it, against the rule byte for byte. */
static void
escapes_word_by_word(void **state)
{
	char want[7], got[6 * 24];
	uint8_t text[24];

	for (unsigned c = 0; c < 256; c++) {
		for (unsigned at = 0; at < 16; at++) {
			unsigned n = at % 3 + 1;
			size_t len, one;

			memset(text, at % 2 == 0 ? '~' : 0xc3, sizeof(text));
			memset(text + at, (int)c, n);
			if (c == '"' || c == '\\')
				snprintf(want, sizeof(want), "\\%c", (char)c);
			else if (c >= 0x20)
				snprintf(want, sizeof(want), "%c", (char)c);
			else if (strchr("\b\t\n\f\r", (int)c) != NULL && c != 0)
				snprintf(want, sizeof(want), "\\%c", "btn?fr"[c - 8]);
			else
				snprintf(want, sizeof(want), "\\u%04x", c);
			one = c >= 0x20 && c != '"' && c != '\\' ? 1 : strlen(want);
			len = json_escape(got, text, sizeof(text));
			assert_int_equal(len, json_escaped_len(text, sizeof(text)));
			assert_int_equal(len, sizeof(text) - n + n * one);
			assert_memory_equal(got, text, at);
			for (unsigned i = 0; i < n; i++)
				assert_memory_equal(got + at + i * one, one == 1 ? (char *)text + at : want, one);
			assert_memory_equal(got + at + n * one, text + at + n, sizeof(text) - at - n);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(reads, teardown),
		cmocka_unit_test_teardown(what_may_be_absent, teardown),
		cmocka_unit_test_teardown(refuses, teardown),
		cmocka_unit_test_teardown(reads_nul, teardown),
		cmocka_unit_test_teardown(writes, teardown),
		cmocka_unit_test(every_size_of_buffer),
		cmocka_unit_test(escapes_word_by_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
