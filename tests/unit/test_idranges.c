/* B123, B124: which ids are somebody's. common/idranges.c is where the pool's are chosen; privaccount asks NSS for the rest. */
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/idranges.h"

static struct idranges set;

static uint32_t
next(uint32_t from, uint32_t count)
{
	uint32_t first = 1;

	return idranges_next(&set, from, count, &first) == 0 ? first : 0;
}

/* Of its exact size, so that a byte too far is seen. */
static int
give(int (*parse)(struct idranges *, const char *, size_t), const char *text)
{
	size_t len = strlen(text);
	char *copy = malloc(len + 1);
	int r;

	memcpy(copy, text, len);
	copy = realloc(copy, len > 0 ? len : 1);
	r = parse(&set, copy, len);
	free(copy);
	return r;
}

static void
test_b124_fixed_ranges(void **state)
{
	idranges_init(&set);
	assert_int_equal(next(0, 64), 65536);
	assert_int_equal(next(70000, 64), 70000);
	assert_int_equal(next(524288 - 63, 64), 1879048192);	/* one less would fit in front of the containers */
	assert_int_equal(next(524288 - 64, 64), 524288 - 64);
	assert_int_equal(next(2147352576 - 64, 64), 2147352576 - 64);
	assert_int_equal(next(2147352576 - 63, 64), 0);
	assert_int_equal(next(UINT32_MAX, 64), 0);
	assert_int_equal(next(0, 0), 0);
}

static void
test_b124_login_defs(void **state)
{
	idranges_init(&set);
	assert_int_equal(give(idranges_login_defs, "# nothing\n\nUMASK 022\n"), 0);
	assert_int_equal(set.human_min, 1000);
	assert_int_equal(next(0, 64), 65536);
	assert_int_equal(next(99999, 2), 1879048192);	/* 100000 is the first that useradd would give away */
	idranges_init(&set);
	assert_int_equal(give(idranges_login_defs, "UID_MIN\t 500\nUID_MAX 80000 # many\nSUB_UID_MIN 90000\nSUB_GID_MIN 85000\nSUB_UID_MAX 90001"), 0);
	assert_int_equal(set.human_min, 500);
	assert_int_equal(next(0, 64), 80001);
	assert_int_equal(next(84999, 64), 1879048192);
	for (const char *const *bad = (const char *const []){ "UID_MIN", "UID_MIN x", "UID_MAX -1", "GID_MIN 4294967296", "SUB_UID_MIN 0x10", NULL };
	    *bad != NULL; bad++) {
		idranges_init(&set);
		assert_int_equal(give(idranges_login_defs, *bad), -EINVAL);
	}
}

static void
test_b124_subid(void **state)
{
	idranges_init(&set);
	assert_int_equal(give(idranges_subid, "alice:65536:65536\n\n# comment\nbob:131072:1\n1000:131073:10"), 0);
	assert_int_equal(next(0, 64), 131083);
	assert_int_equal(give(idranges_subid, "all:131083:4294967295\n"), 0);	/* runs over the end: to the end */
	assert_int_equal(next(0, 64), 0);
	for (const char *const *bad = (const char *const []){ "alice", "alice:1", "alice:1:2:3", "alice:x:1", "alice:1:", "alice:-1:1", ":::", NULL };
	    *bad != NULL; bad++) {
		idranges_init(&set);
		assert_int_equal(give(idranges_subid, *bad), -EINVAL);
	}
}

static void
test_b124_bounds(void **state)
{
	static char many[40 * (IDRANGES_MAX + 1)];
	char wide[400];

	idranges_init(&set);
	memset(wide, 'a', sizeof(wide));
	wide[sizeof(wide) - 1] = '\0';
	assert_int_equal(give(idranges_subid, wide), -EINVAL);
	assert_int_equal(idranges_subid(&set, "a:1:\0001", 6), -EINVAL);
	for (unsigned i = 0; i <= IDRANGES_MAX; i++)
		strcat(many, "a:70000:1\n");
	assert_int_equal(give(idranges_subid, many), -E2BIG);
}

static void
test_nss(void **state)
{
	assert_int_equal(idranges_in_use(0), 1);
	assert_int_equal(idranges_in_use(2000000001), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_b124_fixed_ranges),
		cmocka_unit_test(test_b124_login_defs),
		cmocka_unit_test(test_b124_subid),
		cmocka_unit_test(test_b124_bounds),
		cmocka_unit_test(test_nss),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
