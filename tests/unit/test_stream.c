#include <errno.h>
#include <string.h>

#include "proto/hub/stream.h"
#include "tests/unit/unit.h"

static uint8_t buf[STREAM_HEADER + STREAM_DATA_MAX + 1];
static struct stream_frame f;

static void
round_trips(void **state)
{
	static const uint8_t digest[16] = { 1, 2, 3 };
	const struct stream_frame in[] = {
		{ .type = STREAM_WINDOW_TO, .channel = 2, .offset = 1ull << 40 },
		{ .type = STREAM_END, .channel = 4, .offset = 5, .digest = digest, .len = 16 },
		{ .type = STREAM_END, .channel = 4, .offset = 5 },
		{ .type = STREAM_GAP, .channel = 0xffffffff, .offset = 10, .gap_to = 20, .gap_reason = 4 },
		{ .type = STREAM_RESET, .channel = 1, .reset = STREAM_RESET_GONE, .data = (const uint8_t *)"gone", .len = 4 },
	};

	for (size_t i = 0; i < COUNT(in); i++) {
		size_t n = stream_put(buf, &in[i]);

		assert_int_equal(stream_parse(&f, buf, n), 0);
		assert_int_equal(f.type, in[i].type);
		assert_int_equal(f.channel, in[i].channel);
		assert_true(f.offset == in[i].offset && f.gap_to == in[i].gap_to);
		assert_int_equal(f.gap_reason, in[i].gap_reason);
		assert_int_equal(f.reset, in[i].reset);
		if (in[i].digest != NULL)
			assert_memory_equal(f.digest, digest, 16);
		else
			assert_null(f.digest);
		for (size_t cut = 0; cut < n; cut++)
			if (!(in[i].type == STREAM_END && cut == STREAM_HEADER) && !(in[i].type == STREAM_RESET && cut >= STREAM_HEADER + 4))
				assert_int_equal(stream_parse(&f, buf, cut), -EBADMSG);
	}
}

static void
header_is_big_endian(void **state)
{
	static const uint8_t want[STREAM_HEADER] = { 1, 0, 0, 0, 0x01, 0x02, 0x03, 0x04, 0, 0, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d };

	stream_put_header(buf, STREAM_DATA, 0x01020304, 0x0a0b0c0d);
	assert_memory_equal(buf, want, STREAM_HEADER);
}

static void
refuses(void **state)
{
#define DATA_BAD(len, change) do { \
	stream_put_header(buf, STREAM_DATA, 2, 0); change; \
	assert_int_equal(stream_parse(&f, buf, STREAM_HEADER + (len)), -EBADMSG); } while (0)
	stream_put_header(buf, STREAM_DATA, 2, 0);
	assert_int_equal(stream_parse(&f, buf, STREAM_HEADER + STREAM_DATA_MAX), 0);
	DATA_BAD(0, (void)0);
	DATA_BAD(STREAM_DATA_MAX + 1, (void)0);
	DATA_BAD(1, buf[0] = 0);
	DATA_BAD(1, buf[0] = 6);
	for (int i = 1; i < 4; i++)
		DATA_BAD(1, buf[i] = 1);
	DATA_BAD(1, buf[7] = 0);
	DATA_BAD(1, memset(buf + 8, 0xff, 8));
	DATA_BAD(1, buf[0] = STREAM_WINDOW_TO);
	DATA_BAD(15, buf[0] = STREAM_END);
	DATA_BAD(9, buf[0] = STREAM_GAP; memset(buf + STREAM_HEADER, 0, 9));
	DATA_BAD(9, buf[0] = STREAM_GAP; memset(buf + STREAM_HEADER, 1, 8); buf[STREAM_HEADER + 8] = 6);
	DATA_BAD(4, buf[0] = STREAM_RESET; memset(buf + STREAM_HEADER, 0, 4));
	DATA_BAD(5, buf[0] = STREAM_RESET; memcpy(buf + STREAM_HEADER, "\0\0\0\1\xff", 5));
	DATA_BAD(4 + STREAM_REASON_MAX + 1, buf[0] = STREAM_RESET; memcpy(buf + STREAM_HEADER, "\0\0\0\1", 4));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trips),
		cmocka_unit_test(header_is_big_endian),
		cmocka_unit_test(refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
