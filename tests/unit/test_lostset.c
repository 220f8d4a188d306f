/* Bytes that are counted as lost: whatever is added in whatever order, each once. Compared with a map of all bytes. */
#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"
#include "workerd/lostset.h"

#define BYTES	400u

static void
each_byte_once(void **state)
{
	struct lostset set = { 0 };
	int gaps;

	assert_int_equal(lostset_add(&set, 100, 200, &gaps), 100);
	assert_int_equal(gaps, 1);
	assert_int_equal(lostset_add(&set, 100, 200, &gaps), 0);
	assert_int_equal(gaps, 0);
	assert_int_equal(lostset_add(&set, 200, 250, &gaps), 50);	/* goes on */
	assert_int_equal(gaps, 0);
	assert_int_equal(lostset_add(&set, 300, 310, &gaps), 10);
	assert_int_equal(gaps, 1);
	assert_int_equal(lostset_add(&set, 50, 400, &gaps), 190);	/* joins both */
	assert_int_equal(gaps, -1);
	assert_int_equal(set.n, 1);
	assert_int_equal(lostset_add(&set, 7, 7, &gaps), 0);
	assert_int_equal(lostset_add(&set, 9, 7, &gaps), 0);
	assert_int_equal(gaps, 0);
	lostset_forget(&set, 400);	/* ends there: may go on */
	assert_int_equal(set.n, 1);
	lostset_forget(&set, 401);
	assert_int_equal(set.n, 0);
	assert_int_equal(lostset_add(&set, 0, UINT64_MAX, &gaps), UINT64_MAX);
	assert_int_equal(lostset_add(&set, 5, UINT64_MAX, &gaps), 0);
}

static void
any_order(void **state)
{
	srand(5);
	for (unsigned round = 0; round < 2000; round++) {
		struct lostset set = { 0 };
		bool lost[BYTES] = { false };
		int sum = 0;

		while (set.n < LOSTSET_MAX && rand() % 60 != 0) {
			unsigned from = (unsigned)rand() % BYTES, to = from + (unsigned)rand() % 12, fresh = 0, ranges = 0;
			int gaps;

			to = to < BYTES ? to : BYTES;
			for (unsigned i = from; i < to; i++) {
				fresh += !lost[i];
				lost[i] = true;
			}
			assert_int_equal(lostset_add(&set, from, to, &gaps), fresh);
			sum += gaps;
			for (unsigned i = 0; i < BYTES; i++)
				ranges += lost[i] && (i == 0 || !lost[i - 1]);
			assert_int_equal(set.n, ranges);
			assert_int_equal(sum, (int)ranges);
			assert_true(lostset_ok(&set));
		}
	}
}

/* More ranges than there is room for: never one byte twice, and the highest are known exactly. */
static void
too_many(void **state)
{
	struct lostset set = { 0 };
	int gaps;

	for (uint64_t i = 0; i < 100; i++) {
		assert_int_equal(lostset_add(&set, i * 10, i * 10 + 5, &gaps), 5);
		assert_true(lostset_ok(&set));
	}
	assert_int_equal(set.n, LOSTSET_MAX);
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(lostset_add(&set, i * 10, i * 10 + 5, &gaps), 0);
	assert_int_equal(lostset_add(&set, 1005 - 20, 1005 - 10, &gaps), 5);
}

static void
rubbish_is_seen(void **state)
{
	struct lostset good = { .n = 2, .at = { { 1, 2 }, { 3, 4 } } }, bad;

	assert_true(lostset_ok(&good));
	bad = good;
	bad.n = LOSTSET_MAX + 1;
	assert_false(lostset_ok(&bad));
	bad = good;
	bad.at[1].from = 2;		/* touches */
	assert_false(lostset_ok(&bad));
	bad = good;
	bad.at[0].to = 1;
	assert_false(lostset_ok(&bad));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_byte_once),
		cmocka_unit_test(any_order),
		cmocka_unit_test(too_many),
		cmocka_unit_test(rubbish_is_seen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
