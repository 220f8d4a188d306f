/* Enrollment tokens and credentials: form, MAC, kinds; what a tampered one is worth. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "hub/token.h"

static const uint8_t key[TOKEN_KEY_LEN] = { 1, 2, 3 };

static void
test_round_trip(void **state)
{
	static const enum token_kind kinds[] = { TOKEN_ENROLL, TOKEN_CREDENTIAL };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct token made, parsed;
		char text[TOKEN_SIZE];

		assert_int_equal(token_mint(kinds[i], key, NULL, text, &made), 0);
		assert_int_equal(strlen(text), TOKEN_SIZE - 1);
		assert_int_equal(strncmp(text, i == 0 ? "clet1." : "clac1.", 6), 0);
		assert_int_equal(token_parse(key, text, strlen(text), &parsed), 0);
		assert_int_equal(parsed.kind, kinds[i]);
		assert_string_equal(parsed.id, made.id);
		assert_true(token_hash_equal(parsed.hash, made.hash));
	}
}

static void
test_given_id_and_random_ids(void **state)
{
	struct token made;
	char text[TOKEN_SIZE], a[TOKEN_ID_SIZE], b[TOKEN_ID_SIZE];

	(void)state;
	assert_int_equal(token_mint(TOKEN_CREDENTIAL, key, "abcdefghijklmnop", text, &made), 0);
	assert_string_equal(made.id, "abcdefghijklmnop");
	assert_int_equal(token_mint(TOKEN_CREDENTIAL, key, "short", text, &made), -EINVAL);
	assert_int_equal(token_random_id(a), 0);
	assert_int_equal(token_random_id(b), 0);
	/* One in 64 would begin like an option. */
	for (int i = 0; i < 5000; i++) {
		char id[TOKEN_ID_SIZE];

		assert_int_equal(token_random_id(id), 0);
		assert_int_not_equal(id[0], '-');
	}
	assert_int_equal(strlen(a), 16);
	assert_string_not_equal(a, b);
}

/* Every single changed character, and every other length, is refused before a database is asked. */
static void
test_tampered(void **state)
{
	struct token made, parsed = { .id = "untouched" };
	char text[TOKEN_SIZE + 1], copy[TOKEN_SIZE + 1];

	(void)state;
	assert_int_equal(token_mint(TOKEN_ENROLL, key, NULL, text, &made), 0);
	for (size_t i = 0; i < TOKEN_SIZE - 1; i++) {
		memcpy(copy, text, TOKEN_SIZE);
		copy[i] = copy[i] == 'A' ? 'B' : 'A';
		assert_int_equal(token_parse(key, copy, TOKEN_SIZE - 1, &parsed), -EINVAL);
	}
	for (size_t len = 0; len < TOKEN_SIZE - 1; len++)
		assert_int_equal(token_parse(key, text, len, &parsed), -EINVAL);
	memcpy(copy, text, TOKEN_SIZE);
	copy[TOKEN_SIZE - 1] = 'x';
	assert_int_equal(token_parse(key, copy, TOKEN_SIZE, &parsed), -EINVAL);
	assert_string_equal(parsed.id, "untouched");
}

static void
test_other_hub(void **state)
{
	static const uint8_t other[TOKEN_KEY_LEN] = { 9 };
	struct token made, parsed;
	char text[TOKEN_SIZE];

	(void)state;
	assert_int_equal(token_mint(TOKEN_ENROLL, key, NULL, text, &made), 0);
	assert_int_equal(token_parse(other, text, strlen(text), &parsed), -EINVAL);
	/* The kind is under the MAC: a token does not become a credential. */
	memcpy(text, "clac1", 5);
	assert_int_equal(token_parse(key, text, strlen(text), &parsed), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_given_id_and_random_ids),
		cmocka_unit_test(test_tampered),
		cmocka_unit_test(test_other_hub),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
