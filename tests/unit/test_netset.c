/* Sets of addresses against the plainest set there is: one bit an address. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/ipc/netset.h"
#include "tests/unit/unit.h"

#define SMALL	200

static struct netset s;

static void
same(const uint8_t *bits)
{
	for (uint32_t i = 0; i < s.n; i++) {
		assert_true(s.r[i].lo <= s.r[i].hi);
		if (i > 0)
			assert_true(s.r[i].lo > s.r[i - 1].hi + 1);	/* neither overlap nor touch */
	}
	for (netaddr_t a = 0; a < SMALL; a++)
		assert_int_equal(netset_has(&s, a), bits[a]);
}

static void
like_bits(void **state)
{
	uint8_t bits[SMALL] = { 0 };

	srand(7);
	s.n = 0;
	for (int step = 0; step < 20000; step++) {
		unsigned lo = (unsigned)rand() % SMALL, hi = lo + (unsigned)rand() % 12;
		bool add = rand() % 2 == 0, all = true;

		hi = hi < SMALL ? hi : SMALL - 1;
		for (unsigned a = lo; a <= hi; a++)
			all = all && bits[a] != 0;
		assert_int_equal(netset_has_all(&s, (struct netrange){ lo, hi }), all);
		memset(bits + lo, add, hi - lo + 1);
		assert_int_equal((add ? netset_add : netset_sub)(&s, (struct netrange){ lo, hi }), 0);
		same(bits);
	}
}

static void
the_ends(void **state)
{
	netaddr_t top = ~(netaddr_t)0;

	s.n = 0;
	assert_int_equal(netset_add(&s, (struct netrange){ 0, top }), 0);
	assert_int_equal(netset_add(&s, (struct netrange){ 5, 5 }), 0);
	assert_int_equal(s.n, 1);
	assert_int_equal(netset_sub(&s, (struct netrange){ 0, 0 }), 0);
	assert_int_equal(netset_sub(&s, (struct netrange){ top, top }), 0);
	assert_false(netset_has(&s, 0));
	assert_false(netset_has(&s, top));
	assert_true(netset_has_all(&s, (struct netrange){ 1, top - 1 }));
	assert_int_equal(netset_sub(&s, (struct netrange){ 0, top }), 0);
	assert_int_equal(s.n, 0);
}

static void
full(void **state)
{
	static struct netset other;

	s.n = 0;
	for (netaddr_t i = 0; i < NETSET_MAX; i++)
		assert_int_equal(netset_add(&s, (struct netrange){ 4 * i, 4 * i + 2 }), 0);
	other = s;
	assert_int_equal(netset_add(&s, (struct netrange){ 1 << 20, 1 << 20 }), -ENOSPC);
	assert_int_equal(netset_sub(&s, (struct netrange){ 1, 1 }), -ENOSPC);
	assert_true(netset_inside(&s, &other) && netset_inside(&other, &s));
	assert_int_equal(netset_sub(&s, (struct netrange){ 0, 2 }), 0);
	assert_true(netset_inside(&s, &other));
	assert_false(netset_inside(&other, &s));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(like_bits),
		cmocka_unit_test(the_ends),
		cmocka_unit_test(full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
