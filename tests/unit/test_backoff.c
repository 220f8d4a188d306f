/*
 * B01, B02, B09, B23 at the level of the arithmetic. Waiting times are drawn nowhere else: connectd/backoff.c for the link,
 * connectd/privchan.c (local socket, no fleet), jitter_between() under both and under the heartbeat.
 */
#include <stdlib.h>
#include <string.h>

#include "connectd/backoff.h"
#include "connectd/jitter.h"
#include "tests/unit/unit.h"

#define DRAWS	100000

static uint64_t stuck_value;

static uint64_t
stuck(void)
{
	return stuck_value;
}

static int
teardown(void **state)
{
	jitter_set_source(NULL);
	return 0;
}

/* Highest bin over the mean of all bins of [lo, hi]: draws that are all the same fill one bin and fail. */
static double
peak_over_mean(const int64_t *v, size_t n, int64_t lo, int64_t hi, int64_t bin)
{
	unsigned count[64] = { 0 }, peak = 0;
	size_t bins = (size_t)((hi - lo) / bin);

	for (size_t i = 0; i < n; i++) {
		size_t at = (size_t)((v[i] - lo) / bin);

		assert_true(v[i] >= lo && v[i] <= hi && at <= bins && bins < COUNT(count));
		if (++count[at] > peak)
			peak = count[at];
	}
	return (double)peak * (double)bins / (double)n;
}

/* B01: the first and the second delay of many devices with one cause do not bunch. */
static void
test_b01_no_herd(void **state)
{
	static int64_t first[DRAWS], second[DRAWS];

	for (int i = 0; i < DRAWS; i++) {
		struct backoff b;

		backoff_init(&b, 1000, 12000, 120000);
		first[i] = backoff_next(&b, BACKOFF_LOCAL, NULL);
		second[i] = backoff_next(&b, BACKOFF_LOCAL, NULL);
	}
	assert_true(peak_over_mean(first, DRAWS, 1000, 2000, 100) < 3);
	assert_true(peak_over_mean(second, DRAWS, 1000, 4000, 100) < 3);
}

/* B01: accepted and closed at once, twenty times: without a stable session the bound never shrinks. */
static void
test_b01_bound_never_shrinks(void **state)
{
	struct backoff b;
	int64_t last = 0;

	stuck_value = UINT64_MAX;
	jitter_set_source(stuck);
	backoff_init(&b, 1000, 12000, 120000);
	for (int i = 0; i < 20; i++) {
		int64_t upper = backoff_next(&b, BACKOFF_ANSWERED, NULL);

		backoff_authorized(&b);		/* the identity was accepted each time */
		assert_true(upper >= last);
		last = upper;
	}
	assert_int_equal(last, 120000);
	backoff_stable(&b);
	assert_int_equal(backoff_next(&b, BACKOFF_ANSWERED, NULL), 2000);
}

/* B02: spread over at least 30 s when the hub went, over its window when it named one, quick when only our link failed. */
static void
test_b02_hub_goes(void **state)
{
	static int64_t v[500];
	int64_t lo = INT64_MAX, hi = 0;

	for (int i = 0; i < 500; i++) {
		struct backoff b;

		backoff_init(&b, 1000, 12000, 120000);
		v[i] = backoff_next(&b, BACKOFF_HUB_CLOSED, NULL);
		lo = v[i] < lo ? v[i] : lo;
		hi = v[i] > hi ? v[i] : hi;
	}
	assert_true(hi - lo >= 25000);
	for (int64_t from = 0; from < 32000; from += 1000) {
		unsigned n = 0;

		for (int i = 0; i < 500; i++)
			n += v[i] >= from && v[i] < from + 1000;
		assert_true(n <= 50);
	}
}

static int
cmp(const void *a, const void *b)
{
	return *(const int64_t *)a < *(const int64_t *)b ? -1 : 1;
}

static void
test_b02_own_link(void **state)
{
	static int64_t v[501];

	for (int i = 0; i < 501; i++) {
		struct backoff b;

		backoff_init(&b, 1000, 12000, 120000);
		v[i] = backoff_next(&b, BACKOFF_LOCAL, NULL);
	}
	qsort(v, 501, sizeof(v[0]), cmp);
	assert_true(v[250] <= 2000);
}

static void
test_b02_named_window(void **state)
{
	static const struct backoff_window nonsense[] = { { -5, 10 }, { 60000, 1000 }, { 0, INT64_C(315360000000) },
		{ INT64_MAX, 0 }, { INT64_MIN, INT64_MIN }, { 5, -1 }, { 100, 100 } };
	struct backoff b;

	backoff_init(&b, 1000, 12000, 120000);
	for (int i = 0; i < 1000; i++) {
		struct backoff_window w = { 60000, 120000 };
		int64_t ms = backoff_next(&b, BACKOFF_ANSWERED, &w);

		assert_in_range(ms, 60000, 120000);
	}
	/* What makes no sense falls back to the ordinary wide spread. */
	for (size_t i = 0; i < COUNT(nonsense); i++) {
		backoff_init(&b, 1000, 12000, 120000);
		for (int n = 0; n < 5; n++)
			assert_in_range(backoff_next(&b, BACKOFF_LOCAL, &nonsense[i]), 1000, 31000);
	}
	/* An hour is honest, but longer than any wait of ours (B23). */
	for (int i = 0; i < 1000; i++) {
		struct backoff_window w = { 3600000, 0 };

		assert_in_range(backoff_next(&b, BACKOFF_ANSWERED, &w), 150000, BACKOFF_LONGEST_MS);
	}
}

/* B09: every delay lies in [min, cap] and is never 0, whatever the counter, the cap and the random source. */
static void
test_b09_every_delay_in_range(void **state)
{
	static const int64_t mins[] = { 0, 1, 100, 1000, 60000 }, caps[] = { 1000, 12000, 120000, 300000, 86400000 };
	static const uint32_t counts[] = { 0, 1, 2, 30, 31, 32, 33, 62, 63, 64, 65, 1000, 1000000, UINT32_MAX - 1,
		UINT32_MAX };
	static const uint64_t values[] = { 0, 1, UINT64_MAX / 2, UINT64_MAX };

	jitter_set_source(stuck);
	for (size_t m = 0; m < COUNT(mins); m++)
		for (size_t c = 0; c < COUNT(caps); c++)
			for (size_t n = 0; n < COUNT(counts); n++)
				for (size_t v = 0; v < COUNT(values); v++)
					for (int kind = 0; kind <= BACKOFF_HUB_CLOSED; kind++) {
						struct backoff b;
						int64_t cap = caps[c] > BACKOFF_LONGEST_MS ? caps[c] : BACKOFF_LONGEST_MS;
						int64_t ms;

						backoff_init(&b, mins[m], caps[c], caps[c]);
						b.attempts = b.unauthorized = counts[n];
						stuck_value = values[v];
						ms = backoff_next(&b, (enum backoff_kind)kind, NULL);
						assert_true(ms >= 1 && ms >= mins[m] && ms <= cap);
						if (kind == BACKOFF_LOCAL || kind == BACKOFF_ANSWERED)
							assert_true(ms <= (caps[c] > b.min_ms ? caps[c] : b.min_ms));
					}
}

static void
test_b09_every_attempt(void **state)
{
	struct backoff b;

	backoff_init(&b, 1000, 12000, 120000);
	for (uint32_t i = 0; i <= 1000000; i++) {
		int64_t ms = backoff_next(&b, i % 2 == 0 ? BACKOFF_LOCAL : BACKOFF_ANSWERED, NULL);

		assert_true(ms >= 1000 && ms <= (i % 2 == 0 ? 12000 : 120000));
	}
	assert_int_equal(b.attempts, 1000001);
}

static void
test_b09_jitter_edges(void **state)
{
	static const int64_t edges[][2] = { { 0, 0 }, { 5, 3 }, { INT64_MIN, INT64_MAX }, { -1, 1 }, { INT64_MAX - 1, INT64_MAX } };
	static const uint64_t values[] = { 0, UINT64_MAX };

	jitter_set_source(stuck);
	for (size_t i = 0; i < COUNT(edges); i++)
		for (size_t v = 0; v < COUNT(values); v++) {
			int64_t r;

			stuck_value = values[v];
			r = jitter_between(edges[i][0], edges[i][1]);
			assert_true(edges[i][1] < edges[i][0] ? r == edges[i][1] : r >= edges[i][0] && r <= edges[i][1]);
		}
}

/* B23: refused for hours: the waits become long, never longer than five minutes, and short again once accepted. */
static void
test_b23_refused_identity(void **state)
{
	struct backoff b;
	int64_t ms = 0;

	backoff_init(&b, 1000, 12000, 120000);
	for (int i = 0; i < 100; i++) {
		ms = backoff_next(&b, BACKOFF_IDENTITY, NULL);
		assert_true(ms <= BACKOFF_LONGEST_MS);
		if (i >= BACKOFF_PATIENCE)
			assert_true(ms >= BACKOFF_LONGEST_MS / 2);
	}
	backoff_authorized(&b);
	backoff_stable(&b);
	assert_true(backoff_next(&b, BACKOFF_IDENTITY, NULL) <= 2000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_b01_no_herd),
		cmocka_unit_test_teardown(test_b01_bound_never_shrinks, teardown),
		cmocka_unit_test(test_b02_hub_goes),
		cmocka_unit_test(test_b02_own_link),
		cmocka_unit_test(test_b02_named_window),
		cmocka_unit_test_teardown(test_b09_every_delay_in_range, teardown),
		cmocka_unit_test(test_b09_every_attempt),
		cmocka_unit_test_teardown(test_b09_jitter_edges, teardown),
		cmocka_unit_test(test_b23_refused_identity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
