#include <errno.h>
#include <string.h>

#include "proto/ipc/wire.h"
#include "tests/unit/unit.h"

static void
round_trip(void **state)
{
	uint8_t buf[256];
	char str[16];
	struct wire_w w;
	struct wire_r r;
	size_t len, n;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u8(&w, 7);
	wire_put_u16(&w, 0xfffe);
	wire_put_u32(&w, 0xdeadbeef);
	wire_put_u64(&w, UINT64_MAX - 1);
	wire_put_i64(&w, -5);
	wire_put_str(&w, "hello");
	wire_put_bytes(&w, "\0x", 2);
	assert_int_equal(wire_w_done(&w, &len), 0);
	wire_r_init(&r, buf, len);
	assert_int_equal(wire_u8(&r), 7);
	assert_int_equal(wire_u16(&r), 0xfffe);
	assert_int_equal(wire_u32(&r), 0xdeadbeef);
	assert_true(wire_u64(&r) == UINT64_MAX - 1);
	assert_true(wire_i64(&r) == -5);
	wire_str(&r, str, sizeof(str));
	assert_string_equal(str, "hello");
	assert_memory_equal(wire_bytes(&r, &n), "\0x", 2);
	assert_int_equal(n, 2);
	assert_int_equal(wire_done(&r), 0);
}

static void
truncated_everywhere(void **state)
{
	uint8_t buf[64];
	char str[16];
	struct wire_w w;
	size_t len;

	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u32(&w, 1);
	wire_put_str(&w, "abc");
	wire_put_u64(&w, 2);
	assert_int_equal(wire_w_done(&w, &len), 0);
	for (size_t cut = 0; cut < len; cut++) {
		struct wire_r r;

		wire_r_init(&r, buf, cut);
		wire_u32(&r);
		wire_str(&r, str, sizeof(str));
		wire_u64(&r);
		assert_int_equal(wire_done(&r), -EBADMSG);
	}
}

static void
refuses(void **state)
{
	static const struct { uint32_t len; const char *bytes; size_t size; } bad[] = {
		{ 4, "abcd", 4 },		/* no room for the NUL */
		{ UINT32_MAX, "ab", 8 },	/* length beyond the message */
		{ 3, "a\0b", 8 },		/* NUL inside */
	};

	for (size_t i = 0; i < COUNT(bad); i++) {
		uint8_t buf[64] = { 0 };
		char str[8];
		struct wire_r r;

		memcpy(buf, &bad[i].len, 4);
		memcpy(buf + 4, bad[i].bytes, 3);
		wire_r_init(&r, buf, 4 + (bad[i].len < 8 ? bad[i].len : 2));
		wire_str(&r, str, bad[i].size);
		assert_int_equal(wire_done(&r), -EBADMSG);
		assert_string_equal(str, "");
	}
}

static void
trailing_bytes_and_full_buffer(void **state)
{
	uint8_t buf[5] = { 0 };
	struct wire_r r;
	struct wire_w w;
	size_t len;

	wire_r_init(&r, buf, sizeof(buf));
	wire_u32(&r);
	assert_int_equal(wire_done(&r), -EBADMSG);
	wire_w_init(&w, buf, sizeof(buf));
	wire_put_u32(&w, 1);
	wire_put_u16(&w, 1);
	wire_put_u8(&w, 1);
	assert_int_equal(wire_w_done(&w, &len), -ENOSPC);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip),
		cmocka_unit_test(truncated_everywhere),
		cmocka_unit_test(refuses),
		cmocka_unit_test(trailing_bytes_and_full_buffer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
