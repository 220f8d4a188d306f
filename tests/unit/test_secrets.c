/* Secrets in a start and in a refresh, as the hub sends them and as they go on: what is refused, and where they end up. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/hub/start.h"
#include "proto/ipc/launch.h"
#include "tests/unit/unit.h"
#include "workerd/placing.h"

static char why[START_ERROR];

static enum work_refusal
decode(const char *text, uint8_t **ret_items, size_t *ret_len)
{
	struct json_doc *doc;
	enum work_refusal r;

	why[0] = '\0';
	assert_int_equal(json_parse(text, strlen(text), &doc), 0);
	r = start_secrets(json_root(doc), ret_items, ret_len, why);
	json_doc_free(doc);
	return r;
}

#define FILE_IS(rest)	"{\"secret_files\":[{\"lease_id\":\"l\",\"grant_id\":\"g\"," rest "}]}"

static void
refused_at_decode(void **state)
{
	static const char *const rows[] = {
		FILE_IS("\"dir\":\"/d\",\"name\":\"../evil\""), FILE_IS("\"dir\":\"/d\",\"name\":\"..\""), FILE_IS("\"dir\":\"/d\",\"name\":\"\""),
		FILE_IS("\"dir\":\"/d\",\"name\":\"a/b\""), FILE_IS("\"dir\":\"/d\""), FILE_IS("\"dir\":\"d\",\"name\":\"n\""),
		FILE_IS("\"dir\":\"/d/../e\",\"name\":\"n\""), FILE_IS("\"dir\":\"/d/\",\"name\":\"n\""), FILE_IS("\"dir\":\"/\",\"name\":\"n\""),
		FILE_IS("\"dir\":\"//d\",\"name\":\"n\""), FILE_IS("\"dir\":\"/d\",\"name\":\"n\",\"mode\":416"),
		FILE_IS("\"dir\":\"/d\",\"name\":\"n\",\"mode\":2432"), FILE_IS("\"dir\":\"/d\",\"name\":\"n\",\"mode\":-1"),
		FILE_IS("\"dir\":\"/d\",\"name\":\"n\",\"content\":\"!\""), FILE_IS("\"dir\":\"/d\",\"name\":\"n\",\"content\":1"),
		FILE_IS("\"dir\":1,\"name\":\"n\""), "{\"secret_files\":{}}", "{\"secret_files\":[1]}", "{\"spec\":{\"secrets\":{}}}",
		"{\"spec\":{\"secrets\":[{\"lease_id\":\"l\",\"env_keys\":[\"\"]}]}}", "{\"spec\":{\"secrets\":[{\"env_keys\":[\"A=B\"]}]}}",
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t *items = NULL;
		size_t len = 1;

		if (decode(rows[i], &items, &len) != WORK_REFUSED_BAD_SPEC || why[0] == '\0' || items != NULL || strstr(why, "evil") != NULL)
			fail_msg("%s", rows[i]);
	}
}

/* n files of each raw bytes. */
static enum work_refusal
decode_sized(unsigned n, size_t each)
{
	static char text[1 << 20];
	size_t b64 = (each + 2) / 3 * 4, at = 17;
	uint8_t *items = NULL;
	enum work_refusal r;
	size_t len;

	memcpy(text, "{\"secret_files\":[", 17);
	for (unsigned i = 0; i < n; i++) {
		at += (size_t)snprintf(text + at, 100, "%s{\"dir\":\"/d\",\"name\":\"n%u\",\"content\":\"", i > 0 ? "," : "", i);
		memset(text + at, 'A', b64);
		if (each % 3 != 0)
			text[at + b64 - 1] = '=';
		if (each % 3 == 1)
			text[at + b64 - 2] = '=';
		at += b64;
		at += (size_t)snprintf(text + at, 8, "\"}");
	}
	snprintf(text + at, 8, "]}");
	r = decode(text, &items, &len);
	free(items);
	return r;
}

static void
sizes(void **state)
{
	assert_int_equal(decode_sized(1, SECRET_FILE_MAX), WORK_OK);
	assert_int_equal(decode_sized(1, SECRET_FILE_MAX + 1), WORK_REFUSED_BAD_SPEC);
	assert_int_equal(decode_sized(2, SECRET_FILE_MAX), WORK_OK);
	assert_int_equal(decode_sized(3, SECRET_FILE_MAX * 2 / 3 + 3), WORK_REFUSED_BAD_SPEC);
	assert_int_equal(decode_sized(SECRETS_MAX, 3), WORK_OK);
	assert_int_equal(decode_sized(SECRETS_MAX + 1, 3), WORK_REFUSED_BAD_SPEC);
}

static void
taken(void **state)
{
	uint8_t *items;
	struct secret s;
	struct wire_r r;
	size_t len;

	assert_int_equal(decode("{\"secret_files\":[{\"lease_id\":\"l\",\"grant_id\":\"g\",\"dir\":\"/d/e\",\"name\":\"n\",\"content\":\"AAEC\"}],"
	    "\"spec\":{\"secrets\":[{\"lease_id\":\"l\",\"env_keys\":[\"A\"],\"files\":[\"/d/e/n\",\"/elsewhere\"]},{}]}}", &items, &len), WORK_OK);
	assert_true(secrets_ok(items, len));
	wire_r_init(&r, items, len);
	assert_int_equal(secret_next(&r, &s), 1);
	assert_true(s.kind == SECRET_FILE && s.mode == 0600 && s.len == 3 && memcmp(s.value, "\0\1\2", 3) == 0);
	assert_true(secret_is_of(&s, "l", "") && secret_is_of(&s, "l", "g") && !secret_is_of(&s, "l", "h") && !secret_is_of(&s, "m", ""));
	assert_int_equal(secret_next(&r, &s), 1);
	assert_true(s.kind == SECRET_ENV && strcmp(s.name, "A") == 0 && secret_is_of(&s, "l", "anything"));
	assert_int_equal(secret_next(&r, &s), 1);
	assert_true(s.kind == SECRET_PATH && strcmp(s.dir, "/elsewhere") == 0);
	assert_int_equal(secret_next(&r, &s), 0);
	for (size_t cut = 1; cut < len; cut++)
		(void)secrets_ok(items, cut);
	free(items);
	assert_int_equal(decode("{\"spec\":{}}", &items, &len), WORK_OK);
	assert_true(items == NULL && len == 0);
}

static void
a_refresh(void **state)
{
	static const struct { const char *text; bool good; } rows[] = {
		{ "{\"lease_id\":\"l\",\"files\":[{\"dir\":\"/d\",\"name\":\"n\",\"content\":\"AAEC\"}]}", true },
		{ "{\"lease_id\":\"l\",\"files\":[{\"lease_id\":\"l\",\"dir\":\"/d\",\"name\":\"n\"}]}", true },
		{ "{\"lease_id\":\"l\",\"files\":[{\"lease_id\":\"m\",\"dir\":\"/d\",\"name\":\"n\"}]}", false },
		{ "{\"lease_id\":\"l\",\"files\":[{\"dir\":\"/d\",\"name\":\"../n\"}]}", false },
		{ "{\"lease_id\":\"l\",\"files\":[]}", false }, { "{\"lease_id\":\"\",\"files\":[{\"dir\":\"/d\",\"name\":\"n\"}]}", false },
		{ "{\"files\":[{\"dir\":\"/d\",\"name\":\"n\"}]}", false },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct json_doc *doc;
		uint8_t *items = NULL;
		char lease[SECRET_ID_SIZE];
		size_t len;

		assert_int_equal(json_parse(rows[i].text, strlen(rows[i].text), &doc), 0);
		assert_int_equal(refresh_secrets(json_root(doc), lease, &items, &len, why), rows[i].good ? WORK_OK : WORK_REFUSED_BAD_SPEC);
		assert_true((items != NULL) == rows[i].good);
		free(items);
		json_doc_free(doc);
	}
}

/* ---- placing ---- */

static void
add(struct wire_w *w, const char *dir, const char *name)
{
	struct secret s = { .kind = SECRET_FILE, .mode = 0600, .value = (const uint8_t *)"v", .len = 1 };

	snprintf(s.dir, sizeof(s.dir), "%s", dir);
	snprintf(s.name, sizeof(s.name), "%s", name);
	secret_put(w, &s);
}

static void
variables_follow(void **state)
{
	static const struct { const char *before, *after; } rows[] = {
		{ "A=/run/x", "A=" LAUNCH_SECRETS "/cloop-lease-1" }, { "A=/run/x/f:/run/x/g", "A=" LAUNCH_SECRETS "/cloop-lease-1/f:" LAUNCH_SECRETS "/cloop-lease-1/g" },
		{ "A=/run/x2/f", "A=" LAUNCH_SECRETS "/cloop-lease-2/f" }, { "A=/run/x3", "A=/run/x3" }, { "A=/run/x.d", "A=/run/x.d" },
		{ "A=--f=/run/x/sub/f", "A=--f=" LAUNCH_SECRETS "/cloop-lease-3/f" }, { "/run/x=1", "/run/x=1" }, { "A=", "A=" },
	};
	static uint8_t items[4096], init[4096];
	static struct placing p;
	struct work_str env[8];
	struct work_spec spec = { .env = env, .envc = 8 };
	char real[PLACING_REAL];
	struct wire_w w;
	struct wire_r r;
	struct secret s;
	size_t len;

	wire_w_init(&w, items, sizeof(items));
	add(&w, "/run/x", "f");
	add(&w, "/run/x2", "f");
	add(&w, "/run/x/sub", "f");
	add(&w, "/run/x", "g");
	assert_int_equal(wire_w_done(&w, &spec.secrets.len), 0);
	spec.secrets.s = (const char *)items;
	for (unsigned i = 0; i < 8; i++)
		env[i] = (struct work_str){ rows[i].before, strlen(rows[i].before) };
	assert_int_equal(placing_make(&p, &spec), 0);
	assert_true(p.files && p.ndirs == 3);
	for (unsigned i = 0; i < 8; i++) {
		assert_int_equal(env[i].len, strlen(rows[i].after));
		assert_memory_equal(env[i].s, rows[i].after, env[i].len);
	}
	placing_real(&p, "/run/x2", real);
	assert_string_equal(real, LAUNCH_SECRETS "/cloop-lease-2");
	assert_true(placing_is_path(real, strlen(real)));
	assert_false(placing_is_path(LAUNCH_SECRETS "/cloop-lease-", strlen(LAUNCH_SECRETS "/cloop-lease-")));
	assert_int_equal(placing_for_init(&p, &spec, init, sizeof(init), &len), 0);
	wire_r_init(&r, init, len);
	assert_int_equal(secret_next(&r, &s), 1);
	assert_string_equal(s.dir, LAUNCH_SECRETS "/cloop-lease-1");
	placing_done(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused_at_decode), cmocka_unit_test(sizes), cmocka_unit_test(taken), cmocka_unit_test(a_refresh),
		cmocka_unit_test(variables_follow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
