#include <string.h>

#include "proto/hub/wshead.h"
#include "tests/unit/unit.h"

static void
sizes_and_lengths(void **state)
{
	static const struct {
		uint8_t head[WSHEAD_MAX];
		size_t size;
		uint64_t payload;
	} heads[] = {
		{ { 0x82, 0 }, 2, 0 },
		{ { 0x82, 125 }, 2, 125 },
		{ { 0x82, 0x80 | 125 }, 6, 125 },
		{ { 0x82, 126, 1, 2, 9 }, 4, 0x0102 },
		{ { 0x82, 0x80 | 126, 0xff, 0xff, 9 }, 8, 0xffff },
		{ { 0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0, 9 }, 10, 0x10000 },
		{ { 0x82, 0x80 | 127, 1, 2, 3, 4, 5, 6, 7, 8, 9 }, 14, 0x0102030405060708 },
		{ { 0x82, 0x80 | 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, 14, UINT64_MAX },
	};

	for (size_t i = 0; i < COUNT(heads); i++) {
		assert_int_equal(wshead_size(heads[i].head, 0), 2);
		assert_int_equal(wshead_size(heads[i].head, 1), 2);
		assert_int_equal(wshead_size(heads[i].head, 2), heads[i].size);
		assert_true(wshead_payload(heads[i].head) == heads[i].payload);
	}
}

/* Every length around a word, from every place: what is masked twice is what it was, and nothing beside it is touched. */
static void
masks(void **state)
{
	static const uint8_t mask[WSHEAD_MASK] = { 1, 0x20, 0x80, 0xff };
	uint8_t buf[48];

	for (size_t from = 0; from < 8; from++)
		for (size_t len = 0; len < 32; len++) {
			memset(buf, 0x55, sizeof(buf));
			wshead_mask(buf + from, len, mask);
			for (size_t i = 0; i < sizeof(buf); i++)
				assert_int_equal(buf[i], i < from || i >= from + len ? 0x55 : 0x55 ^ mask[(i - from) % 4]);
			wshead_mask(buf + from, len, mask);
			for (size_t i = 0; i < sizeof(buf); i++)
				assert_int_equal(buf[i], 0x55);
		}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_and_lengths),
		cmocka_unit_test(masks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
